"""Bounds and searches on networks with steps, against samples, exact values and thresholds that are attained."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.graph import Concat, Dense, Graph, GraphBuilder, Relu, Select, Step, Whole
from verifolio.graph.module import GraphModule
from verifolio.graph.settle import settle
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.bounder import AlphaBounder, CrownBounder, IntervalBounder
from verifolio.plugins.crown.propagate.relax.step import StepRelaxation
from verifolio.plugins.crown.search.cells import Cells, CellSplit, switches
from verifolio.plugins.crown.smooth import Smooth
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.vnnlib import make_rows

SIGN = (np.array([0.0]), np.array([-1.0, 1.0]), np.array([0.0]))
EQUAL = (np.array([0.5]), np.array([0.0, 0.0]), np.array([1.0]))
KINDS = ["sign", "floor", "round", "trunc", "equal", "grid"]


def network(rng: np.random.Generator, kind: str, inputs: int = 5, width: int = 32) -> Graph:
    """Dense layers 32 wide with steps, then ReLUs, then steps again."""
    builder = GraphBuilder(inputs)
    node, size = 0, inputs
    for k in range(3):
        weight = rng.normal(size=(width, size)) / math.sqrt(size)
        weight = np.sign(weight) if kind == "grid" and k else weight
        weight = weight.astype(np.float32).astype(np.float64)
        bias = (
            np.zeros(width)
            if kind == "grid"
            else rng.normal(size=width).astype(np.float32).astype(np.float64)
        )
        node, size = builder.add(Dense(width, bias=bias, weight=weight), node), width
        if k == 1:
            node = builder.add(Relu(width), node)
        elif kind in ("sign", "grid"):
            node = builder.add(Step(width, *SIGN), node)
        elif kind == "equal":
            node = builder.add(Step(width, *EQUAL), node)
        else:
            node = builder.add(Whole(width, kind), node)
    weight = rng.normal(size=(3, size)).astype(np.float32).astype(np.float64)
    return builder.finish(builder.add(Dense(3, bias=np.zeros(3), weight=weight), node))


def outputs(graph: Graph, points: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(GraphModule(graph, torch.float64)(torch.from_numpy(points)).numpy())


def problem_of(
    graph: Graph, low: np.ndarray, high: np.ndarray, terms: dict[int, float], rhs: float
) -> Problem:
    return Problem(settle(graph, low, high), Domain(low, high), (make_rows([(terms, rhs)]),))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounder", [IntervalBounder(), CrownBounder(), AlphaBounder()], ids=lambda b: b.name)
def test_bounds_hold_what_is_attained(kind: str, bounder: Bounder) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for radius in (0.02, 0.3):
        graph = network(rng, kind)
        centre = rng.normal(size=5)
        low, high = centre - radius, centre + radius
        problem = problem_of(graph, low, high, {5: 1.0, 6: -1.0}, 0.0)
        assert all(getattr(problem.graph.nodes[i].op, "settled", False) for i in problem.graph.steps)
        (bounds,) = bounder.bound([problem])
        points = np.concatenate(
            [rng.uniform(low, high, (400, 5)), np.where(rng.random((50, 5)) < 0.5, low, high)]
        )
        with torch.no_grad():
            values = GraphModule(problem.graph, torch.float64).values(torch.from_numpy(points))
        for node in bounds.lower:
            value = values[node].numpy()
            assert bool((value >= bounds.lower[node] - 1e-9).all()) and bool(
                (value <= bounds.upper[node] + 1e-9).all()
            )
        y = outputs(graph, points)
        assert float((y[:, 0] - y[:, 1]).min()) >= float(bounds.margins_of(problem)[0][0]) - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_no_proof_at_an_attained_threshold(kind: str) -> None:
    rng = np.random.default_rng(10 + KINDS.index(kind))
    for trial in range(2):
        graph = network(rng, kind)
        centre = rng.normal(size=5)
        radius = 0.05 * 3**trial
        low, high = centre - radius, centre + radius
        least = float(outputs(graph, rng.uniform(low, high, (2000, 5)))[:, 0].min())
        problem = problem_of(graph, low, high, {5: 1.0}, least)
        for verifier in (Smooth(), Crown()):
            outcome = verifier.run(problem, Context(Budget(0.7)))
            assert not outcome.verdict.decided, (kind, verifier.name)


def test_small_networks_are_decided_both_ways() -> None:
    rng = np.random.default_rng(5)
    decided = 0
    for _ in range(6):
        graph = network(rng, "sign", inputs=2, width=6)
        low, high = np.array([-0.5, -0.5]), np.array([0.5, 0.5])
        grid = np.stack(np.meshgrid(*[np.linspace(-0.5, 0.5, 201)] * 2), -1).reshape(-1, 2)
        values = outputs(graph, grid)[:, 0]
        for rhs, expected in ((values.min() + 1e-3, "sat"), (values.min() - 1.0, "unsat")):
            problem = problem_of(graph, low, high, {2: 1.0}, float(rhs))
            check = lambda x, g=graph, t=rhs: float(outputs(g, x[None])[0, 0]) <= t  # noqa: E731
            outcome = Smooth().run(problem, Context(Budget(5.0), check=check))
            if outcome.verdict.decided:
                decided += 1
                assert (outcome.point is not None) == (expected == "sat")
    assert decided >= 9


def test_a_side_of_a_jump_counts_where_sums_are_exact() -> None:
    """The sum of two signs is never 1; and the sign of the sum is 0 somewhere."""
    builder = GraphBuilder(2)
    signs = builder.add(Step(2, *SIGN), 0)
    total = builder.add(Dense(1, bias=np.array([-1.0]), weight=np.ones((1, 2))), signs)
    graph = builder.finish(
        builder.add(Step(1, np.array([0.0]), np.array([0.0, 0.0]), np.array([1.0])), total)
    )
    box = np.array([0.25, 0.25]), np.array([0.5, 0.5])
    never = problem_of(graph, *box, {2: -1.0}, -1.0)  # 1 + 1 - 1 is not 0
    assert Crown().run(never, Context(Budget(5.0))).verdict.decided
    wide = problem_of(graph, -box[1], box[1], {2: -1.0}, -1.0)  # 1 + 0 - 1 is
    outcome = Crown().run(wide, Context(Budget(5.0)))
    assert not (outcome.verdict.decided and outcome.point is None)


@pytest.mark.parametrize("kind", KINDS[:4])
def test_lines_enclose_the_step(kind: str) -> None:
    rng = np.random.default_rng(7)
    graph = settle(one_step(kind), np.full(1, -6.0), np.full(1, 6.0))
    op = graph.nodes[graph.output].op
    assert isinstance(op, Step)
    rule = StepRelaxation(op)
    for _ in range(200):
        ends = np.sort(rng.choice([*op.breakpoints, *rng.uniform(-6, 6, 4)], 2))
        interval = tuple(torch.tensor([[float(e)]], dtype=torch.float64) for e in ends)
        x = torch.linspace(float(ends[0]), float(ends[1]), 301, dtype=torch.float64)
        inside = [b for b in op.breakpoints if ends[0] <= b <= ends[1]]
        x = torch.cat([x, torch.tensor(inside, dtype=torch.float64)])
        y = rule.table.value(x)
        for parameter in (None, torch.full((1, 2), float(rng.random()), dtype=torch.float64)):
            lines = rule.lines(parameter, interval)  # type: ignore[arg-type]
            assert lines.lower_bias is not None and lines.upper_bias is not None
            assert bool((lines.lower_slope[0][0] * x + lines.lower_bias[0] <= y).all())
            assert bool((lines.upper_slope[0][0] * x + lines.upper_bias[0] >= y).all())


def one_step(kind: str) -> Graph:
    builder = GraphBuilder(1)
    op = Step(1, *SIGN) if kind == "sign" else Whole(1, kind)
    return builder.finish(builder.add(op, 0))


def test_cells_agree_with_all_positions() -> None:
    """Steps on inputs choose rows of a table: every cell is one value."""
    rng = np.random.default_rng(8)
    builder = GraphBuilder(3)
    places = builder.add(Whole(2, "trunc"), builder.add(Select(2, np.array([0, 2])), 0))
    hidden = builder.add(Dense(16, bias=rng.normal(size=16), weight=rng.normal(size=(16, 2))), places)
    graph = builder.finish(
        builder.add(
            Dense(1, bias=np.zeros(1), weight=rng.normal(size=(1, 16))), builder.add(Relu(16), hidden)
        )
    )
    low, high = np.array([0.0, 0.5, -3.0]), np.array([7.5, 0.5, 4.0])
    every = np.stack(np.meshgrid(np.arange(8.0), [0.5], np.arange(-3.0, 5.0)), -1).reshape(-1, 3)
    least = float(outputs(graph, every).min())
    for rhs, expected in ((least - 1e-3, False), (least + 1e-3, True)):
        problem = problem_of(graph, low, high, {3: 1.0}, rhs)
        found = switches(problem)
        assert len(found) == 2
        check = lambda x, t=rhs: float(outputs(graph, x[None])[0, 0]) <= t  # noqa: E731
        outcome = CellSplit(problem, Context(Budget(20.0), check=check), found).run()
        assert outcome.verdict.decided and (outcome.point is not None) == expected


def test_a_step_that_is_not_settled_proves_nothing() -> None:
    graph = network(np.random.default_rng(9), "sign")
    low, high = np.full(5, 0.1), np.full(5, 0.1)
    rows = make_rows([({5: 1.0}, float(outputs(graph, low[None])[0, 0]) - 1.0)])
    raw = Problem(graph, Domain(low, high), (rows,))
    assert not Crown().run(raw, Context(Budget(2.0))).verdict.decided
    assert (
        Crown()
        .run(Problem(settle(graph, low, high), Domain(low, high), (rows,)), Context(Budget(5.0)))
        .verdict.decided
    )


def test_who_has_no_treatment_of_steps_refuses() -> None:
    from verifolio.plugin.manager import current_plugins

    graph = network(np.random.default_rng(11), "sign")
    problem = problem_of(graph, -np.ones(5), np.ones(5), {5: 1.0}, 0.0)
    treated = {"crown", "smooth", "interval", "alpha"}
    asked = []
    found: dict[str, Any] = {**current_plugins().bounders.usable(), **current_plugins().verifiers.usable()}
    for name, cls in found.items():
        if name not in treated and getattr(cls, "can_prove", True):
            asked.append(name)
            assert cls().refuses(problem) is not None, name
    assert {"milp", "smt"} <= set(asked)


def test_a_cell_of_two_steps_on_one_input_is_tried_where_both_have_its_levels() -> None:
    """A cell is closed in single precision by running its point, so the point has to be in it."""
    builder = GraphBuilder(1)
    first = builder.add(Whole(1, "floor"), 0)
    second = builder.add(Step(1, np.zeros(1), np.array([0.0, 1.0]), np.ones(1)), 0)
    whole = builder.finish(builder.add(Concat(2), first, second))
    lower, upper = np.array([-3.5]), np.array([60.5])
    rows = make_rows([({1: 1.0}, 100.0)])
    problem = Problem(settle(whole, lower, upper), Domain(lower, upper), (rows,))
    split = CellSplit(problem, Context(), switches(problem))
    a, b = (s.levels for s in split.found)
    met = {tuple(y) for y in outputs(whole, np.arange(-3.5, 60.5, 0.25)[:, None])}
    for i, j in itertools.product(range(len(a)), range(len(b))):
        at = np.array([[i, j]])
        point = split._points(Cells(at, at))
        if (a[i], b[j]) in met:
            assert outputs(whole, point).tolist() == [[a[i], b[j]]]
