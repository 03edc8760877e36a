"""Bounds of chains of dense layers, box by box: true, as tight as on any graph, the same in any batch."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
import torch

from verifolio.graph import Dense, Graph, GraphBuilder, Relu, Scale, Sum
from verifolio.graph.module import GraphModule
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.bounder import CrownBounder
from verifolio.plugins.crown.optimise import intermediate
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.chain import alike, is_chain
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.relu import ReluRelaxation
from verifolio.plugins.crown.propagate.tables import Columns
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.attained import attained, double_above, row_value
from verifolio.testing.generate import Shape, generate
from verifolio.testing.trial import evaluate, sample, untrue
from verifolio.vnnlib import make_rows

Split = Literal["auto", "neuron", "none"]
RADII = (1e-7, 1e-3, 0.05, 0.2, 1.0)
N = 20


KINDS = ("plain", "before", "after", "clip", "both")


def network(seed: int, sizes: tuple[int, ...] = (N, 30, 25, 30, 3), kind: str = "plain") -> Graph:
    """Dense layers and ReLUs, with scalings in all the places where networks have them.

    "before": of the input and before every ReLU, with two dense layers in a row; "after": after every other ReLU, as
    batch normalisation is; "clip": every other ReLU is one of two with a scaling in between, as Clip becomes; "both".
    """
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(sizes[0])

    def scale(node: int, size: int, weight: np.ndarray | None = None, bias: float | None = None) -> int:
        made = rng.normal(size=size) if bias is None else np.full(size, bias)
        return builder.add(Scale(size, made, rng.normal(size=size) if weight is None else weight), node)

    node = scale(0, N) if kind == "before" else 0
    for k in range(1, len(sizes)):
        size = sizes[k]
        weight = rng.normal(size=(size, sizes[k - 1])) * np.sqrt(2.0 / sizes[k - 1])
        node = builder.add(Dense(size, rng.normal(size=size) * 0.3, weight), node)
        if k + 1 == len(sizes):
            break
        if kind == "before":
            node = scale(node, size)
        if not (kind == "before" and k == 2):
            node = builder.add(Relu(size), node)
        odd = (k + seed) % 2 == 1
        if (kind == "clip" and odd) or kind == "both":
            node = builder.add(Relu(size), scale(node, size, np.full(size, -1.0), 0.7))
        if (kind == "after" and odd) or kind == "both":
            node = scale(node, size)
    return builder.finish(node)


def domains(seed: int, radii: tuple[float, ...] = RADII) -> list[Domain]:
    centres = np.random.default_rng(seed).normal(size=(len(radii), N))
    return [Domain(c - r, c + r) for c, r in zip(centres, radii, strict=True)]


def common(program: Program, region: Region, monkeypatch: pytest.MonkeyPatch) -> State:
    """The intermediate bounds as on any other graph."""
    with monkeypatch.context() as patch:
        patch.setattr(intermediate, "is_chain", lambda program: False)
        return intermediate_bounds(program, region, Effort())


def margins(program: Program, state: State) -> torch.Tensor:
    rows = torch.eye(3, dtype=program.space.dtype)
    return program.lower(state, program.graph.output, torch.cat([rows, -rows])[None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_and_are_as_tight(
    seed: int, kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled values lie inside; on neurons that are not nought nothing is lost but rounding."""
    graph, boxes = network(seed, kind=kind), domains(seed)
    program = Program(graph, Space(dtype))
    assert is_chain(program)
    region = Region.of(boxes, program.space)
    with torch.no_grad():
        found = intermediate_bounds(program, region, Effort())
        ours = margins(program, found).double()
    slack = 1e-4 if dtype is torch.float32 else 1e-11
    for k, box in enumerate(boxes):
        values = evaluate(graph, sample(box, 100))
        with torch.no_grad():
            expected = common(program, region.select(torch.tensor([k])), monkeypatch)
            theirs = margins(program, expected)[0].double()
        for node in program.before:
            low, high = (t[k].double() for t in found.interval[node])
            old_low, old_high = (t[0].double() for t in expected.interval[node])
            room = 1e-13 * (1 + np.abs(values[node]).max())
            assert (values[node] >= low.numpy() - room).all() and (values[node] <= high.numpy() + room).all()
            size = slack * (1 + old_high.abs() + old_low.abs())
            assert torch.equal((high > 0) & (low < 0), (old_high > 0) & (old_low < 0))
            assert (((high <= old_high + size) & (low >= old_low - size)) | (high <= 0)).all()
        assert (values[graph.output].min(0) >= ours[k, :3].numpy() - 1e-12).all()
        assert (ours[k] >= theirs - slack * (1 + theirs.abs())).all()


