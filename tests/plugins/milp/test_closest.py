"""`milp.minimise`: its distance is proved, by the judgement of exact arithmetic, and its point is the closest."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from verifolio.graph import Dense, Graph, Relu
from verifolio.graph.enclosure import enclose
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem, dense_rows
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.milp.options import MilpOptions
from verifolio.plugins.milp.verifier import Milp
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.generate import Shape, generate, random_graph
from verifolio.testing.networks import dense_graph
from verifolio.testing.regions import linear_regions
from verifolio.vnnlib import make_rows

z3 = pytest.importorskip("z3", reason="exact arithmetic judges the distances")
SEED = 3  # its counterexamples keep away from the centre of the box
SCALES = (0.0, 2.0, 4.0)  # powers of ten by which neurons differ


def context(problem: Problem, seconds: float = 30.0) -> Context:
    return Context(
        Budget(seconds),
        bounders=current_plugins().all_bounders(),
        check=checker(problem, single=True),
        seed=1,
    )


# an independent judge: the network in exact rationals, ReLU as a case distinction


def exact(value: float) -> Any:
    fraction = Fraction(float(value))
    return z3.Q(fraction.numerator, fraction.denominator)


def exact_rows(matrix: np.ndarray, values: list[Any], shift: np.ndarray) -> list[Any]:
    found = []
    for row, constant in zip(matrix, shift, strict=True):
        terms = [exact(w) * v for w, v in zip(row, values, strict=True)]
        found.append(z3.Sum([exact(constant), *terms]))
    return found


def exact_outputs(graph: Graph, x: list[Any]) -> list[Any]:
    values = [x]
    for node in graph.nodes[1:]:
        read = values[node.parents[0]]
        if isinstance(node.op, Relu):
            values.append([z3.If(v > 0, v, 0) for v in read])
        else:
            assert isinstance(node.op, Dense)
            values.append(exact_rows(node.op.weight, read, node.op.bias))
    return values[graph.output]


def reachable(problem: Problem, ball: Ball, distance: float, strict: bool) -> bool:
    """Whether exact arithmetic knows a counterexample closer than the distance (or just as close)."""
    n, domain = problem.domain.size, problem.domain
    x = [z3.Real(f"x{k}") for k in range(n)]
    y = exact_outputs(problem.graph, x)
    solver = z3.Solver()
    for k in range(n):
        solver.add(x[k] >= exact(domain.lower[k]), x[k] <= exact(domain.upper[k]))
    some = []
    for rows in problem.disjuncts:
        a, b, rhs = dense_rows(rows, n, len(y))
        some.append(z3.And([r <= 0 for r in exact_rows(np.hstack([a, b]), [*x, *y], -rhs)]))
    solver.add(z3.Or(some))
    apart = [z3.If(v > exact(c), v - exact(c), exact(c) - v) for v, c in zip(x, ball.centre, strict=True)]
    limit = exact(distance)
    if ball.norm == 1:
        solver.add(z3.Sum(apart) < limit if strict else z3.Sum(apart) <= limit)
    else:
        solver.add([d < limit if strict else d <= limit for d in apart])
    answer = solver.check()
    assert answer in (z3.sat, z3.unsat)
    return bool(answer == z3.sat)


def short(values: np.ndarray) -> np.ndarray:
    """The same numbers with ten bits each, so that exact arithmetic is quick."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 1024) / 1024, exponent))


