"""The kernel for quadratic conditions, against values that points attain, plain polynomials and convex minima."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from verifolio.graph import Dense, Graph, GraphBuilder, Product, Relu, Scale, Sum
from verifolio.graph.ops import Array
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.kernel import boxes as engines
from verifolio.plugins.crown.kernel.boxes import (
    BoxBatch,
    Findings,
    KernelEngine,
    QuadraticEngine,
    quadratics_apply,
)
from verifolio.plugins.crown.propagate.arrays import all_rows
from verifolio.plugins.crown.search.inputs.input_search import InputSearch
from verifolio.plugins.crown.search.inputs.tensor_engine import make_engine
from verifolio.run.budget import Budget
from verifolio.testing.realistic import NETWORKS, boxes
from verifolio.testing.reference import attained, quadratic_rows
from verifolio.testing.trial import evaluate, miss, sample
from verifolio.vnnlib import make_rows

pytestmark = pytest.mark.skipif(engines._quadratics is None, reason="the compiled kernel was not built here")


@cache
def network(seed: int) -> Graph:
    return NETWORKS["products_last"](np.random.default_rng(seed))


def form(matrix: Array) -> Graph:
    """y = (x' M x, x): a product of the inputs with M x, summed."""
    n = len(matrix)
    builder = GraphBuilder(n)
    product = builder.add(Product(n), 0, builder.add(Dense(n, np.zeros(n), matrix), 0))
    return builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, n))), product))


def bound(problem: Problem, domain: Domain | None = None) -> tuple[Findings, BoxBatch]:
    domain, engine = problem.domain if domain is None else domain, QuadraticEngine(problem, 1)
    batch = BoxBatch(domain.lower[None].copy(), domain.upper[None].copy(), engine.phase[None].copy())
    return engine.bound(batch), batch


def parts(domain: Domain, count: int) -> list[Domain]:
    """Boxes inside a box, ever smaller."""
    rng = np.random.default_rng(0)
    centre = rng.uniform(domain.lower, domain.upper, (count, domain.size))
    reach = np.geomspace(1, 1e-3, count)[:, None] * (domain.upper - domain.lower) / 2
    lower, upper = np.maximum(centre - reach, domain.lower), np.minimum(centre + reach, domain.upper)
    return [Domain(a, b) for a, b in zip(lower, upper, strict=True)]


@pytest.mark.parametrize("seed", [1, 2])
def test_between_the_reference_and_attained_values(seed: int) -> None:
    graph = network(seed)
    (domain,) = boxes(np.random.default_rng(seed), graph.input_size, (0.4,))
    outputs, inputs = np.eye(3)[:1], np.zeros((1, graph.input_size))
    closer = 0
    for part in parts(domain, 5):
        (plain,) = quadratic_rows(graph, part, outputs, inputs)
        least = float(attained(graph, part, outputs)[0])
        problem = Problem(graph, domain, (make_rows([({graph.input_size: 1.0}, least + 1e-9)]),))
        assert quadratics_apply(problem)
        found, _ = bound(problem, part)
        assert not found.closed[0]  # a point attains less than the threshold
        low = float(found.margin[0]) + least + 1e-9
        assert plain.least() - 1e-9 * (1 + abs(plain.least())) <= low <= least + 1e-9
        closer += low > plain.least() + 1e-6
    assert closer


@pytest.mark.parametrize("seed", range(4))
def test_a_convex_form_is_bounded_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(6, 6))
    matrix = root @ root.T / 6 + np.eye(6) * (0.01, 1.0)[seed % 2]
    centre = rng.normal(size=6) * (seed > 0)
    domain = Domain(centre - rng.uniform(0.1, 2, 6), centre + rng.uniform(0.1, 2, 6))

    def value(x: Array) -> tuple[Any, Array]:
        return x @ matrix @ x, 2 * matrix @ x

    limits = list(zip(domain.lower, domain.upper, strict=True))
    least = minimize(value, centre, jac=True, bounds=limits, tol=1e-14).fun
    for above, open_ in ((1e-2, True), (-1e-2, False)):
        problem = Problem(form(matrix), domain, (make_rows([({6: 1.0}, float(least) + above)]),))
        found, _ = bound(problem)
        assert bool(found.closed[0]) is not open_
        if open_:
            assert found.margin[0] == pytest.approx(-above, abs=2e-3)