@pytest.mark.parametrize("kind", KINDS)
def test_batch_is_as_good_as_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the boxes are grouped with, in groups of any size."""
    graph = network(5, kind=kind)
    boxes = [d for seed in range(4) for d in domains(seed)]
    rows = (make_rows([({N: 1.0, N + 1: -1.0}, 0.0), ({N: 1.0}, 0.0)]),)
    problems = [Problem(graph, d, rows) for d in boxes]
    single = [CrownBounder().bound([p])[0] for p in problems]
    for elements in (1, 1000, 1 << 18):
        monkeypatch.setattr("verifolio.plugins.crown.propagate.chain.ELEMENTS", elements)
        for problem, one, many in zip(problems, single, CrownBounder().bound(problems), strict=True):
            assert np.allclose(
                one.margins_of(problem)[0], many.margins_of(problem)[0], rtol=1e-10, atol=1e-10
            )
            for node in one.lower:
                assert np.allclose(one.lower[node], many.lower[node], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_margins_are_not_above_what_a_descent_attains(kind: str) -> None:
    """On wide networks with wide boxes, where most of a bound is slack, only the minimum shows that it is wrong."""
    rows = (make_rows([({N: 1.0, N + 1: -1.0}, 0.0)]),)
    for seed in range(6):
        graph, boxes = network(seed, (N, 40, 40, 40, 2), kind), domains(seed, (3.0, 0.5, 0.1, 0.1, 0.05))
        problems = [Problem(graph, d, rows) for d in boxes]
        for problem, found in zip(problems, CrownBounder().bound(problems), strict=True):
            assert found.least_margin(problem) <= descend(graph, problem.domain) + 1e-9


def descend(graph: Graph, box: Domain) -> float:
    """The least difference of the two outputs that projected gradients reach from corners of a box."""
    module, low, high = GraphModule(graph, torch.float64), torch.tensor(box.lower), torch.tensor(box.upper)
    corners = torch.rand(32, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) < 0.5
    x, best = torch.where(corners, low, high), np.inf
    for _ in range(30):
        x.requires_grad_(True)
        value = module(x) @ torch.tensor([1.0, -1.0], dtype=torch.float64)
        best = min(best, float(value.detach().min()))
        (gradient,) = torch.autograd.grad(value.sum(), x)
        x = (x.detach() - 0.2 * (high - low) * gradient.sign()).clamp(low, high)
    return best


@pytest.mark.parametrize("kind", ["after", "clip", "both"])
def test_a_batch_of_sizes_claims_no_more_than_is_attained(kind: str) -> None:
    """Where a table of the group is in another order than the rows of a box, nothing crashes: it is wrong."""
    rows = (make_rows([({N: 1.0, N + 1: -1.0}, 0.0)]),)
    for seed in range(8):
        graph = network(seed, (N, 40, 40, 40, 2), kind)
        boxes = domains(seed, (3.0, 0.1, 0.1, 0.05))
        problems = [Problem(graph, d, rows) for d in boxes]
        for problem, found in zip(problems, CrownBounder().bound(problems), strict=True):
            assert found.least_margin(problem) <= descend(graph, problem.domain) + 1e-9


@pytest.mark.parametrize("split", ["auto", "neuron", "none"])
@pytest.mark.parametrize(("seed", "width"), [(54, 3), (10, 6), (0, 3), (2, 6)])
def test_a_threshold_that_a_point_attains_is_not_refuted(seed: int, width: int, split: Split) -> None:
    """Two small networks whose margins were 0.2 too large, and two others; the least value of a grid, exactly."""
    graph, box = network(seed, (2, width, width, 2), "clip"), Domain(np.zeros(2), np.full(2, 2.0))
    points = np.stack(np.meshgrid(*[np.linspace(0.0, 2.0, 33)] * 2), -1).reshape(-1, 2)
    outputs = evaluate(graph, points)[graph.output]
    x = points[int((outputs[:, 0] - outputs[:, 1]).argmin())]
    (row,) = make_rows([({2: 1.0, 3: -1.0}, 0.0)]).linear_rows()
    least = double_above(row_value(row, x, attained(graph, x)[graph.output])[1])
    problem = Problem(graph, box, (make_rows([({2: 1.0, 3: -1.0}, least)]),))
    found = Crown(CrownOptions(split=split)).run(problem, Context(Budget(0.5), Evidence(attacked=True)))
    assert found.verdict is not Verdict.UNSAT


def test_exact_minima_are_not_exceeded() -> None:
    for seed in range(8):
        made = generate(np.random.default_rng(seed), Shape("dense", depth=2 + seed % 2, width=4), 0.25)
        bounds = CrownBounder().bound([made.problem])[0]
        assert not untrue(bounds, made.problem, sample(made.problem.domain))
        if made.margin is not None:
            assert float(bounds.margins_of(made.problem)[0][0]) <= made.margin + 1e-8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [0.0, 1e-7, 0.1])
def test_exact_values_with_rounding_at_its_worst(dtype: torch.dtype, radius: float) -> None:
    """Sums of one and of many numbers that vanish beside it; truths are computed in fractions."""
    lost = 2.0**-25 if dtype is torch.float32 else 2.0**-54
    n = 512
    fading = np.concatenate([[1.0], np.full(n - 1, lost)])
    builder = GraphBuilder(2)
    first = builder.add(Dense(n, np.zeros(n), np.stack([fading, -fading * 0.5], 1)), 0)
    hidden = builder.add(Relu(n), first)
    weight = np.stack([np.ones(n), -np.ones(n), fading[::-1]])
    second = builder.add(Dense(3, np.array([-1.0, 1.0, -lost]), weight), hidden)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 3))), builder.add(Relu(3), second)))
    program = Program(graph, Space(dtype))
    box = Domain(np.array([1.0 - radius, 1.0 - radius]), np.array([1.0 + radius, 1.0 + radius]))
    with torch.no_grad():
        found = intermediate_bounds(program, Region.of([box], program.space), Effort())
    low, high = (t[0].double().numpy() for t in found.interval[second])
    for x in ((a, b) for a in (box.lower[0], box.upper[0]) for b in (box.lower[1], box.upper[1])):
        inner = Fraction(x[0]) - Fraction(x[1]) / 2
        assert inner > 0
        for k in range(3):
            value = sum(Fraction(w) * Fraction(f) for w, f in zip(weight[k], fading, strict=True)) * inner
            value += Fraction((-1.0, 1.0, -lost)[k])
            assert Fraction(low[k]) <= value <= Fraction(high[k])


def test_stored_errors_are_believed() -> None:
    """Whatever weights lie within the stated errors, the bounds hold."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder(3)
    w1, w2 = rng.normal(size=(6, 3)), rng.normal(size=(4, 6))
    e1, e2 = np.full((6, 3), 1e-2), np.full((4, 6), 1e-2)
    first = builder.add(Relu(6), builder.add(Dense(6, np.zeros(6), w1, e1, np.full(6, 1e-3)), 0))
    second = builder.add(Dense(4, np.zeros(4), w2, e2, np.full(4, 1e-3)), first)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 4))), builder.add(Relu(4), second)))
    program = Program(graph, Space(torch.float64))
    box = Domain(-np.ones(3), np.ones(3))
    found = intermediate_bounds(program, Region.of([box], program.space), Effort())
    low, high = (t[0].numpy() for t in found.interval[second])
    for _ in range(50):
        a, b = (w + e * np.sign(rng.normal(size=w.shape)) for w, e in ((w1, e1), (w2, e2)))
        x = sample(box, 50)
        value = np.maximum(x @ a.T + 1e-3, 0) @ b.T - 1e-3
        assert (value >= low - 1e-12).all() and (value <= high + 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_overflow_proves_nothing(dtype: torch.dtype) -> None:
    most = float(torch.finfo(dtype).max)
    builder = GraphBuilder(2)
    first = builder.add(Relu(2), builder.add(Dense(2, np.ones(2), np.eye(2)), 0))
    second = builder.add(Dense(2, np.zeros(2), np.array([[0.9, 0.9], [0.9, -0.9]]) * most), first)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), builder.add(Relu(2), second)))
    program = Program(graph, Space(dtype))
    box = Domain(np.zeros(2), np.ones(2))
    found = intermediate_bounds(program, Region.of([box], program.space), Effort())
    low, high = found.interval[second]
    assert not (low > 0)[0, 1] and not (high < 0).any()


