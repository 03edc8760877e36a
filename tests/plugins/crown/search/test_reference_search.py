"""What a search stands on, against the reference: box engines, opposites, the small graph, its matrices, proofs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain, Problem
from verifolio.plugins.crown.kernel import boxes as engines
from verifolio.plugins.crown.kernel.boxes import BoxBatch, KernelEngine
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.optimise.dual import Dual, Schedule, evaluate, optimise
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.arrays import all_rows
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.reduce.opposites import merge_opposites
from verifolio.plugins.crown.search.inputs.tensor_engine import TensorEngine
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.neurons.leaf import affine_forms
from verifolio.plugins.crown.search.neurons.refinement import refine_bounds
from verifolio.plugins.crown.search.root import Root, RootBounds, make_goal
from verifolio.run.budget import Budget
from verifolio.testing.realistic import CHAINS, NETWORKS, balls, boxes
from verifolio.testing.reference import Reference, attained
from verifolio.testing.trial import evaluate as values_at
from verifolio.testing.trial import sample
from verifolio.vnnlib import make_rows

needs_kernel = pytest.mark.skipif(engines._boxes is None, reason="the compiled kernel was not built here")
PIECEWISE = (
    "dense",
    "scale_after_second",
    "clip",
    "min",
    "abs",
    "residual",
    "conv",
    "conv_max_pool",
    "joined",
)
DOUBLE, SINGLE = torch.float64, torch.float32


@cache
def network(name: str, seed: int) -> Graph:
    return NETWORKS[name](np.random.default_rng(seed))


def problem_of(graph: Graph, domain: Domain, share: float = 0.5) -> Problem:
    """Two disjuncts, of one row and of two, one with inputs; about `share` of the points meet each row."""
    n, m = graph.input_size, graph.output_size
    rows = [{n: 1.0, n + m - 1: -1.0}, {n + 1: -1.5, 0: 0.5}, {0: 0.25, n - 1: -1.0, n + m - 1: 1.0}]
    points = sample(domain, 100)
    columns = np.concatenate([points, values_at(graph, points)[graph.output]], 1)
    levels = [float(np.quantile(sum(c * columns[:, k] for k, c in row.items()), share)) for row in rows]
    made = list(zip(rows, levels, strict=True))
    return Problem(graph, domain, (make_rows(made[:1]), make_rows(made[1:])))


def one_box(graph: Graph, radius: float, seed: int = 0) -> Domain:
    return boxes(np.random.default_rng(seed), graph.input_size, (radius,))[0]


def meets(problem: Problem, points: Array) -> NDArray[np.bool_]:
    """Which points satisfy some disjunct."""
    inputs, outputs, rhs = all_rows(problem)
    gaps = points @ inputs.T + values_at(problem.graph, points)[problem.graph.output] @ outputs.T - rhs
    cuts = np.cumsum([d.count for d in problem.disjuncts])[:-1]
    return np.asarray(np.stack([g.max(1) <= 0 for g in np.split(gaps, cuts, 1)]).any(0))


def engine_margin(
    reference: Reference, problem: Problem, domain: Domain, intersect: bool, early: bool = False
) -> tuple[float, Array, Array]:
    """What a box engine should say of a box: its margin, the rows' bounds, and their coefficients."""
    inputs, outputs, rhs = all_rows(problem)
    bounded = reference.crown(domain, intersect=intersect, early=early)
    bound = reference.lower(
        domain, bounded.intervals, bounded.lines, {problem.graph.output: outputs, 0: inputs}
    )
    gaps = bound.low - rhs
    cuts = np.cumsum([d.count for d in problem.disjuncts])[:-1]
    best = [float(g.max()) for g in np.split(gaps, cuts)]
    still = [b for b in best if b <= 0]
    return (min(still) if still else np.inf), gaps, bound.rows


