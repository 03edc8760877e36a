"""Cheap proofs believe a bound only where it says something about every choice of labels."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.errors import SoundnessAlarm
from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.onnx_import.network import Network
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.evidence import Bounds, Margins
from verifolio.plugin.property import Reference
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.ensemble.accuracy import _Work
from verifolio.plugins.ensemble.lattice import SetStatus
from verifolio.plugins.ensemble.ledger import EnsembleLedger
from verifolio.plugins.ensemble.spot import Spot
from verifolio.plugins.ensemble.survey import Survey
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.hostile_verifiers import WrongBounds


class Said(Verifier):
    """Bounds with the margins it was given."""

    name = "said"
    can_prove = True
    can_bound_many = True

    def __init__(self, margins: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.said = tuple(np.array(m) for m in margins)

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.unknown("only bounds")

    def bound_many(self, problems: Sequence[Problem], context: BatchContext) -> list[Bounds]:
        return [Bounds(p.graph.sha256, p.domain, {}, {}, Margins.of(p, self.said)) for p in problems]


@pytest.mark.parametrize(
    ("margins", "gap"),
    [
        ([[1.0], [2.0]], 1.0),
        ([[1.0], [-2.0]], -2.0),
        ([[1.0], [math.nan]], -math.inf),
        ([[1.0]], -math.inf),
        ([[1.0], []], -math.inf),
    ],
)
def test_the_least_gap_of_all_choices(
    tiny: Any, tmp_path: Path, margins: Sequence[Sequence[float]], gap: float
) -> None:
    """Three labels that are far apart: two choices of a wrong one."""
    network = tiny.linear(tmp_path / "n.onnx", [[0, 0], [0, 0], [0, 0]], [9.0, 0.0, 0.0])
    point = Reference(np.zeros(2), 0, 0.5, math.inf, -math.inf, math.inf)
    with Oracle(single_verifier(Said(margins)), "inline") as oracle:
        survey = Survey([network], [Spot(point)], oracle)
        survey.bound([(0, 1)])
    assert survey.gaps == {(0, 1): gap}
    assert (survey.status(0, 1) is SetStatus.UNSAT) == (gap > 0)


def one_sided(tiny: Any, folder: Path) -> tuple[tuple[Network, ...], Reference]:
    """Two networks that both err to the left of -1, at a point whose ball reaches to -2."""
    names = ("a", "b")
    networks = [
        tiny.linear(folder / f"{n}.onnx", [[0, 0], [-1 - k, 0]], [0.0, -1 - k]) for k, n in enumerate(names)
    ]
    return tuple(networks), Reference(np.zeros(2), 0, 2.0, math.inf, -math.inf, math.inf)


def test_wrong_bounds_of_a_set_are_an_alarm(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    networks, point = one_sided(tiny, tmp_path)
    with Oracle(single_verifier(WrongBounds()), "inline") as oracle:
        survey = Survey(networks, [Spot(point)], oracle)
        with pytest.raises(SoundnessAlarm, match="bounder hostile-wrong-bounds claims a proof"):
            survey.bound([(0, 0b11)])
        assert not list(survey.ledger)
    (folder,) = (tmp_path / "alarms").iterdir()
    (command,) = json.loads((folder / "alarm.json").read_text())["reproduce"]
    assert "hostile-wrong-bounds" in command
    said = command.replace("hostile-wrong-bounds", "crown").replace("python -c ", "", 1).strip('"')
    told = subprocess.run(
        [sys.executable, "-c", said], cwd=folder, capture_output=True, text=True, check=True
    )
    assert float(told.stdout) <= 0


def test_wrong_bounds_of_averages_are_an_alarm(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    networks, point = one_sided(tiny, tmp_path)
    with Oracle(single_verifier(WrongBounds()), "inline") as oracle:
        work = _Work(networks, [[point]], oracle, EnsembleLedger(), lambda: math.inf)
        with pytest.raises(SoundnessAlarm, match="bounder hostile-wrong-bounds claims a proof"):
            work.bound()
    assert list((tmp_path / "alarms").iterdir())
