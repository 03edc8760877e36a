"""The reference itself: against exact arithmetic, exact minima, and values that functions take."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from verifolio.graph import Elementwise, Op, Product, Relu
from verifolio.model.problem import Ball, Domain
from verifolio.testing.generate import KINDS, Shape, generate
from verifolio.testing.networks import dense_graph
from verifolio.testing.realistic import NETWORKS, boxes
from verifolio.testing.reference import Reference, attained, enclosing_lines
from verifolio.testing.reference.lines import CURVATURE, evaluate
from verifolio.testing.reference.sets import least_over
from verifolio.testing.trial import evaluate as values_at
from verifolio.testing.trial import sample

PAIRS = [(Relu(40), 0.0), (Product(40), 0.0), *((Elementwise(40, f, 3.0), 2.5) for f in CURVATURE)]


@pytest.mark.parametrize(
    "name", ["mixture", "conv_groups", "conv_max_pool", "upsampled", "joined", "attention"]
)
def test_maps(name: str) -> None:
    """Matrices written out entry by entry compute what the graph computes."""
    graph = NETWORKS[name](np.random.default_rng(0))
    points = np.random.default_rng(1).normal(size=(5, graph.input_size))
    values = values_at(graph, points)
    for i, m in Reference(graph).maps.items():
        parents = [values[p] for p in graph.nodes[i].parents]
        found = m.bias + sum(x @ w.T for w, x in zip(m.matrices, parents, strict=True))
        assert np.allclose(found, values[i], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("op", "shift"), PAIRS, ids=lambda x: getattr(x, "function", type(x).__name__))
def test_lines(op: Op, shift: float) -> None:
    """Lines of any slope enclose the function, and touch it."""
    rng = np.random.default_rng(0)
    count = 2 if isinstance(op, Product) else 1
    inputs = [np.sort(rng.uniform(-2, 2, (2, 40)), axis=0) + shift for _ in range(count)]
    below, above = ([rng.normal(size=40) for _ in range(count)] for _ in range(2))
    lines = enclosing_lines(op, [(low, high) for low, high in inputs], below, above)
    share = [rng.uniform(size=(2000, 40)) for _ in range(count)]
    share = [
        np.concatenate([s, *(np.full((1, 40), e) for e in ends)])
        for s, ends in zip(share, ([0, 0, 1, 1], [0, 1, 0, 1]), strict=False)
    ]
    points = [low + (high - low) * s for (low, high), s in zip(inputs, share, strict=True)]
    value = evaluate(op, *points)
    under = value - sum(s * x for s, x in zip(below, points, strict=True)) - lines.floor
    over = sum(s * x for s, x in zip(above, points, strict=True)) + lines.ceiling - value
    assert (under >= 0).all() and (over >= 0).all()
    assert (under.min(0) <= 1e-2).all() and (over.min(0) <= 1e-2).all()


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_sets(norm: float) -> None:
    """The least value over a ball is attained on its surface, where the box does not cut it."""
    rng = np.random.default_rng(0)
    centre, rows = rng.normal(size=6), rng.normal(size=(5, 6))
    domain = Domain(centre - 9, centre + 9, ball=Ball(centre, 0.5, norm))
    directions = rng.normal(size=(20000, 6))
    corners = np.concatenate(
        [np.eye(6), -np.eye(6), [*product([-1.0, 1.0], repeat=6)], directions, rows, -rows]
    )
    ways = corners / np.linalg.norm(corners, ord=norm, axis=1, keepdims=True)
    assert np.allclose(least_over(domain, rows), ((centre + 0.5 * ways) @ rows.T).min(0), atol=1e-6)


def test_exact_arithmetic() -> None:
    """The bound of a small network in rationals lies between `low` and `high`."""
    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=s), rng.normal(size=s[0])) for s in ((5, 3), (4, 5), (2, 4))]
    graph, domain = dense_graph(weights), Domain(-np.ones(3) / 3, np.ones(3) / 7)
    reference = Reference(graph)
    bounded, rows = reference.crown(domain), rng.normal(size=(3, 2))
    found = reference.lower(domain, bounded.intervals, bounded.lines, {graph.output: rows})
    exact = np.vectorize(Fraction, otypes=[object])
    for k, row in enumerate(exact(rows)):
        constant = Fraction(0)
        for i in (5, 4, 3, 2, 1):
            if i % 2:
                weight, bias = weights[i // 2]
                constant, row = constant + row @ exact(bias), row @ exact(weight)
            else:
                own = bounded.lines[i]
                low = row > 0
                constant += (row * np.where(low, exact(own.floor), exact(own.ceiling))).sum()
                row = row * np.where(low, exact(own.below[0]), exact(own.above[0]))
        least = constant + (row * np.where(row > 0, exact(domain.lower), exact(domain.upper))).sum()
        assert Fraction(found.low[k]) <= least <= Fraction(found.high[k])


@pytest.mark.parametrize("kind", KINDS)
def test_exact_minima(kind: str) -> None:
    """Below the true minimum of small networks; and what is attained is above it."""
    for seed in range(4):
        made = generate(np.random.default_rng(seed), Shape(kind, inputs=4 if kind == "conv" else 2), 0.25)  # type: ignore[arg-type]
        problem, graph = made.problem, made.problem.graph
        rows = np.random.default_rng(seed).normal(size=(3, graph.output_size))
        reference = Reference(graph)
        bounded = reference.crown(problem.domain)
        bound = reference.lower(problem.domain, bounded.intervals, bounded.lines, {graph.output: rows})
        values = values_at(graph, sample(problem.domain, 500))[graph.output] @ rows.T
        assert (bound.low <= values.min(0)).all() and (bound.early <= values.min(0)).all()
        assert (bound.low <= attained(graph, problem.domain, rows)).all()


def test_deep_networks() -> None:
    """Intervals, backward and forward bounds of every node hold what points attain."""
    graph = NETWORKS["residual"](np.random.default_rng(0))
    domain = boxes(np.random.default_rng(0), graph.input_size, (0.2,))[0]
    reference, values = Reference(graph), values_at(graph, sample(domain))
    bounded = reference.crown(domain)
    for found in (reference.intervals(domain), bounded.intervals, reference.forward_linear(domain, bounded)):
        for i, (low, high) in found.items():
            assert (values[i] >= low - 1e-12).all() and (values[i] <= high + 1e-12).all()