def parts_of(domain: Domain, count: int, seed: int) -> BoxBatch:
    """Boxes inside a box, of very different widths."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(domain.lower, domain.upper, (count, domain.size))
    reach = np.geomspace(1, 1e-4, count)[:, None] * (domain.upper - domain.lower) / 2
    lower, upper = np.maximum(centre - reach, domain.lower), np.minimum(centre + reach, domain.upper)
    return BoxBatch(lower, upper, np.zeros((count, 0), np.int8))


@needs_kernel
@pytest.mark.parametrize("name", PIECEWISE)
def test_kernel(name: str) -> None:
    """The compiled kernel: the reference's margin, phases that hold, and nothing cut off that meets the condition."""
    graph = network(name, 1)
    if graph.input_size > engines.MAX_KERNEL_INPUTS:
        pytest.skip("too many inputs for the kernel")
    problem = problem_of(graph, one_box(graph, 0.4))
    engine, reference = KernelEngine(problem, 1), Reference(graph)
    batch = parts_of(problem.domain, 7, 0)
    batch.phase = np.zeros((7, engine.neurons), np.int8)
    before = [Domain(low, high) for low, high in zip(batch.lower.copy(), batch.upper.copy(), strict=True)]
    found = engine.bound(batch)
    for k, domain in enumerate(before):
        margin, gaps, rows = engine_margin(reference, problem, domain, False)
        assert found.closed[k] == (margin == np.inf)
        if not found.closed[k]:
            assert found.margin[k] == pytest.approx(margin, rel=1e-8, abs=1e-9), f"box {k}"
        check_cut(problem, domain, batch, k, bool(found.closed[k]))
        if not found.closed[k]:
            check_narrowed(problem, domain, batch, k, gaps, rows)
        values = values_at(graph, sample(domain, 40, k))
        inner = np.concatenate([values[graph.nodes[i].parents[0]] for i in graph.relus], 1)
        assert (inner[:, batch.phase[k] > 0] >= -1e-12).all() and (
            inner[:, batch.phase[k] < 0] <= 1e-12
        ).all()


@needs_kernel
@pytest.mark.parametrize("name", ["quadratic", "hard_swish"])
def test_kernel_on_products(name: str) -> None:
    """Bounds below what points attain, close to it on small boxes, and nothing cut off that meets the condition."""
    graph = network(name, 1)
    problem = problem_of(graph, one_box(graph, 0.4))
    batch = parts_of(problem.domain, 9, 0)
    engine = KernelEngine(problem, 1)
    batch.phase = np.zeros((9, engine.neurons), np.int8)
    before = [Domain(low, high) for low, high in zip(batch.lower.copy(), batch.upper.copy(), strict=True)]
    found = engine.bound(batch)
    for k, domain in enumerate(before):
        points = sample(domain, 300, k)
        check_cut(problem, domain, batch, k, bool(found.closed[k]))
        if not found.closed[k]:  # of the worst disjunct, the best row
            assert found.margin[k] <= row_gaps(problem, points).max() + 1e-12
    check_products_converge(problem)


def row_gaps(problem: Problem, points: Array) -> Array:
    """Per disjunct the least value over points of its largest row minus right-hand side."""
    inputs, outputs, rhs = all_rows(problem)
    values = values_at(problem.graph, points)[problem.graph.output]
    gaps = points @ inputs.T + values @ outputs.T - rhs
    parts = np.split(gaps, np.cumsum([d.count for d in problem.disjuncts])[:-1], 1)
    return np.array([part.max(1).min() for part in parts])


def check_products_converge(problem: Problem) -> None:
    """The looseness of a product falls with the square of its box's size, that of a wrong line does not."""
    n, graph = problem.graph.input_size, problem.graph
    centre = (problem.domain.lower + problem.domain.upper) / 2
    losses = []
    for reach in (1e-2, 1e-3):
        domain = Domain(centre - reach, centre + reach)
        least = float(attained(graph, domain, np.eye(graph.output_size)[:1])[0])
        engine = KernelEngine(Problem(graph, domain, (make_rows([({n: 1.0}, least)]),)), 1)
        batch = BoxBatch(
            domain.lower[None].copy(), domain.upper[None].copy(), np.zeros((1, engine.neurons), np.int8)
        )
        found = engine.bound(batch)
        assert not found.closed[0]  # a point attains the threshold
        losses.append(-float(found.margin[0]))
    assert -1e-12 <= losses[1] <= 0.05 * losses[0] + 1e-9


