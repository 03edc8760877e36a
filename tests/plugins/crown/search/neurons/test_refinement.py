"""Intermediate bounds by splitting: true, never worse, better where it counts, and over in time."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.model.problem import Domain, Problem
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.neurons import refinement as module
from verifolio.plugins.crown.search.neurons.refinement import Refinement, refine_bounds
from verifolio.plugins.crown.search.root import RootBounds, bound_root
from verifolio.run.budget import Budget
from verifolio.testing.generate import KINDS, Shape, random_graph
from verifolio.testing.trial import sample, untrue
from verifolio.vnnlib import make_rows

EFFORT = Effort(steps=2)


def bounded(
    seed: int, kind: str = "dense", width: int = 12, dtype: torch.dtype = torch.float32
) -> RootBounds:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, Shape(kind, inputs=6, width=width, depth=4, outputs=2))  # type: ignore[arg-type]
    centre = rng.normal(size=6)
    problem = Problem(graph, Domain(centre - 0.5, centre + 0.5), (make_rows([({6: 1.0}, 1e3)]),))
    return bound_root(problem, Space(dtype), EFFORT, Budget(60.0))


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTHWHILE", -1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cores", [1, 2])
def test_bounds_are_true_and_no_worse(kind: str, cores: int) -> None:
    for seed in range(3):
        root_bounds = bounded(seed, kind)
        before = dict(root_bounds.known)
        assert refine_bounds(root_bounds, 4, EFFORT, Budget(60.0, cores=cores)) == Refinement()
        for node, (low, high) in root_bounds.known.items():
            assert bool((low >= before[node][0] - 1e-6).all()) and bool(
                (high <= before[node][1] + 1e-6).all()
            )
        bounds = root_bounds.root().bounds
        assert bounds is not None
        points = sample(root_bounds.problem.domain, 1000, seed)
        assert not untrue(bounds, root_bounds.problem, points)


def test_bounds_approach_the_exact_range() -> None:
    """With rounds enough for every phase the last layer's ranges are those that sampling almost reaches."""
    shallow, deep = bounded(5), bounded(5)
    refine_bounds(shallow, 0, EFFORT, Budget(60.0))
    refine_bounds(deep, 12, EFFORT, Budget(60.0))

    def width(root_bounds: RootBounds) -> float:
        last = max(root_bounds.known)
        low, high = root_bounds.known[last]
        open_ = (low < 0) & (high > 0)
        return float((high - low)[open_].sum())

    assert width(deep) < 0.8 * width(shallow)


def test_it_ends_in_time_and_says_so() -> None:
    root_bounds = bounded(0, width=150)
    start = time.monotonic()
    assert not refine_bounds(root_bounds, 40, EFFORT, Budget(0.3)).in_time
    assert time.monotonic() - start < 5.0
    bounds = root_bounds.root().bounds
    assert bounds is not None and not untrue(
        bounds, root_bounds.problem, sample(root_bounds.problem.domain, 200)
    )


def test_it_breaks_off_where_the_first_neurons_gain_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTHWHILE", 1.0)
    assert refine_bounds(bounded(0), 4, EFFORT, Budget(60.0)) == Refinement(gained=False)


def test_a_layer_without_unstable_neurons_has_nothing_to_gain() -> None:
    builder = GraphBuilder(1)
    value = 0
    for bias in (0.0, 10.0, 0.0):
        rows = np.array([[1.0], [-1.0]]) if value == 0 else np.array([[1.0, -0.5], [-0.5, 1.0]])
        value = builder.add(Relu(2), builder.add(Dense(2, np.full(2, bias), rows), value))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[1.0, -1.0]])), value))
    problem = Problem(graph, Domain(-np.ones(1), np.ones(1)), (make_rows([({1: 1.0}, 0.0)]),))
    root_bounds = bound_root(problem, Space(torch.float32), EFFORT, Budget(60.0))
    assert refine_bounds(root_bounds, 3, EFFORT, Budget(60.0)) == Refinement()
