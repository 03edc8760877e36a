"""Bounds of every neuron and row contain what networks compute: all operators, both precisions, boxes and balls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from verifolio.graph import (
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Graph,
    GraphBuilder,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
)
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugins.crown.bounder import AlphaBounder, CrownBounder, IntervalBounder
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region
from verifolio.testing.generate import KINDS, Shape, generate
from verifolio.testing.trial import evaluate, sample, untrue
from verifolio.vnnlib import make_rows

N = 8
Make = Callable[[np.random.Generator, GraphBuilder], int]


def dense(rng: np.random.Generator, builder: GraphBuilder, node: int, size: int) -> int:
    inputs = builder.nodes[node].op.size
    weight = rng.normal(size=(size, inputs)) / np.sqrt(inputs)
    return builder.add(Dense(size, rng.normal(size=size) * 0.3, weight), node)


def _dense(rng: np.random.Generator, b: GraphBuilder) -> int:
    return b.add(Relu(7), dense(rng, b, b.add(Relu(9), dense(rng, b, 0, 9)), 7))


def _conv(rng: np.random.Generator, b: GraphBuilder) -> int:
    """Strides that do not divide, uneven pads, groups, dilation."""
    first = Conv(
        4 * 3 * 2,
        rng.normal(size=4),
        rng.normal(size=(4, 1, 2, 2)),
        (1, 2, 4),
        (4, 3, 2),
        (1, 2),
        (1, 0, 1, 0),
    )
    node = b.add(Relu(24), b.add(first, 0))
    second = Conv(
        2 * 3 * 2,
        rng.normal(size=2),
        rng.normal(size=(2, 2, 2, 2)),
        (4, 3, 2),
        (2, 3, 2),
        (1, 1),
        (1, 1, 1, 1),
        (2, 2),
        2,
    )
    return b.add(Relu(12), b.add(second, node))


def _transposed(rng: np.random.Generator, b: GraphBuilder) -> int:
    op = Conv(
        3 * 5 * 9,
        rng.normal(size=3),
        rng.normal(size=(1, 3, 3, 3)),
        (1, 2, 4),
        (3, 5, 9),
        (2, 2),
        transposed=True,
    )
    return b.add(Relu(135), b.add(op, 0))


def _residual(rng: np.random.Generator, b: GraphBuilder) -> int:
    first = b.add(Relu(6), dense(rng, b, 0, 6))
    second = b.add(Relu(6), dense(rng, b, first, 6))
    return b.add(Relu(6), b.add(Sum(6, (1.0, -2.0, 1.0)), first, second, dense(rng, b, 0, 6)))


def _max(rng: np.random.Generator, b: GraphBuilder) -> int:
    """max(a, b) = relu(a - b) + b, by selection."""
    node = dense(rng, b, 0, 12)
    a, c = (b.add(Select(6, np.arange(k, 12, 2)), node) for k in (0, 1))
    return b.add(Sum(6, (1.0, 1.0)), b.add(Relu(6), b.add(Sum(6, (1.0, -1.0)), a, c)), c)


def _copies(rng: np.random.Generator, b: GraphBuilder) -> int:
    """Sparse sums, holes, copies, constants side by side."""
    weight = rng.normal(size=(5, N)) * (rng.random((5, N)) < 0.4)
    pooled = b.add(Relu(5), b.add(Sparse(5, rng.normal(size=5), csr_array(weight)), 0))
    picked = b.add(Select(7, np.array([4, 4, -1, 0, 4, 2, -1])), pooled)
    fixed = b.add(Constant(2, rng.normal(size=2), np.full(2, 1e-9)))
    both = b.add(Concat(9), picked, fixed)
    return b.add(Relu(9), b.add(Scale(9, rng.normal(size=9), rng.normal(size=9)), both))


def _products(rng: np.random.Generator, b: GraphBuilder) -> int:
    one, two = dense(rng, b, 0, 5), b.add(Elementwise(5, "sigmoid"), dense(rng, b, 0, 5))
    gate = b.add(Product(5), one, two)
    return b.add(Sum(5, (1.0, 1.0)), gate, b.add(Product(5), gate, gate))


def _inexact(rng: np.random.Generator, b: GraphBuilder) -> int:
    """Stored weights and biases that are off by as much as they say."""
    weight, bias = rng.normal(size=(6, N)), rng.normal(size=6)
    error, shift = np.abs(rng.normal(size=(6, N))) * 1e-3, np.abs(rng.normal(size=6)) * 1e-3
    return b.add(Relu(6), b.add(Dense(6, bias, weight, error, shift), 0))


def _smooth(name: str) -> Make:
    def make(rng: np.random.Generator, b: GraphBuilder) -> int:
        node = b.add(Elementwise(6, "sigmoid"), dense(rng, b, 0, 6))
        node = b.add(Scale(6, np.full(6, 0.25), np.full(6, 1.5)), node)  # into (0.25, 1.75): legal for all
        return b.add(Elementwise(6, name, 3.0 if name == "pow" else 0.0), node)

    return make


FUNCTIONS = ("cos", "erf", "exp", "log", "pow", "reciprocal", "sigmoid", "sin", "softplus", "sqrt", "tanh")
MAKES: dict[str, Make] = {
    "dense": _dense,
    "conv": _conv,
    "transposed": _transposed,
    "residual": _residual,
    "max": _max,
    "copies": _copies,
    "products": _products,
    **{name: _smooth(name) for name in FUNCTIONS},
}


EFFORTS = (
    Effort(tighten=False),
    Effort(),
    Effort(tighten=False, forward=True),
    Effort(forward=True),
    Effort(steps=2),
)
CASES = [(name, r) for name in MAKES if name not in FUNCTIONS for r in (1e-7, 0.5)]
CASES += [(name, 0.5) for name in FUNCTIONS]


def network(name: str, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(N)
    return builder.finish(dense(rng, builder, MAKES[name](rng, builder), 3))


def domains(seed: int, radius: float) -> dict[str, Domain]:
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=N)
    low, high = centre - radius, centre + radius
    low[3] = high[3] = centre[3]  # a flat side
    balls = {p: Domain(low, high, ball=Ball(centre, 0.9 * radius, p)) for p in (1.0, 2.0, np.inf)}
    return {"box": Domain(low, high), **{f"L{p:g}": d for p, d in balls.items()}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "radius"), CASES)
def test_every_node_and_row(name: str, dtype: torch.dtype, radius: float) -> None:
    graph = network(name)
    space = Space(dtype)
    program = Program(graph, space)
    rows = np.random.default_rng(1).normal(size=(4, 3))
    for domain in domains(2, radius).values():
        region = Region.of([domain], space)
        values = evaluate(graph, sample(domain, 100))
        for effort in EFFORTS[: 3 if name in FUNCTIONS else 5]:
            with torch.no_grad():
                state = intermediate_bounds(program, region, effort)
                bound = program.lower(state, graph.output, space.tensor(rows)[None])[0].double().numpy()
            for node, (low, high) in state.interval.items():
                slack = 1e-13 * (1 + np.abs(values[node]).max())
                assert (values[node] >= low[0].double().numpy() - slack).all()
                assert (values[node] <= high[0].double().numpy() + slack).all()
            assert (values[graph.output] @ rows.T >= bound - 1e-12).all()
            assert np.isfinite(bound).all()


@pytest.mark.parametrize("maker", [IntervalBounder, CrownBounder, AlphaBounder])
@pytest.mark.parametrize("kind", KINDS)
def test_exact_minimum_is_not_exceeded(maker: type[IntervalBounder], kind: str) -> None:
    """Against all linear regions: the margin of one row is at most its true minimum."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shape = Shape(kind, inputs=4 if kind == "conv" else 2, depth=1 + seed % 2)  # type: ignore[arg-type]
        made = generate(rng, shape, 0.25)
        if made.margin is None:
            continue
        bounds = maker().bound([made.problem])[0]
        assert float(bounds.margins_of(made.problem)[0][0]) <= made.margin + 1e-7
        assert not untrue(bounds, made.problem, sample(made.problem.domain))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stored_errors_are_believed(dtype: torch.dtype) -> None:
    """Whatever weights lie within the stated errors, the bounds hold."""
    rng = np.random.default_rng(5)
    builder = GraphBuilder(N)
    graph = builder.finish(_inexact(rng, builder))
    op = graph.nodes[1].op
    assert isinstance(op, Dense) and op.weight_error is not None and op.bias_error is not None
    domain = Domain(-np.ones(N), np.ones(N))
    program = Program(graph, Space(dtype))
    state = intermediate_bounds(program, Region.of([domain], program.space), Effort())
    with torch.no_grad():
        bound = program.lower(state, 1, torch.eye(6, dtype=dtype)[None])[0].double().numpy()
    for _ in range(50):
        signs = np.sign(rng.normal(size=op.weight.shape))
        weight, bias = op.weight + signs * op.weight_error, op.bias - op.bias_error
        least = bias - np.abs(weight).sum(1)
        assert (least >= bound).all()
        assert (least >= state.interval[1][0][0].double().numpy()).all()