@needs_kernel
@pytest.mark.parametrize("name", ["dense", "clip", "residual"])
def test_kernel_narrows(name: str) -> None:
    """A row that can only just be met cuts off most of its box, along every input that matters."""
    graph = network(name, 1)
    domain, reference, n = one_box(graph, 0.05), Reference(graph), graph.input_size
    outputs = np.array([[1.0, 0.0, -1.0]])
    bounded = reference.crown(domain, intersect=False)
    bound = reference.lower(domain, bounded.intervals, bounded.lines, {graph.output: outputs})
    reach = float((np.abs(bound.rows[0]) * (domain.upper - domain.lower)).max())
    problem = Problem(graph, domain, (make_rows([({n: 1.0, n + 2: -1.0}, float(bound.low[0]) + reach / 2)]),))
    engine = KernelEngine(problem, 1)
    batch = BoxBatch(
        domain.lower[None].copy(), domain.upper[None].copy(), np.zeros((1, engine.neurons), np.int8)
    )
    assert not engine.bound(batch).closed[0]
    assert ((batch.upper[0] - batch.lower[0]) < 0.99 * (domain.upper - domain.lower)).any()
    check_narrowed(problem, domain, batch, 0, bound.low - problem.disjuncts[0].rhs, bound.rows)
    check_cut(problem, domain, batch, 0, False)


def check_cut(problem: Problem, domain: Domain, batch: BoxBatch, k: int, closed: bool) -> None:
    """No point that meets the condition lies outside what is left of its box."""
    points = sample(domain, 150, k)
    hits = points[meets(problem, points)]
    if closed:
        assert not len(hits), f"box {k} was closed"
    else:
        assert (hits >= batch.lower[k] - 1e-12).all() and (hits <= batch.upper[k] + 1e-12).all(), f"box {k}"


def check_narrowed(
    problem: Problem, domain: Domain, batch: BoxBatch, k: int, gaps: Array, rows: Array
) -> None:
    """The hull of what each disjunct's rows leave: row >= gap + |coef| (way from the minimising corner)."""
    cuts = np.cumsum([d.count for d in problem.disjuncts])[:-1]
    hull = np.full(domain.size, np.inf), np.full(domain.size, -np.inf)
    for gap, coefs in zip(np.split(gaps, cuts), np.split(rows, cuts), strict=True):
        low, high = domain.lower.copy(), domain.upper.copy()
        for g, coef in zip(gap, coefs, strict=True):
            room = np.where((g <= 0) & (coef != 0), -g / np.where(coef == 0, 1.0, np.abs(coef)), np.inf)
            high = np.where(coef > 0, np.minimum(high, domain.lower + room), high)
            low = np.where(coef < 0, np.maximum(low, domain.upper - room), low)
        if (gap > 0).any() or (low > high).any():
            continue
        hull = np.minimum(hull[0], low), np.maximum(hull[1], high)
    width = 1e-7 * (1 + domain.upper - domain.lower)
    assert (np.abs(batch.lower[k] - hull[0]) <= width).all() and (
        np.abs(batch.upper[k] - hull[1]) <= width
    ).all()


@pytest.mark.parametrize("name", ["dense", "clip_second", "residual", "conv_max_pool"])
def test_tensor_engine(name: str) -> None:
    graph = network(name, 2)
    problem = problem_of(graph, one_box(graph, 0.3))
    engine, reference = TensorEngine(problem, Budget()), Reference(graph)
    for size in (1, 7):
        batch = parts_of(problem.domain, size, 1)
        found = engine.bound(batch)
        for k in range(size):
            domain = Domain(batch.lower[k], batch.upper[k])
            margin, *_ = engine_margin(reference, problem, domain, True, name in CHAINS)
            check_cut(problem, domain, batch, k, bool(found.closed[k]))
            if size == 1 or name in CHAINS:
                assert found.closed[k] == (margin == np.inf)
                assert found.margin[k] == pytest.approx(margin, rel=1e-7, abs=1e-8), f"box {k}"
            else:
                assert found.closed[k] or found.margin[k] >= margin - 1e-7 * (1 + abs(margin)), f"box {k}"


@pytest.mark.parametrize("name", ["dense", "wide", "conv", "residual", "scale_before", "upsampled"])
def test_opposites(name: str) -> None:
    """One ReLU for two opposite neurons: the same function, and bounds of the old neurons that hold."""
    graph = network(name, 3)
    merged = merge_opposites(graph)
    domain = one_box(graph, 0.3)
    points = sample(domain, 50)
    old, new = values_at(graph, points), values_at(merged.graph, points)
    assert np.allclose(old[graph.output], new[merged.graph.output], rtol=1e-12, atol=1e-12)
    assert bool(merged.pairs) == any(_has_opposites(graph, i) for i in graph.relus)
    bounded = Reference(merged.graph).crown(domain)
    nodes = {p for i in merged.graph.relus for p in merged.graph.nodes[i].parents}
    for i, (low, high) in merged.restore({p: bounded.intervals[p] for p in nodes}).items():
        assert low.shape == (graph.nodes[i].op.size,)
        assert (old[i] >= low - 1e-12).all() and (old[i] <= high + 1e-12).all(), f"node {i}"