def random_problem(rng: np.random.Generator, spread: float, width: int = 3) -> tuple[Problem, Ball]:
    """A classifier of 2 inputs whose neurons differ by powers of ten; their readers do not undo it all."""
    scale = 10.0 ** rng.uniform(-spread, spread, (2, width))
    shift = 10.0 ** rng.uniform(-1, 1, width) if spread else np.ones(width)
    layers = [
        (rng.normal(size=(width, 2)) * scale[0][:, None], rng.normal(size=width) * scale[0] / 2),
        (
            rng.normal(size=(width, width)) / scale[0] * scale[1][:, None],
            rng.normal(size=width) * scale[1] / 2,
        ),
        (rng.normal(size=(3, width)) / scale[1] * shift, rng.normal(size=3) / 2),
    ]
    layers = [(short(weight), short(bias)) for weight, bias in layers]
    centre = short(rng.uniform(-1, 1, 2))
    top = int(rng.integers(3))
    rows = [make_rows([({2 + top: 1.0, 2 + k: -1.0}, -0.5)]) for k in range(3) if k != top]
    problem = Problem(dense_graph(layers), Domain(-3 * np.ones(2), 3 * np.ones(2)), tuple(rows))
    return problem, Ball(centre, float(rng.choice([0.25, 2.0, 5.0])), float(rng.choice([1.0, np.inf])))


@pytest.mark.parametrize("spread", SCALES)
@pytest.mark.parametrize("seed", range(12))
def test_the_proved_distance_never_exceeds_the_true_minimum(seed: int, spread: float) -> None:
    rng = np.random.default_rng((seed, int(spread)))
    problem, ball = random_problem(rng, spread)
    outcome = Milp().minimise(problem, ball, context(problem))
    assert outcome.distance is not None and outcome.distance <= ball.radius
    assert not reachable(problem, ball, outcome.distance, strict=True)
    if outcome.verdict is Verdict.UNSAT:
        assert not reachable(problem, ball, ball.radius, strict=False)
    elif spread <= 2:  # and it is not modest either
        assert reachable(problem, ball, outcome.distance + 1e-4 * ball.radius, strict=False)


def test_a_counterexample_at_the_centre_or_on_the_rim() -> None:
    graph = dense_graph([(np.eye(2), np.zeros(2)), ([[1, 1]], [0])])
    domain = Domain(-np.ones(2), np.ones(2))
    for threshold, true in ((0.0, 0.0), (1.0, 0.5)):
        problem = Problem(graph, domain, (make_rows([({2: -1.0}, -threshold)]),))
        ball = Ball(np.zeros(2), 0.5, np.inf)
        outcome = Milp().minimise(problem, ball, context(problem))
        assert outcome.verdict is not Verdict.UNSAT
        assert outcome.distance is not None and outcome.distance <= true
        assert outcome.distance == pytest.approx(true, abs=1e-6)


def test_a_point_that_never_replays_leaves_the_distance_proved() -> None:
    made = generate(np.random.default_rng(SEED), Shape(width=4), 0.2, disjuncts=2)
    domain = made.problem.domain
    ball = Ball((domain.lower + domain.upper) / 2, 4.0, np.inf)
    deaf = replace(context(made.problem), check=lambda _: False)
    outcome = Milp().minimise(made.problem, ball, deaf)
    assert outcome.verdict is Verdict.UNKNOWN and outcome.point is None
    assert "replay" in outcome.reason
    truth = closest_distance(made.problem, ball)
    assert outcome.distance is not None and outcome.distance <= truth
    assert outcome.distance == pytest.approx(truth, abs=1e-4)


def test_a_ball_without_a_radius_covers_the_domain() -> None:
    made = generate(np.random.default_rng(SEED), Shape(width=4), 0.2)
    domain = made.problem.domain
    for norm in (1.0, np.inf):
        ball = Ball((domain.lower + domain.upper) / 2, math.inf, norm)
        outcome = Milp().minimise(made.problem, ball, context(made.problem))
        assert outcome.distance == pytest.approx(closest_distance(made.problem, ball), abs=1e-4)


def test_other_norms_are_refused() -> None:
    made = generate(np.random.default_rng(SEED), Shape(), 0.2)
    outcome = Milp().minimise(made.problem, Ball(np.zeros(2), 1.0, 2.0), context(made.problem))
    assert outcome.verdict is Verdict.UNKNOWN and outcome.distance == 0.0 and "norms" in outcome.reason


