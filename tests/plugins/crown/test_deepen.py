"""Intermediate bounds by splitting: true, never worse, better where it counts, and over in time."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.model.problem import Domain, Problem
from verifolio.plugins.crown import deepen as module
from verifolio.plugins.crown.deepen import Deepened, deepen
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.root import Trunk, plant
from verifolio.plugins.crown.sweep import Effort
from verifolio.run.budget import Budget
from verifolio.testing.generate import KINDS, Shape, random_graph
from verifolio.testing.trial import sample, untrue
from verifolio.vnnlib import make_rows

EFFORT = Effort(steps=2)


def planted(seed: int, kind: str = "dense", width: int = 12, dtype: torch.dtype = torch.float32) -> Trunk:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, Shape(kind, inputs=6, width=width, depth=4, outputs=2))  # type: ignore[arg-type]
    centre = rng.normal(size=6)
    problem = Problem(graph, Domain(centre - 0.5, centre + 0.5), (make_rows([({6: 1.0}, 1e3)]),))
    return plant(problem, Space(dtype), EFFORT, Budget(60.0))


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTHWHILE", -1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cores", [1, 2])
def test_bounds_are_true_and_no_worse(kind: str, cores: int) -> None:
    for seed in range(3):
        trunk = planted(seed, kind)
        before = dict(trunk.known)
        assert deepen(trunk, 4, EFFORT, Budget(60.0, cores=cores)) == Deepened()
        for node, (low, high) in trunk.known.items():
            assert bool((low >= before[node][0] - 1e-6).all()) and bool(
                (high <= before[node][1] + 1e-6).all()
            )
        bounds = trunk.root().bounds
        assert bounds is not None
        points = sample(trunk.problem.domain, 1000, seed)
        assert not untrue(bounds, trunk.problem, points)


def test_bounds_approach_the_exact_range() -> None:
    """With rounds enough for every phase the last layer's ranges are those that sampling almost reaches."""
    shallow, deep = planted(5), planted(5)
    deepen(shallow, 0, EFFORT, Budget(60.0))
    deepen(deep, 12, EFFORT, Budget(60.0))

    def width(trunk: Trunk) -> float:
        last = max(trunk.known)
        low, high = trunk.known[last]
        open_ = (low < 0) & (high > 0)
        return float((high - low)[open_].sum())

    assert width(deep) < 0.8 * width(shallow)


def test_it_ends_in_time_and_says_so() -> None:
    trunk = planted(0, width=150)
    start = time.monotonic()
    assert not deepen(trunk, 40, EFFORT, Budget(0.3)).in_time
    assert time.monotonic() - start < 5.0
    bounds = trunk.root().bounds
    assert bounds is not None and not untrue(bounds, trunk.problem, sample(trunk.problem.domain, 200))


def test_it_breaks_off_where_the_first_neurons_gain_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTHWHILE", 1.0)
    assert deepen(planted(0), 4, EFFORT, Budget(60.0)) == Deepened(gained=False)


def test_a_layer_without_unstable_neurons_has_nothing_to_gain() -> None:
    builder = GraphBuilder(1)
    value = 0
    for bias in (0.0, 10.0, 0.0):
        rows = np.array([[1.0], [-1.0]]) if value == 0 else np.array([[1.0, -0.5], [-0.5, 1.0]])
        value = builder.add(Relu(2), builder.add(Dense(2, np.full(2, bias), rows), value))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[1.0, -1.0]])), value))
    problem = Problem(graph, Domain(-np.ones(1), np.ones(1)), (make_rows([({1: 1.0}, 0.0)]),))
    trunk = plant(problem, Space(torch.float32), EFFORT, Budget(60.0))
    assert deepen(trunk, 3, EFFORT, Budget(60.0)) == Deepened()
