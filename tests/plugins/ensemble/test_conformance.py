"""Both estimators pass the kit that strangers use."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from verifolio.plugin.data_source import Dataset
from verifolio.plugin.property import Reference
from verifolio.plugins.ensemble.attack import AttackRequest, AttackResult, EnsembleAttack
from verifolio.plugins.ensemble.selection import EnsembleSelection, SelectionRequest, SelectionResult
from verifolio.testing import Classifier, EstimatorConformance


class TestAttack(EstimatorConformance):
    """Around (1/4, 1/4) the kit's classifiers are fooled from a radius of 1.25 / 3 on."""

    make = EnsembleAttack

    def request(self, folder: Path) -> AttackRequest:
        networks = tuple(Classifier(folder, k).network() for k in range(2))
        points = [Reference(np.array([0.25, 0.25]), 2, radius) for radius in (0.25, 0.5)]
        return AttackRequest(networks, tuple(points), Fraction(1, 2))

    def check(self, result: AttackResult) -> None:
        assert result.value_lower == Fraction(1, 2)
        assert result.verdict.value == "not-robust"


class TestSelection(EstimatorConformance):
    """Three variants of the kit's classifier, two of them in the ensemble."""

    make = EnsembleSelection

    def request(self, folder: Path) -> SelectionRequest:
        networks = tuple(Classifier(folder, k).network() for k in range(3))
        images = np.array([[0.25, 0.25], [1.0, 0.4], [0.4, 1.0]])
        data = Dataset("kit", "all", images, np.array([2, 0, 1]), (2,), 3)
        return SelectionRequest(networks, data, (0.125, 0.5), (0, 1), 3, test=(0, 1))

    def check(self, result: SelectionResult) -> None:
        assert len(result.points) == 3
        assert int(result.errors.open.sum()) == 0
        assert len(result.before) == 2