def test_forward_bounds_beat_intervals_and_agree_on_affine_networks() -> None:
    """On what is affine, forms lose nothing; elsewhere they are no wider than intervals, mostly far narrower."""
    domain = domains(1, 0.3)["box"]
    for name in ("dense", "conv", "residual"):
        graph = network(name)
        program = Program(graph, Space(torch.float64))
        region = Region.of([domain], program.space)
        plain, linear = (
            intermediate_bounds(program, region, Effort(tighten=False, forward=f)) for f in (False, True)
        )
        widths = [
            float((high - low).sum()) for low, high in (s.interval[graph.output] for s in (plain, linear))
        ]
        assert widths[1] < 0.8 * widths[0]
    builder = GraphBuilder(N)
    rng = np.random.default_rng(0)
    graph = builder.finish(dense(rng, builder, dense(rng, builder, 0, 20), 1))
    program = Program(graph, Space(torch.float64))
    state = intermediate_bounds(
        program, Region.of([domain], program.space), Effort(tighten=False, forward=True)
    )
    low, high = state.interval[graph.output]
    first, second = (node.op.weight for node in graph.nodes[1:3])  # type: ignore[attr-defined]
    truth = np.abs(second @ first) @ (domain.upper - domain.lower)
    assert float(high - low) == pytest.approx(float(truth[0]))


