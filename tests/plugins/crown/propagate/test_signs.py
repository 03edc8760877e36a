"""Values that no input makes negative: claimed only where they are, and seen where a ReLU was split in two layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verifolio.graph import Dense, Graph, GraphBuilder, Relu, Select, Sum
from verifolio.model.problem import Domain
from verifolio.plugins.crown.optimise.intermediate import intermediate_bounds
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.signs import never_negative
from verifolio.plugins.crown.reduce.opposites import merge_opposites
from verifolio.testing.trial import evaluate


def signed(seed: int, size: int = 40) -> Graph:
    """A ReLU, some of its entries and noughts, and rows of few weights of any sign with any bias."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(6)
    first = builder.add(Dense(size, rng.normal(size=size), rng.normal(size=(size, 6))), 0)
    active = builder.add(Relu(size), first)
    before = active if seed % 2 else first
    some = builder.add(Select(size, rng.integers(-1, size, size)), before)
    weight = np.where(rng.random((3 * size, size)) < 0.05, rng.normal(size=(3 * size, size)) + 0.8, 0.0)
    bias = np.where(rng.random(3 * size) < 0.5, 0.0, rng.normal(size=3 * size) * 0.2)
    last = builder.add(Dense(3 * size, bias, weight), some)
    return builder.finish(builder.add(Relu(3 * size), last))


@pytest.mark.parametrize("seed", range(8))
def test_no_value_that_becomes_negative(seed: int) -> None:
    graph = signed(seed)
    points = np.random.default_rng(1).normal(size=(4000, 6)) * 5
    claimed, values = never_negative(graph), evaluate(graph, points)
    for node, entries in claimed.items():
        assert (values[node][:, entries] >= 0).all()
    if seed % 2:  # one weight or none, positive, and no negative bias: these are plain to see
        weight, bias = graph.nodes[4].op.weight, graph.nodes[4].op.bias  # type: ignore[attr-defined]
        plain = (weight >= 0).all(1) & (bias >= 0)
        assert plain.any() and np.isin(np.flatnonzero(plain), claimed[4]).all()


def summed(factors: tuple[float, float]) -> Graph:
    """Positive weights over a sum of two layers of ReLUs."""
    rng, builder = np.random.default_rng(0), GraphBuilder(6)
    parts = [builder.add(Dense(9, rng.normal(size=9), rng.normal(size=(9, 6))), 0) for _ in factors]
    total = builder.add(Sum(9, factors), *(builder.add(Relu(9), part) for part in parts))
    return builder.finish(builder.add(Dense(9, np.zeros(9), rng.uniform(0, 1, (9, 9))), total))


def test_a_difference_of_relus_may_be_negative() -> None:
    both, difference = summed((1.0, 2.0)), summed((1.0, -2.0))
    assert never_negative(both)[both.output].tolist() == list(range(9))
    assert never_negative(difference) == {}


def test_copies_behind_a_split_relu_are_stable() -> None:
    """Neurons that are split in two and put together again, beside others that are passed on."""
    rng, size, half = np.random.default_rng(3), 60, 12
    weight, bias = rng.normal(size=(size, 30)), rng.normal(size=size)
    builder = GraphBuilder(30)
    twice = np.r_[weight, -weight[:half]], np.r_[bias, -bias[:half]]
    first = builder.add(Relu(size + half), builder.add(Dense(size + half, twice[1], twice[0]), 0))
    join = np.eye(size, size + half)
    join[np.arange(half), size + np.arange(half)] = -1.0
    shift = np.where(np.arange(size) < half, 0.1, 0.0)
    second = builder.add(Dense(size, shift, join), first)
    graph = builder.finish(builder.add(Relu(size), second))
    for rewritten in (graph, merge_opposites(graph).graph):
        program = Program(rewritten, Space(torch.float32))
        region = Region.of([Domain(-np.ones(30), np.ones(30))], program.space)
        state = intermediate_bounds(program, region)
        node = rewritten.nodes[rewritten.relus[-1]].parents[0]
        low, high = state.interval[node]
        assert bool((low[0, half:] == 0).all()) and bool((low[0, :half] < 0).any())
        points = rng.uniform(-1, 1, (500, 30))
        values = evaluate(rewritten, points)[node]
        assert (values >= low[0].double().numpy()).all() and (values <= high[0].double().numpy()).all()
