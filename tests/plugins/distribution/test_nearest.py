"""The attack that minimises distances, on a network whose distances are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from verifolio.attacks.approach import approach
from verifolio.model.answer import Witness
from verifolio.onnx_import.network import Network
from verifolio.plugin.batch import Spot
from verifolio.plugins.distribution.family import Family
from verifolio.run.budget import Budget
from verifolio.trust.referee import replay

Make = Callable[..., Network]
STD = np.array([0.5, 0.25])


def closest(families: list[Family], reach: float = 1.0) -> list[float]:
    """The distance of the closest replayed point per family."""
    queries = [f.query(f.largest) for f in families]
    best = [math.inf] * len(families)

    def offer(k: int, x: np.ndarray) -> bool:
        found = replay(queries[k], x)
        if not isinstance(found, Witness):
            return False
        best[k] = min(best[k], families[k].distance(found.x))
        return True

    spots = [
        Spot(q.problems[0], sum(f.box(0.0)) / 2, np.ones(2) if f.std is None else f.std, reach, None, k)  # type: ignore[arg-type]
        for k, (f, q) in enumerate(zip(families, queries, strict=True))
    ]
    approach(spots, offer, 1e-5, Budget(20.0))
    return best


def test_many_inputs_at_once_come_within_a_thousandth(plane: Network) -> None:
    points = [(0.2, 0.3), (0.1, 0.1), (0.45, 0.5), (0.0, 0.9)]
    found = closest([Family(plane, np.array(p), 0) for p in points])
    assert found == pytest.approx([(1 - sum(p)) / 2 for p in points], rel=1e-3)
    assert all(d >= (1 - sum(p)) / 2 - 1e-6 for d, p in zip(found, points, strict=True))


def test_the_range_limits_a_coordinate(plane: Network) -> None:
    """From (0.9, 0) up to x_0 = 0.95 only: x_1 must come to 0.05."""
    assert closest([Family(plane, np.array([0.9, 0.0]), 0, high=0.95)]) == pytest.approx([0.05], rel=1e-3)


def test_distances_are_in_the_datas_units(make_network: Make) -> None:
    """The network sees x / std; its boundary is x_0 / 0.5 + x_1 / 0.25 = 3."""
    network = make_network((np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([3.0, 0.0])), name="scaled")
    family = Family(network, np.array([0.3, 0.3]), 0, std=STD)
    exact = (3 - 0.3 / 0.5 - 0.3 / 0.25) / (1 / 0.5 + 1 / 0.25)
    assert closest([family]) == pytest.approx([exact], rel=1e-3)


def test_nothing_is_found_where_there_is_nothing(make_network: Make) -> None:
    network = make_network((np.zeros((2, 2)), np.array([1.0, 0.0])), name="constant")
    assert closest([Family(network, np.array([0.5, 0.5]), 0)]) == [math.inf]