def test_stopped_early_it_keeps_what_it_proved() -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, Shape(inputs=20, width=20, depth=2, outputs=2))
    centre = rng.uniform(-0.5, 0.5, 20)
    y = enclose(graph, centre)[0]
    top = int(y.argmax())
    rows = make_rows([({20 + top: 1.0, 21 - top: -1.0}, 0.0)])
    problem = Problem(graph, Domain(centre - 1, centre + 1), (rows,))
    ball, milp = Ball(centre, 1.0, np.inf), Milp(MilpOptions(tighten=0.0))
    whole = milp.minimise(problem, ball, context(problem))
    assert whole.distance is not None
    early = []
    for most in range(10, 60, 10):
        polls = itertools.count()
        budget = Budget(60.0, stop=lambda polls=polls, most=most: next(polls) > most)  # type: ignore[misc]
        outcome = milp.minimise(problem, ball, replace(context(problem), budget=budget))
        assert outcome.distance is not None and outcome.distance <= whole.distance + 1e-9
        assert next(polls) < most + 20
        if outcome.reason == "out of time":
            assert outcome.verdict in (Verdict.SAT, Verdict.CANCELLED)
            early.append(outcome.distance)
    assert early and max(early) > 0.0


@pytest.mark.parametrize("norm", [1.0, np.inf])
@pytest.mark.parametrize(("search", "solver"), [("tree", "auto"), ("solver", "highs"), ("solver", "auto")])
def test_minimise_finds_the_closest_counterexample(norm: float, search: str, solver: str) -> None:
    made = generate(np.random.default_rng(SEED), Shape(width=4), 0.2, disjuncts=2)
    domain = made.problem.domain
    ball = Ball((domain.lower + domain.upper) / 2, 4.0, norm)
    options = MilpOptions(search=search, solver=solver)  # type: ignore[arg-type]
    outcome = Milp(options).minimise(made.problem, ball, context(made.problem))
    truth = closest_distance(made.problem, ball)
    assert truth > 0.01
    assert outcome.point is not None and outcome.distance is not None
    assert outcome.distance <= truth + 1e-9
    assert outcome.distance == pytest.approx(truth, abs=1e-4)
    assert ball.distance(outcome.point) == pytest.approx(truth, abs=1e-4)


def closest_distance(problem: Problem, ball: Ball) -> float:
    """By linear programs, one per linear region and disjunct."""
    size, best = problem.domain.size, np.inf
    eye, zero = np.eye(size), np.zeros((size, size))
    total = np.ones(size) if ball.norm == 1 else np.zeros(size)
    cost = np.concatenate([np.zeros(size), total, [0.0 if ball.norm == 1 else 1.0]])
    box = [*zip(problem.domain.lower, problem.domain.upper, strict=True), *[(0, None)] * (size + 1)]
    for region in linear_regions(problem):
        for rows in problem.disjuncts:
            a, b, rhs = dense_rows(rows, size, problem.graph.output_size)
            m = a + b @ region.output.matrix
            sides = [[m, np.zeros((len(rhs), size + 1))]]
            limits = [rhs - b @ region.output.constant]
            sides.append([region.sides, np.zeros((len(region.limits), size + 1))])
            limits.append(region.limits)
            for sign in (1.0, -1.0):
                sides.append([sign * eye, np.hstack([-eye, np.zeros((size, 1))])])
                limits.append(sign * ball.centre)
            sides.append([zero, np.hstack([eye, -np.ones((size, 1))])])
            limits.append(np.zeros(size) if ball.norm != 1 else np.full(size, 1e6))
            answer = linprog(cost, np.block(sides), np.concatenate(limits), bounds=box)
            best = min(best, float(answer.fun)) if answer.fun is not None and answer.status == 0 else best
    return best


def test_minimise_proves_that_a_small_ball_holds_none() -> None:
    made = generate(np.random.default_rng(SEED), Shape(width=4), 0.2, disjuncts=2)
    domain = made.problem.domain
    centre = (domain.lower + domain.upper) / 2
    ball = Ball(centre, 0.9 * closest_distance(made.problem, Ball(centre, 9.0, np.inf)), np.inf)
    outcome = Milp().minimise(made.problem, ball, context(made.problem))
    assert outcome.verdict is Verdict.UNSAT
    assert outcome.distance == ball.radius