def _has_opposites(graph: Graph, relu: int) -> bool:
    op = graph.nodes[graph.nodes[relu].parents[0]].op
    if type(op).__name__ != "Dense":
        return False
    rows = np.c_[op.weight, op.bias]  # type: ignore[attr-defined]
    return any((rows[i] == -rows[j]).all() for i in range(len(rows)) for j in range(i))


def bounded(problem: Problem, dtype: torch.dtype) -> RootBounds:
    """Backward bounds of the whole domain, all disjuncts kept."""
    root_bounds = RootBounds(problem, Space(dtype), Budget())
    for effort in (Effort(tighten=False), Effort()):
        root_bounds.tighten(effort)
    root_bounds.live = torch.arange(len(problem.disjuncts))
    return root_bounds


@cache
def rooted(name: str, dtype: torch.dtype, ball: float = 0.0) -> tuple[Problem, Root]:
    graph = network(name, 4)
    domain = (
        one_box(graph, 0.15)
        if not ball
        else balls(np.random.default_rng(0), graph.input_size, (0.5,), ball)[0]
    )
    problem = problem_of(graph, domain, 0.3)
    return problem, bounded(problem, dtype).root()


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
@pytest.mark.parametrize("name", PIECEWISE)
def test_small_graph(name: str, dtype: torch.dtype) -> None:
    """Without its stable neurons, a graph computes the condition's rows on the domain, up to the error it states."""
    problem, root = rooted(name, dtype)
    small, points = root.program.graph, sample(problem.domain, 60)
    inputs, outputs, rhs = all_rows(problem)
    row, height = [0, 0, 1, 2], root.goal.rhs.shape[1]  # the first disjunct's only row is repeated
    assert height == 2 and small.output_size == 4
    wanted = points @ inputs.T + values_at(problem.graph, points)[problem.graph.output] @ outputs.T - rhs
    found = values_at(small, points)[small.output]
    room = 1e-6 if dtype is SINGLE else 1e-9
    assert np.allclose(found, wanted[:, row], rtol=room, atol=room)
    check_stacked(root)


def check_stacked(root: Root) -> None:
    """The matrices say what the small graph says: z = direct x + feed relu(z) + bias."""
    net, graph = root.condensed, root.program.graph
    assert net is not None
    region = root.state.region
    low, high = (t[0].double().numpy() for t in (region.lower, region.upper))
    points = np.random.default_rng(0).uniform(low, high, (20, len(low)))
    values = values_at(graph, points)
    inner = np.concatenate([np.zeros((20, 0)), *(values[graph.nodes[i].parents[0]] for i in graph.relus)], 1)
    direct, feed, bias = (t.double().numpy() for t in (net.direct, net.feed, net.bias))
    whole = np.concatenate([inner, values[graph.output]], 1)
    again = points @ direct.T + np.maximum(inner, 0) @ feed.T + bias
    assert np.allclose(whole, again, rtol=1e-4, atol=1e-4 if net.bias.dtype is SINGLE else 1e-8)
    assert (inner >= net.low.double().numpy() - 1e-6).all() and (
        inner <= net.high.double().numpy() + 1e-6
    ).all()


def random_variables(net: Condensed, count: int, height: int) -> tuple[torch.Tensor, Variables]:
    """Phases of a few neurons, slopes, multipliers and row weights."""
    torch.manual_seed(0)
    dtype = net.bias.dtype
    phase = torch.zeros(count, net.kept, dtype=torch.int8)
    phase[:, :3] = torch.randint(-1, 2, (count, min(3, net.kept)), dtype=torch.int8)
    alpha, beta = (torch.rand(count, net.kept, dtype=dtype) for _ in range(2))
    mix = torch.rand(count, height, dtype=dtype)
    return phase, Variables(alpha, 0.1 * beta, mix / mix.sum(1, keepdim=True))