@pytest.mark.parametrize("n", [1, 2, 8, 30, 100])
@pytest.mark.parametrize("bits", [0, 20])
def test_a_minimum_that_a_point_attains_exactly_is_not_cut_off(n: int, bits: int) -> None:
    """sum k (x - c)^2 is 0 at c in exact arithmetic: rounding is charged, so no margin is above that."""
    rng = np.random.default_rng(n)
    for _ in range(8):
        k = rng.integers(1, 9, n).astype(np.float64) * 2.0**bits
        c = rng.integers(-40, 40, n) / 64.0
        builder = GraphBuilder(n)
        moved = builder.add(Scale(n, -c, np.ones(n)), 0)
        squares = builder.add(Product(n), moved, moved)
        graph = builder.finish(builder.add(Dense(1, np.zeros(1), k[None]), squares))
        reach = rng.integers(1, 90, (2, n)) / 64.0
        reach[0, rng.random(n) < rng.choice([0.0, 0.5, 1.0])] = 0.0  # the point may be a corner
        domain = Domain(c - reach[0], c + reach[1])
        problem = Problem(graph, domain, (make_rows([({n: 1.0}, 0.0)]),))
        assert quadratics_apply(problem)
        found, batch = bound(problem)
        assert not found.closed[0] and found.margin[0] <= 0
        assert found.margin[0] >= -1e-9 * k.sum() * n
        assert (batch.lower[0] <= c).all() and (c <= batch.upper[0]).all()


def lyapunov(share: float) -> Problem:
    """Where |x|_P^2 lies between two levels, can it fail to fall under a stable map by a share?"""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4))
    p = root @ root.T + np.eye(4)
    step = np.eye(4) - 0.1 * np.linalg.inv(p) @ (
        np.eye(4) + (root - root.T)
    )  # x' P x falls by about 0.2 |x|^2
    builder = GraphBuilder(4)
    after = builder.add(Dense(4, np.zeros(4), step), 0)
    both = [builder.add(Product(4), x, builder.add(Dense(4, np.zeros(4), p), x)) for x in (0, after)]
    total = [builder.add(Dense(1, np.zeros(1), np.ones((1, 4))), x) for x in both]
    weight = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
    ends = [builder.add(Dense(2, np.zeros(2), w), t) for w, t in zip(weight, total, strict=True)]
    graph = builder.finish(builder.add(Sum(2, (1.0, 1.0)), *ends))
    band = [({4: 1.0}, 2.0), ({4: -1.0}, -1.0), ({4: 1 - share, 5: -1.0}, 0.0)]
    return Problem(graph, Domain(-2 * np.ones(4), 2 * np.ones(4)), (make_rows(band),))


def test_rows_of_a_conjunction_are_combined() -> None:
    """The whole box at once: no row by itself, and no product by itself, can do it."""
    problem = lyapunov(0.001)
    found, _ = bound(problem)
    assert found.closed[0]
    engine = KernelEngine(problem, 1)
    batch = BoxBatch(
        problem.domain.lower[None].copy(), problem.domain.upper[None].copy(), engine.phase[None].copy()
    )
    assert not engine.bound(batch).closed[0]


@pytest.mark.parametrize("seed", range(12))
def test_a_conjunction_that_a_point_attains_stays_open(seed: int) -> None:
    """Thresholds are the point's own values: no combination is positive, and the point is not cut off."""
    rng = np.random.default_rng(seed)
    graph = network(seed % 3)
    n, m = graph.input_size, graph.output_size
    (domain,) = boxes(rng, n, ((0.3, 0.05, 1e-3)[seed % 3],))
    x = sample(domain, 8, seed)[-1]
    y = evaluate(graph, x[None])[graph.output][0]
    rows = []
    for _ in range(1 + seed % 4):
        weight = rng.normal(size=n + m) * (rng.random(n + m) < 0.5)
        value = float(weight @ np.concatenate([x, y]))
        rows.append((dict(enumerate(weight)), value + 1e-12 * (1 + abs(value))))
    problem = Problem(graph, domain, (make_rows(rows), make_rows(rows[:1])))
    found, batch = bound(problem)
    assert not found.closed[0] and found.margin[0] <= 0
    assert (batch.lower[0] <= x).all() and (x <= batch.upper[0]).all()
    inner = evaluate(graph, sample(domain, 40, seed))
    z = np.concatenate([inner[graph.nodes[i].parents[0]] for i in graph.relus], 1)
    phase = batch.phase[0][engines.stable_phases(graph, None) == 0][: z.shape[1]]
    assert (z[:, phase > 0] >= -1e-12).all() and (z[:, phase < 0] <= 1e-12).all()


@pytest.mark.parametrize("scale", [1e-160, 1e-80, 1e80, 1e160])
def test_numbers_out_of_range_prove_nothing_wrong(scale: float) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        builder = GraphBuilder(2)
        hidden = builder.add(
            Relu(3), builder.add(Dense(3, rng.normal(size=3) * scale, rng.normal(size=(3, 2))), 0)
        )
        product = builder.add(
            Product(3), hidden, builder.add(Dense(3, np.zeros(3), rng.normal(size=(3, 3))), hidden)
        )
        graph = builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 3)) * scale), product))
        with np.errstate(all="ignore"):
            y = evaluate(graph, rng.uniform(-1, 1, (200, 2)))[graph.output]
            for rhs in (float(np.nan_to_num(y).min()), 0.0):
                problem = Problem(graph, Domain(-np.ones(2), np.ones(2)), (make_rows([({2: 1.0}, rhs)]),))
                found, _ = bound(problem)
                assert not found.closed[0] or not (y <= rhs).any()


