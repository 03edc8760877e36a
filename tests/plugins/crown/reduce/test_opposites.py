"""One ReLU for two opposite neurons: the same function, the same bounds or better, the old graph's evidence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verifolio.graph import Conv, Dense, Graph, GraphBuilder, Relu
from verifolio.graph.exact import evaluate as exactly
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.reduce.opposites import merge_opposites
from verifolio.plugins.crown.search.root import bound_root
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.trial import sample, untrue
from verifolio.vnnlib import make_rows


def mirrored(rng: np.random.Generator, rows: int, pairs: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases of `rows` neurons, the last `pairs` opposite to some before, shuffled."""
    weight, bias = rng.normal(size=(rows - pairs, width)), rng.normal(size=rows - pairs)
    of = rng.permutation(rows - pairs)[:pairs]
    order = rng.permutation(rows)
    return np.r_[weight, -weight[of]][order], np.r_[bias, -bias[of]][order]


def dense(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(3)
    value = 0
    for width in (3, 8, 8):
        weight, bias = mirrored(rng, 8, 3, width)
        value = builder.add(Relu(8), builder.add(Dense(8, bias, weight), value))
    return builder.finish(builder.add(Dense(2, rng.normal(size=2), rng.normal(size=(2, 8))), value))


def conv(seed: int, groups: int = 1) -> Graph:
    rng = np.random.default_rng(seed)
    weight, bias = mirrored(rng, 4, 2, 2 // groups * 4)
    builder = GraphBuilder(18)
    layer = Conv(16, bias, weight.reshape(4, 2 // groups, 2, 2), (2, 3, 3), (4, 2, 2), groups=groups)
    value = builder.add(Relu(16), builder.add(layer, 0))
    return builder.finish(builder.add(Dense(2, rng.normal(size=2), rng.normal(size=(2, 16))), value))


@pytest.mark.parametrize("graph", [dense(0), dense(1), conv(0), conv(1), conv(2, groups=2)])
def test_computes_the_same_exactly(graph: Graph) -> None:
    small = merge_opposites(graph).graph
    domain = Domain(np.full(graph.input_size, -2.0), np.full(graph.input_size, 2.0))
    assert all(exactly(graph, x) == exactly(small, x) for x in sample(domain, 5))


def test_one_relu_per_pair() -> None:
    assert merge_opposites(dense(0)).graph.neurons == dense(0).neurons - 9
    assert merge_opposites(conv(0)).graph.neurons == 8


def test_channels_of_different_groups_are_no_opposites() -> None:
    """Equal numbers, but the second group reads other inputs."""
    weight = np.array([[[[1.0]]], [[[-1.0]]]])
    builder = GraphBuilder(2)
    layer = Conv(2, np.zeros(2), weight, (2, 1, 1), (2, 1, 1), groups=2)
    graph = builder.finish(builder.add(Relu(2), builder.add(layer, 0)))
    assert merge_opposites(graph).graph is graph


def test_inexact_weights_are_left_alone() -> None:
    builder = GraphBuilder(1)
    weight = np.array([[1.0], [-1.0]])
    layer = Dense(2, np.zeros(2), weight, np.full((2, 1), 1e-9))
    graph = builder.finish(builder.add(Relu(2), builder.add(layer, 0)))
    assert merge_opposites(graph).graph is graph


@pytest.mark.parametrize("graph", [dense(2), conv(3)])
def test_evidence_is_about_the_old_graph(graph: Graph) -> None:
    n = graph.input_size
    problem = Problem(graph, Domain(np.full(n, -1.0), np.ones(n)), (make_rows([({n: 1.0}, 0.0)]),))
    bounds = bound_root(problem, Space(torch.float32), Effort(steps=2), Budget(60.0)).root().bounds
    before = {graph.nodes[i].parents[0] for i in graph.relus}
    assert bounds is not None and bounds.graph == graph.sha256 and set(bounds.lower) == before
    assert all(len(bounds.lower[p]) == graph.nodes[p].op.size for p in before)
    assert not untrue(bounds, problem, sample(problem.domain, 300))


def test_an_identity_through_relus_costs_no_relaxation() -> None:
    """x = max(x, 0) - max(-x, 0), five layers deep: bounds alone prove |x - x| <= 0.001, each neuron alone cannot."""
    builder = GraphBuilder(2)
    both = np.array([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]])
    value = builder.add(Relu(4), builder.add(Dense(4, np.zeros(4), both), 0))
    for _ in range(4):
        value = builder.add(Relu(4), builder.add(Dense(4, np.zeros(4), both @ both.T / 2), value))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[1.0, -1.0, 0, 0]])), value))
    factor = exactly(graph, np.array([1.0, 0.0]))[0]
    rows = tuple(make_rows([({0: -s * float(factor), 2: s}, -0.001)]) for s in (1.0, -1.0))
    problem = Problem(graph, Domain(-np.ones(2), np.ones(2)), rows)
    outcome = Crown(CrownOptions(split="none")).run(problem, Context(Budget(20.0)))
    assert outcome.verdict is Verdict.UNSAT