def test_other_graphs_are_refused() -> None:
    builder = GraphBuilder(2)
    hidden = builder.add(Relu(2), builder.add(Dense(2, np.zeros(2), np.eye(2)), 0))
    branched = builder.finish(builder.add(Sum(2, (1.0, 1.0)), hidden, 0))
    assert not is_chain(Program(branched, Space(torch.float64)))
    bare = GraphBuilder(2)
    assert not is_chain(Program(bare.finish(bare.add(Relu(2), 0)), Space(torch.float64)))


def test_neurons_that_are_all_nought() -> None:
    """Nothing is left to multiply, and the bounds are the biases."""
    builder = GraphBuilder(2)
    first = builder.add(Relu(3), builder.add(Dense(3, np.full(3, -9.0), np.ones((3, 2))), 0))
    second = builder.add(Dense(2, np.array([0.0, 2.0]), np.ones((2, 3))), first)
    third = builder.add(Dense(2, np.array([-1.0, 0.5]), np.ones((2, 2))), builder.add(Relu(2), second))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), builder.add(Relu(2), third)))
    problem = Problem(graph, Domain(-np.ones(2), np.ones(2)), (make_rows([({2: 1.0}, 0.0)]),))
    assert abs(float(CrownBounder().bound([problem])[0].margins_of(problem)[0][0]) - 3.5) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [1e-30, 1e-3, 0.1])
