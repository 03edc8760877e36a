"""Branching on values: whatever the pieces and the variables are, what is proved holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from verifolio.graph import Constant, Dense, Elementwise, Graph, GraphBuilder, Product, Scale
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.options import SmoothOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.root import RootBounds
from verifolio.plugins.crown.search.values.assume import assume
from verifolio.plugins.crown.search.values.bounds import ValueBounds
from verifolio.plugins.crown.search.values.pieces import Pieces
from verifolio.plugins.crown.smooth import Smooth
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.networks import bells, gated, plus_minus
from verifolio.testing.trial import evaluate, sample
from verifolio.vnnlib import make_rows

WIDE = Domain(-np.full(3, 0.7), np.full(3, 0.7))


def on_inputs(seed: int) -> Graph:
    """y = w sigmoid(x) + v x_0 x_1: functions that read the inputs themselves."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(3)
    squashed = builder.add(Elementwise(3, "sigmoid"), 0)
    product = builder.add(Product(3), 0, squashed)
    return builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 3))), product))


def least(graph: Graph, domain: Domain = WIDE) -> tuple[float, float]:
    """The least output of a sample, and how much outputs differ."""
    values = evaluate(graph, sample(domain, 500))[graph.output]
    return float(values.min()), float(np.ptp(values))


def bounds_of(problem: Problem) -> ValueBounds:
    root_bounds = RootBounds(problem, Space(torch.float64), Budget(60))
    for effort in (Effort(tighten=False), Effort()):
        root_bounds.tighten(effort)
    root_bounds.live = torch.arange(len(problem.disjuncts))
    return ValueBounds(root_bounds.root(), Budget(60))


def inside(bounds: ValueBounds, pieces: Pieces, points: np.ndarray) -> torch.Tensor:
    """Which points lie in which pieces (count, points); a hair's breadth aside."""
    nodes = evaluate(bounds.root.program.graph, points)
    values = torch.as_tensor(np.concatenate([nodes[p] for p in bounds.columns.nodes], 1))[None]
    slack = 1e-9
    low, high = pieces.low[:, None] - slack, pieces.high[:, None] + slack
    return ((values >= low) & (values <= high)).all(2)


@pytest.mark.parametrize("make", [gated, on_inputs])
@pytest.mark.parametrize("seed", range(6))
def test_any_piece_with_any_variables(make: Callable[[int], Graph], seed: int) -> None:
    """The bound of a piece is below the output at every point in it; also with a row over the inputs."""
    graph, rng = make(seed), np.random.default_rng(seed)
    rows = make_rows([({3: 1.0, 0: 0.3, 1: -0.2}, 0.1)])
    bounds = bounds_of(Problem(graph, WIDE, (rows,)))
    pieces, columns = bounds.first(), bounds.columns
    for _ in range(4):  # cut what may be cut, anywhere
        column = torch.as_tensor(rng.integers(0, len(columns.low), (len(pieces), 1)))
        low, high = pieces.low.gather(1, column), pieces.high.gather(1, column)
        at = low + (high - low) * torch.as_tensor(rng.random((len(pieces), 1)))
        pieces = replace(pieces, branch=column, at=at, under=at)
        pieces = pieces.split()
    points = sample(WIDE, 2000)
    where = inside(bounds, pieces, points)
    narrower, full = columns.propagated(bounds.root.state, pieces)
    assert bool((inside(bounds, narrower, points) | ~where).all())
    assert not bool((where.any(1) & ~full).any())
    first, last = columns.range(narrower)
    alpha = first + (last - first) * torch.as_tensor(rng.random(first.shape))
    multiplier = torch.as_tensor(rng.normal(size=narrower.low.shape))
    margin = bounds.evaluate(narrower, alpha, multiplier).margin[:, 0]
    wanted = evaluate(graph, points)[graph.output][:, 0] + points @ np.array([0.3, -0.2, 0]) - 0.1
    smallest = torch.where(where, torch.as_tensor(wanted)[None], torch.inf).amin(1)
    assert bool((margin <= smallest + 1e-9).all())
    assert bool(where.any(1).sum() > 1)


@pytest.mark.parametrize("seed", range(8))
def test_assuming_a_violation_keeps_every_violation(seed: int) -> None:
    graph = gated(seed)
    low, spread = least(graph)
    limit = low + 0.1 * spread
    bounds = bounds_of(Problem(graph, WIDE, (make_rows([({3: 1.0}, limit)]),)))
    pieces = bounds.first()
    pieces = bounds.ranked(pieces, bounds.ascend(pieces, 30))
    narrower = assume(bounds, pieces, 10, Budget(60, cores=2))
    points = sample(WIDE, 4000)
    violating = points[evaluate(graph, points)[graph.output][:, 0] <= limit]
    assert narrower is not None and len(violating)
    assert bool(inside(bounds, narrower, violating).all())
    assert bool((narrower.low >= pieces.low).all() & (narrower.high <= pieces.high).all())