def test_known_bounds_of_another_domain_are_not_used() -> None:
    graph = network("dense")
    rows = (make_rows([({N: 1.0}, 0.0)]),)
    small, large = (Problem(graph, domains(0, r)["box"], rows) for r in (0.01, 1.0))
    bounder = CrownBounder()
    known = bounder.bound([small])[0]
    alone, helped = bounder.bound([large])[0], bounder.bound([large], known=known)[0]
    for node in alone.lower:
        assert np.array_equal(alone.lower[node], helped.lower[node])


def test_point_is_nearly_exact() -> None:
    for name in ("dense", "conv", "transposed", "residual", "max", "copies"):
        graph = network(name)
        x = np.random.default_rng(3).normal(size=N)
        problem = Problem(graph, Domain(x, x), (make_rows([({N: 1.0}, 0.0)]),))
        truth = evaluate(graph, x[None])[graph.output][0, 0]
        assert abs(float(CrownBounder().bound([problem])[0].margins_of(problem)[0][0]) - truth) < 1e-9


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_dual_norm_beats_the_box(norm: float) -> None:
    """min w x over a ball is -|w|* r exactly; the box around the ball is far worse."""
    w = np.random.default_rng(0).normal(size=N)
    builder = GraphBuilder(N)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), w[None]), 0))
    domain = Domain(np.full(N, -9.0), np.full(N, 9.0), ball=Ball(np.zeros(N), 0.5, norm))
    problem = Problem(graph, domain, (make_rows([({N: 1.0}, 0.0)]),))
    truth = -0.5 * (np.abs(w).max() if norm == 1 else np.linalg.norm(w))
    found = float(CrownBounder().bound([problem])[0].margins_of(problem)[0][0])
    assert truth - 1e-9 <= found <= truth


def test_float32_centres_move_the_ball_outward() -> None:
    centre = np.full(N, 0.1)  # no float32
    domain = Domain(np.zeros(N), np.ones(N), ball=Ball(centre, 1e-9, 2.0))
    region = Region.of([domain], Space(torch.float32))
    assert region.balls is not None
    moved = np.linalg.norm(region.balls.centre[0].double().numpy() - centre)
    assert float(region.balls.radius[0]) >= 1e-9 + moved