def test_whole_searches_agree_with_the_truth() -> None:
    """Levels on both sides of the least value on a grid; most are decided."""
    decided = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        builder = GraphBuilder(2)
        hidden = builder.add(Relu(6), builder.add(Dense(6, rng.normal(size=6), rng.normal(size=(6, 2))), 0))
        factor = builder.add(Dense(3, rng.normal(size=3), rng.normal(size=(3, 6))), hidden)
        product = builder.add(
            Product(3), factor, builder.add(Dense(3, np.zeros(3), rng.normal(size=(3, 3))), factor)
        )
        graph = builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 3))), product))
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), -1).reshape(-1, 2)
        values = evaluate(graph, grid)[graph.output]
        least, room = float(values.min()), 0.03 * float(np.ptp(values))
        for level, truth in ((least + room / 9, Verdict.SAT), (least - room, Verdict.UNSAT)):
            problem = Problem(graph, Domain(-np.ones(2), np.ones(2)), (make_rows([({2: 1.0}, level)]),))
            context = Context(Budget(2.0), check=lambda x, p=problem: miss(p, x) <= 0)  # type: ignore[misc]
            engine = make_engine(problem, context.budget)
            assert isinstance(engine, QuadraticEngine)
            verdict = InputSearch(problem, engine, context, 64).run().verdict
            assert verdict in (truth, Verdict.UNKNOWN)
            decided += verdict is truth
    assert decided >= 10


def test_a_row_that_one_disjunct_says_twice_is_not_in_all() -> None:
    """The first disjunct has an impossible row twice, the second holds everywhere: the box stays open."""
    graph = network(0)
    n = graph.input_size
    (domain,) = boxes(np.random.default_rng(0), n, (0.1,))
    never, always = ({n: 1.0}, -1e6), ({n: 1.0}, 1e6)
    problem = Problem(graph, domain, (make_rows([never, never]), make_rows([always])))
    found, _ = bound(problem)
    assert not found.closed[0]


def test_repeated_rows_are_bounded_once() -> None:
    """Two disjuncts share a row; the table holds it once, and both disjuncts point to it."""
    graph = network(0)
    n = graph.input_size
    (domain,) = boxes(np.random.default_rng(0), n, (0.1,))
    shared, other, third = ({n: 1.0}, 0.5), ({n + 1: 1.0}, 0.5), ({0: 1.0, n + 2: -1.0}, 0.5)
    problem = Problem(graph, domain, (make_rows([shared, other]), make_rows([third, shared])))
    table = QuadraticEngine(problem, 1).quadratics
    rows = table.weight[int(table.kernel.offset[-1]) :].reshape(3, -1)
    assert list(table.start) == [0, 2, 4] and sorted(table.uses) == [1, 1, 2] and table.uses[0] == 2
    whole = table.kernel.weight[int(table.kernel.offset[-1]) :].reshape(4, -1)
    for d in range(2):
        mine = rows[table.member[table.start[d] : table.start[d + 1]]]
        assert sorted(map(tuple, mine)) == sorted(map(tuple, whole[2 * d : 2 * d + 2]))
    assert len(all_rows(problem)[2]) == 4


@pytest.mark.parametrize("kind", [KernelEngine, QuadraticEngine])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_a_stored_bias_may_be_off_is_charged_to_rows_of_either_sign(
    kind: type[KernelEngine], sign: float
) -> None:
    """sign * relu(x + bias) on [0, 1]; the bias is 1 up to 1/4, so it may be as low as 0.75 or -2.25."""
    builder = GraphBuilder(1)
    hidden = builder.add(Relu(1), builder.add(Dense(1, np.ones(1), np.eye(1), None, np.full(1, 0.25)), 0))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.full((1, 1), sign)), hidden))
    domain = Domain(np.zeros(1), np.ones(1))
    attained_at = 0.75 if sign > 0 else -2.25
    for beyond, closed in ((0.1, False), (-0.1, True)):
        problem = Problem(graph, domain, (make_rows([({1: 1.0}, attained_at + beyond)]),))
        engine = kind(problem, 1)
        batch = BoxBatch(domain.lower[None].copy(), domain.upper[None].copy(), engine.phase[None].copy())
        assert bool(engine.bound(batch).closed[0]) is closed