def test_assuming_a_violation_proves_that_there_is_none() -> None:
    """Deep sigmoids: bounds alone leave it open, the assumption contradicts them."""
    rng = np.random.default_rng(3)
    builder, node = GraphBuilder(8), 0
    for width, size in ((8, 20), (20, 20), (20, 20)):
        dense = builder.add(
            Dense(size, rng.normal(size=size), rng.normal(size=(size, width)) / width**0.5), node
        )
        node = builder.add(
            Elementwise(size, "sigmoid"), builder.add(Dense(size, np.zeros(size), 3 * np.eye(size)), dense)
        )
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 20))), node))
    domain = Domain(-np.full(8, 0.5), np.full(8, 0.5))
    low, spread = least(graph, domain)
    problem = Problem(graph, domain, (make_rows([({8: 1.0}, low - 0.6 * spread)]),))
    bounds = bounds_of(problem)
    pieces = bounds.first()
    pieces = bounds.ranked(pieces, bounds.ascend(pieces, 60))
    assert float(pieces.bound) < 0
    before = float((pieces.high - pieces.low).sum())
    for _ in range(6):
        found = assume(bounds, pieces, 20, Budget(60))
        if found is None:
            return
        pieces = bounds.ranked(found, bounds.ascend(found, 60))
        if float(pieces.bound) > 0:
            return
    assert float((pieces.high - pieces.low).sum()) < 0.5 * before


@pytest.mark.parametrize("seed", [1, 3, 5, 7])
def test_a_cut_never_costs(seed: int) -> None:
    """With the variables of the whole, both parts of a smooth function are bounded at least as well."""
    graph = gated(seed)
    bounds = bounds_of(Problem(graph, WIDE, (make_rows([({3: 1.0}, least(graph)[0])]),)))
    pieces = bounds.first()
    pieces = bounds.ranked(pieces, bounds.ascend(pieces, 20))
    parts = bounds.ascend(pieces.split(), 1).margin
    assert bool((parts >= bounds.ascend(pieces, 1).margin - 1e-9).all())


def run(problem: Problem, seconds: float = 20.0, cores: int = 1, **options: int) -> tuple[Verdict, Evidence]:
    context = Context(Budget(seconds, cores=cores), check=checker(problem))
    outcome = Smooth(SmoothOptions(**options)).run(problem, context)
    return outcome.verdict, context.evidence


@pytest.mark.parametrize("cores", [1, 2])
def test_search(cores: int) -> None:
    """bells is between 1 and 1.965 on the unit square."""
    square = Domain(np.zeros(2), np.ones(2))
    for limit, verdict in ((1.97, Verdict.UNSAT), (1.95, Verdict.SAT)):
        problem = Problem(bells(), square, (make_rows([({2: -1.0}, -limit)]),))
        found, evidence = run(problem, cores=cores)
        assert found is verdict
        assert evidence.refutes(problem) == (verdict is Verdict.UNSAT)


def test_conjunctions() -> None:
    """Either row can hold, both cannot: sigmoids of x and of -x are not both above 0.9."""
    builder = GraphBuilder(1)
    both = builder.add(Dense(2, np.zeros(2), np.array([[1.0], [-1.0]])), 0)
    graph = builder.finish(builder.add(Elementwise(2, "sigmoid"), both))
    domain = Domain(-np.full(1, 9.0), np.full(1, 9.0))
    rows = make_rows([({1: -1.0}, -0.9), ({2: -1.0}, -0.9)])
    assert run(Problem(graph, domain, (rows,)))[0] is Verdict.UNSAT


def test_a_function_that_is_not_defined_everywhere_by_intervals() -> None:
    """log(x x + 0.5) is at least -0.6932; by intervals, x x is between -1 and 1 until x is cut at nought."""
    builder = GraphBuilder(1)
    above = builder.add(Scale(1, np.full(1, 0.5), np.ones(1)), builder.add(Product(1), 0, 0))
    graph = builder.finish(builder.add(Elementwise(1, "log"), above))
    for limit, verdict in ((-0.7, Verdict.UNSAT), (-0.68, Verdict.SAT)):
        problem = Problem(graph, Domain(-np.ones(1), np.ones(1)), (make_rows([({1: 1.0}, limit)]),))
        assert run(problem)[0] is verdict


def test_an_output_that_depends_on_nothing() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Elementwise(1, "sigmoid"), builder.add(Constant(1, np.full(1, 0.3)))))
    value = 1 / (1 + np.exp(-0.3))
    for limit, verdicts in ((value + 0.1, [Verdict.SAT]), (value, [Verdict.SAT, Verdict.UNKNOWN])):
        problem = Problem(graph, Domain(-np.ones(1), np.ones(1)), (make_rows([({1: 1.0}, limit)]),))
        assert run(problem, 2.0)[0] in verdicts
    context = Context(Budget(2.0), check=lambda _: False)  # nothing replays, so there is a search
    assert Smooth().run(problem, context).verdict is Verdict.UNKNOWN


def test_what_it_says_when_it_gives_up() -> None:
    """There are counterexamples, but none may be said: time runs out, and the answer tells how far it came."""
    graph = gated(3)
    low, spread = least(graph)
    problem = Problem(graph, WIDE, (make_rows([({3: 1.0}, low + 0.1 * spread)]),))
    outcome = Smooth().run(problem, Context(Budget(1.0), check=lambda _: False))
    assert outcome.verdict is Verdict.UNKNOWN
    assert "pieces open" in outcome.reason and "worst bound" in outcome.reason
    assert outcome.bound is not None and outcome.bound <= 0
    assert int(outcome.stats["open_domains"]) > 0


def test_phases_are_for_others() -> None:
    problem = Problem(plus_minus(), Domain(-np.ones(2), np.ones(2)), (make_rows([({2: -1.0}, -2.5)]),))
    assert "choose crown" in str(Smooth().refuses(problem))