def wanted_margin(root: Root, phase: Array, alpha: Array, beta: Array, goal: Array) -> Any:
    """The reference's bound of one subproblem of the small graph; `goal` weighs its outputs."""
    graph, reference = root.program.graph, Reference(root.program.graph)
    region = root.state.region
    domain = Domain(region.lower[0].double().numpy(), region.upper[0].double().numpy())
    intervals = {
        i: (low[0].double().numpy(), high[0].double().numpy())
        for i, (low, high) in root.state.interval.items()
    }
    rows, lines, start = {graph.output: goal[None]}, {}, 0
    for i in graph.relus:
        p, size = graph.nodes[i].parents[0], graph.nodes[i].op.size
        sign, slope = phase[start : start + size], alpha[start : start + size]
        low, high = intervals[p]
        intervals[p] = low, high = (
            np.where(sign > 0, np.maximum(low, 0), low),
            np.where(sign < 0, np.minimum(high, 0), high),
        )
        below, above = default_relu(low, high, slope)
        lines[i] = reference.lines(i, intervals, [below], [above])
        rows[p] = -(sign * beta[start : start + size])[None]
        start += size
    return reference.lower(domain, intervals, lines, rows)


def default_relu(low: Array, high: Array, slope: Array) -> tuple[Array, Array]:
    """The slopes of the triangle, with a given lower one where the neuron is unstable."""
    unstable, active = (low < 0) & (high > 0), (low >= 0).astype(float)
    chord = np.divide(high, high - low, out=active.copy(), where=unstable)
    return np.where(unstable, slope, active), chord


@pytest.mark.parametrize("name", ["dense", "clip", "residual", "conv_max_pool"])
def test_condensed_and_proved_bounds(name: str) -> None:
    """The matrices' bound, the program's proof and the reference agree for any slopes, multipliers and weights."""
    _, root = rooted(name, DOUBLE)
    net, height = root.condensed, root.goal.rhs.shape[1]
    assert net is not None and net.kept > 3
    phase, variables = random_variables(net, 4, height)
    disjunct = torch.tensor([0, 1, 0, 1])
    goal = torch.zeros(4, 2 * height, dtype=DOUBLE)
    goal.scatter_(1, disjunct[:, None] * height + torch.arange(height), variables.mix)
    lines = net.lines(phase)
    passed = net.backward(lines, variables.alpha, variables.beta, goal)
    z, _ = net.forward(lines, passed)
    # where the relaxed network attains the bound, it has the bound's value
    attained_there = (goal * z[:, net.kept :]).sum(1) - (lines.phase * variables.beta * z[:, : net.kept]).sum(
        1
    )
    assert torch.allclose(passed.bound, attained_there, rtol=1e-9, atol=1e-9)
    proved = root.double().prove(disjunct, phase, variables).margin[:, 0].numpy()
    for k in range(4):
        parts = (t[k].numpy() for t in (phase, variables.alpha, variables.beta, goal))
        wanted = wanted_margin(root, *parts)
        assert proved[k] <= wanted.high[0]
        assert proved[k] == pytest.approx(wanted.low[0], rel=1e-7, abs=1e-7)
        assert float(passed.bound[k]) == pytest.approx(wanted.low[0], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("ball", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("name", ["clip_second", "conv"])
def test_ascent_and_its_proof(name: str, ball: float) -> None:
    """Optimised variables, found in float32 and proved in float64: no bound above what a point attains."""
    problem, root = rooted(name, SINGLE, ball)
    assert root.condensed is not None
    bounding = SubproblemBounds(root, root.condensed, Budget())
    items = bounding.first()
    for _ in range(2):
        done = bounding.bound(items, 15)
        check_subproblems(problem, root, items.disjunct.numpy(), items.phase.numpy(), done.margin.numpy())
        room = 1e-2 * (1 + done.margin.abs())
        assert (done.found.margin.double() - done.margin).abs().le(room).all()
        items = bounding.ranked(items, done).split()


def check_subproblems(problem: Problem, root: Root, disjunct: Array, phase: Array, margin: Array) -> None:
    """Points in a subproblem's phases have some row of its disjunct at least as large as the bound."""
    graph, points = root.program.graph, sample(problem.domain, 300)
    small, values = values_at(graph, points), values_at(problem.graph, points)[problem.graph.output]
    inner = np.concatenate([small[graph.nodes[i].parents[0]] for i in graph.relus], 1)
    inputs, outputs, rhs = all_rows(problem)
    gaps = points @ inputs.T + values @ outputs.T - rhs
    parts = np.split(gaps, np.cumsum([d.count for d in problem.disjuncts])[:-1], 1)
    for d, sign, bound in zip(disjunct, phase, margin, strict=True):
        there = (inner * sign >= 0).all(1)
        assert not there.any() or bound <= parts[int(root.disjuncts[d])][there].max(1).min() + 1e-12


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
@pytest.mark.parametrize("name", ["scale_around", "conv_norm", "gate"])
def test_goals_and_optimised_slopes(name: str, dtype: torch.dtype) -> None:
    """Every disjunct as a goal: padded rows, inputs, right-hand sides, then slopes raised by gradients."""
    graph = network(name, 6)
    problem = problem_of(graph, one_box(graph, 0.2))
    program, goal = Program(graph, Space(dtype)), make_goal(Space(dtype), problem)
    inputs, outputs, rhs = all_rows(problem)
    found = (attained(graph, problem.domain, outputs, inputs) - rhs)[[0, 0, 1, 2]].reshape(2, 2)
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of([problem.domain], program.space), Effort())
        plain = evaluate(program, state, goal, {}, Dual()).margin.double().numpy()
    best = optimise(program, state, goal, Schedule(8), Budget()).margin.double().numpy()
    assert (best <= found).all() and (best >= plain - 1e-9).all()
    intervals = {
        i: (low[0].double().numpy(), high[0].double().numpy()) for i, (low, high) in state.interval.items()
    }
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of([problem.domain], program.space), Effort())
    reference = Reference(graph)
    lines = {
        i: reference.lines(
            i,
            intervals,
            *([s[0].double().numpy() for s in side] for side in (own.lower_slope, own.upper_slope)),
        )
        for i, own in state.lines.items()
    }
    domain = Domain(*intervals[0])
    wanted = reference.lower(domain, intervals, lines, {graph.output: outputs, 0: inputs})
    assert (plain <= (wanted.high - rhs)[[0, 0, 1, 2]].reshape(2, 2)).all()
    room = 2e-2 if dtype is SINGLE else 1e-8 if graph.piecewise_linear else 1e-5
    assert np.allclose(plain, (wanted.low - rhs)[[0, 0, 1, 2]].reshape(2, 2), rtol=room, atol=room)


