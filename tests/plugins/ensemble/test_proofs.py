"""Cheap proofs believe a bound only where it says something about every choice of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from verifolio.bounder import Bounder
from verifolio.budget import Budget
from verifolio.evidence import Bounds, Margins
from verifolio.plugins.ensemble.proofs import Prover
from verifolio.problem import Domain, Problem
from verifolio.testing.networks import plus_minus
from verifolio.vnnlib import make_rows


class Said(Bounder):
    """Answers with the margins it was given."""

    name = "said"

    def __init__(self, margins: Sequence[Sequence[float]]) -> None:
        self.said = tuple(np.array(m) for m in margins)

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        return [Bounds(p.graph.sha256, p.domain, {}, {}, Margins.of(p, self.said)) for p in problems]


@pytest.mark.parametrize(
    ("margins", "gap"),
    [
        ([[1.0], [-3.0, 2.0]], 1.0),
        ([[1.0], [-3.0, -2.0]], -2.0),
        ([[1.0], [math.nan, math.nan]], -math.inf),
        ([[math.nan], [1.0, 1.0]], -math.inf),
        ([[1.0], [math.nan, 2.0]], 1.0),
        ([[1.0]], -math.inf),
        ([[1.0], []], -math.inf),
    ],
)
def test_the_least_gap_of_all_choices(margins: Sequence[Sequence[float]], gap: float) -> None:
    one, two = make_rows([({2: 1.0}, 0.0)]), make_rows([({2: 1.0}, 0.0), ({2: -1.0}, 0.0)])
    problem = Problem(plus_minus(), Domain(-np.ones(2), np.ones(2)), (one, two))
    assert Prover([])._bound(Said(margins), [problem]) == [gap]
