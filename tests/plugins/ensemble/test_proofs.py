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
from verifolio.model.problem import Domain, Problem
from verifolio.onnx_import.network import Network
from verifolio.plugin.bounder import Bounder, Bounders
from verifolio.plugin.evidence import Bounds, Margins
from verifolio.plugin.manager import Plugins
from verifolio.plugin.property import Reference
from verifolio.plugins.ensemble.accuracy import _Work
from verifolio.plugins.ensemble.ledger import Ledger
from verifolio.plugins.ensemble.proofs import Prover
from verifolio.plugins.ensemble.replay import Spot
from verifolio.plugins.ensemble.survey import Survey
from verifolio.run.budget import Budget
from verifolio.testing.hostile_verifiers import WrongBounds
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
    with tiny.inline() as oracle:
        survey = Survey(networks, [Spot(point)], oracle)
        survey.prover._bounders = Bounders({WrongBounds.name: WrongBounds()})
        with pytest.raises(SoundnessAlarm, match="bounder hostile-wrong-bounds claims a proof"):
            survey.bound([(0, 0b11)])
        assert not list(survey.ledger)
    (folder,) = (tmp_path / "alarms").iterdir()
    (command,) = json.loads((folder / "alarm.json").read_text())["reproduce"]
    assert "hostile-wrong-bounds" in command
    said = command.replace("hostile-wrong-bounds", "interval").replace("python -c ", "", 1).strip('"')
    told = subprocess.run(
        [sys.executable, "-c", said], cwd=folder, capture_output=True, text=True, check=True
    )
    assert float(told.stdout) <= 0


def test_wrong_bounds_of_averages_are_an_alarm(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    networks, point = one_sided(tiny, tmp_path)
    wrong = Bounders({WrongBounds.name: WrongBounds()})
    monkeypatch.setattr(Plugins, "all_bounders", lambda _: wrong)
    with tiny.inline() as oracle:
        work = _Work(networks, [[point]], oracle, Ledger(), lambda: False)
        with pytest.raises(SoundnessAlarm, match="bounder hostile-wrong-bounds claims a proof"):
            work.bound()
    assert list((tmp_path / "alarms").iterdir())