@pytest.mark.parametrize("name", ["dense", "clip_second", "residual"])
def test_refined_intervals(name: str) -> None:
    """Splits on every neuron: intervals that are no wider, and that hold what points attain."""
    graph = network(name, 7)
    problem = problem_of(graph, one_box(graph, 0.1))
    root_bounds = bounded(problem, SINGLE)
    before = dict(root_bounds.known)
    refine_bounds(root_bounds, 2, Effort(steps=2), Budget(seconds=20))
    rewritten = root_bounds.merged.graph
    values = values_at(rewritten, sample(problem.domain, 200))
    for i, (low, high) in root_bounds.known.items():
        assert (low >= before[i][0] - 1e-5).all() and (high <= before[i][1] + 1e-5).all(), f"node {i}"
        assert (values[i] >= low[0].double().numpy() - 1e-12).all(), f"node {i}"
        assert (values[i] <= high[0].double().numpy() + 1e-12).all(), f"node {i}"
        check_ends(rewritten, problem.domain, i, low[0].double().numpy(), high[0].double().numpy())


def check_ends(graph: Graph, domain: Domain, node: int, low: Array, high: Array) -> None:
    """The ends of the widest neurons against a descent of their own."""
    inner, some = Graph(graph.nodes[: node + 1], node), np.argsort(low - high)[:6]
    unit = np.eye(len(low))[some]
    assert (low[some] <= attained(inner, domain, unit)).all(), f"node {node}: low end"
    assert (-high[some] <= attained(inner, domain, -unit)).all(), f"node {node}: high end"


def test_forms_of_leaves() -> None:
    """With all phases fixed, a network is the affine function that linear programs are made of."""
    problem, root = rooted("dense", DOUBLE)
    graph, x = root.program.graph, sample(problem.domain, 3)[1]
    values = values_at(graph, x[None])
    signs = {
        graph.nodes[i].parents[0]: np.sign(values[graph.nodes[i].parents[0]][0]).astype(np.int8)
        for i in graph.relus
    }
    forms = affine_forms(graph, signs, root.state)
    for i in (*signs, graph.output):
        assert np.allclose(forms[i][0] @ x + forms[i][1], values[i][0], rtol=1e-9, atol=1e-9)