def test_sums_of_squares_bound_sums(dtype: torch.dtype, radius: float) -> None:
    """What the cheap test before the inputs says is never below the sum itself, and not far above it."""
    graph = network(3, (200, 20, 10, 3))
    program = Program(graph, Space(dtype))
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 200))
    boxes = [Domain(c - radius * rng.uniform(size=200), c + radius) for c in centres]
    boxes[0] = Domain(centres[0], centres[0])
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of(boxes, program.space), Effort(tighten=False))
        first_layer, table = state.tables.first_layer_of(program, state), state.tables.get(program, state, 1)
        every = torch.arange(4)
        columns = table.columns(every)
        assert columns.neurons is not None and table.count is not None
        width = columns.neurons.shape[1]
        rows = torch.as_tensor(rng.normal(size=(4, 50, width)), dtype=dtype)
        # neurons that are nought have no part
        rows *= torch.arange(width) < table.count[:, None, None]
        above = first_layer.spread_at_most(every, columns, rows, table)
        (exact,) = first_layer.spread(every, columns, table, [rows], torch.full((4,), 50))
        # columns in another order say the same, but not by position
        other = Columns(columns.neurons.flip(1))
        assert first_layer.spread_at_most(every, other, rows.flip(2), table) is None
        (again,) = first_layer.spread(every, other, table, [rows.flip(2)], torch.full((4,), 50))
    assert torch.allclose(again, exact, rtol=1e-4)
    assert above is not None
    assert (above.double() >= exact.double() * (1 - 1e-12 if dtype is torch.float64 else 1 - 1e-6)).all()
    if radius > 1e-20:
        assert (above[1:] <= 2 * exact[1:]).all()


def test_every_box_is_in_one_group() -> None:
    """Boxes that are about as dear go together, those with nothing to do are left out."""
    work = [[0, 5, 5], [3, 5, 5], [200, 250, 250], [3, 6, 5], [200, 10, 10], [1, 1, 1]]
    groups = list(alike(work, 1 << 19))
    assert sorted(k for group in groups for k in group) == [1, 2, 3, 4, 5]
    assert [2] in groups and any({1, 3} <= set(group) for group in groups)
    assert all(len(group) == 1 for group in alike(work, 1))


def test_tables_follow_the_state() -> None:
    """A table is made anew when the interval or the lines of its node are replaced."""
    program = Program(network(0), Space(torch.float64))
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of(domains(0), program.space), Effort())
        first = state.tables.get(program, state, 1)
        assert state.tables.get(program, state, 1) is first
        low, high = state.interval[1]
        state.interval[1] = (low, high.clamp(max=0))
        program.relax(state, 2)
        second = state.tables.get(program, state, 1)
    assert second is not first and second.count is not None and not second.count.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_cancel_in_a_relu_are_charged(dtype: torch.dtype) -> None:
    """Slopes of 1 below and 1e-4 above: rows x low + n (up - low) lose four digits, and the values are attained."""
    rng, size = np.random.default_rng(5), 64
    builder = GraphBuilder(2)
    before = builder.add(Relu(2), builder.add(Dense(2, np.zeros(2), np.eye(2)), 0))
    weight = rng.uniform(0.5, 2, size).astype(np.float32).astype(np.float64)
    node = builder.add(Dense(size, np.zeros(size), np.stack([weight, -weight], 1)), before)
    hidden = builder.add(Relu(size), node)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, size))), hidden))
    program = Program(graph, Space(dtype))
    box = Domain(np.ones(2), np.array([1 + 2.0**-13, 2.0]))
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of([box], program.space), Effort(tighten=False))
        ones = torch.ones(1, size, dtype=dtype)
        program.enclose(state, hidden, ReluRelaxation().lines(ones, state.interval[node]))
        low, gap, on_x, _, on_n, _ = state.tables.get(program, state, node).vectors[0]
        assert bool((low == 1).all()) and bool((gap < -0.999).all())
        row = torch.as_tensor(-rng.uniform(1, 2, size), dtype=dtype)
        rows = row * low + row * gap
    for k in range(size):
        w, r, x, a, b = (Fraction(float(t[k])) for t in (weight, rows, row, on_x, on_n))
        for difference in (Fraction(-1), Fraction(1, 2**13)):
            z = w * difference
            assert r * z + x * (a + b) <= x * max(z, Fraction(0))
