"""The pointwise falsifiers find the nearest counterexample of one linear region, and never prove anything."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog
from torch import nn

from verifolio import Network
from verifolio.encode.torch_export import export_onnx
from verifolio.graph import Dense, Elementwise, GraphBuilder, Relu
from verifolio.graph.enclosure import enclose
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem, dense_rows
from verifolio.plugin.choice import Choice
from verifolio.plugin.verifier import Context
from verifolio.plugins.pointwise_lp.pattern import Slopes, pattern_at
from verifolio.plugins.pointwise_lp.verifier import Lbfgs, LbfgsOptions, PointwiseLp, PointwiseLpOptions
from verifolio.run.budget import Budget
from verifolio.solve.oracle import Oracle
from verifolio.testing.check import checker
from verifolio.testing.generate import (
    KINDS,
    Kind,
    Shape,
    generate,
    random_domain,
    random_graph,
    write_problem,
)
from verifolio.vnnlib import make_rows


def context(problem: Problem, seconds: float = 20.0) -> Context:
    return Context(budget=Budget(seconds), check=checker(problem))


@pytest.mark.parametrize("kind", KINDS)
def test_the_pattern_is_the_network_near_the_point(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, Shape(kind, inputs=4, width=5))
    x = rng.normal(size=4)
    pattern = pattern_at(graph, x)
    assert bool((pattern.sides @ x <= pattern.limits + 1e-12).all())
    for near in x + 1e-7 * rng.normal(size=(5, 4)):
        if bool((pattern.sides @ near <= pattern.limits).all()):
            assert pattern.matrix @ near + pattern.constant == pytest.approx(
                enclose(graph, near)[0], abs=1e-9
            )


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_the_rows_of_the_pattern(kind: Kind) -> None:
    rng = np.random.default_rng(1)
    graph = random_graph(rng, Shape(kind, inputs=4, width=5))
    x = rng.normal(size=4)
    pattern, slopes = pattern_at(graph, x), Slopes(graph, x)
    assert slopes.outputs == pytest.approx(pattern.matrix @ x + pattern.constant, abs=1e-9)
    for weights in np.eye(len(slopes.outputs)):
        assert slopes.of(weights) == pytest.approx(weights @ pattern.matrix, abs=1e-9)


def on_a_kink(radius: float) -> tuple[Problem, Ball]:
    """The margin 0.1 + (x - 0.5) + 3 relu(x - 0.5) is 0 at 0.4, on the inactive side of the kink at x = 0.5."""
    builder = GraphBuilder(1)
    bent = builder.add(Relu(2), builder.add(Dense(2, np.array([-0.5, 8.0]), np.ones((2, 1))), 0))
    graph = builder.finish(builder.add(Dense(1, np.array([-8.4]), np.array([[3.0, 1.0]])), bent))
    row = make_rows([({1: 1.0}, 0.0)])
    return Problem(graph, Domain(np.zeros(1), np.ones(1)), (row,)), Ball(np.array([0.5]), radius, np.inf)


def test_a_neuron_at_0_is_taken_on_the_side_that_leads_to_the_target() -> None:
    problem, ball = on_a_kink(0.2)
    found = PointwiseLp(PointwiseLpOptions()).minimise(problem, ball, context(problem))
    assert found.point == pytest.approx([0.4], abs=1e-5)


def test_no_pattern_is_built_where_the_slopes_cannot_reach() -> None:
    problem, ball = on_a_kink(0.05)
    found = PointwiseLp(PointwiseLpOptions()).minimise(problem, ball, context(problem))
    assert found.point is None and found.stats["pattern_rows"] == 0


@pytest.mark.parametrize("side", [2, 3, 4])
def test_only_the_winner_of_a_pool_has_to_win(side: int, tmp_path: Path) -> None:
    """How the losers of a maximum stand to each other is left open: exactly so for windows of 2 x 2."""
    export_onnx(nn.Sequential(nn.MaxPool2d(side), nn.Flatten()), tmp_path / "pool.onnx", (1, side, side))
    graph, rng, seen = Network.load(tmp_path / "pool.onnx").graph, np.random.default_rng(0), 0
    for _ in range(5):
        x = rng.uniform(0, 1, side * side)
        pattern, points = pattern_at(graph, x), x + rng.uniform(-0.1, 0.1, (400, side * side))
        inside = (points @ pattern.sides.T <= pattern.limits).all(axis=1)
        won = points.argmax(axis=1) == x.argmax()
        assert bool((pattern.sides @ x <= pattern.limits).all())
        assert not (inside & ~won).any()
        assert side > 2 or bool((inside == won).all())
        seen += int(inside.sum())
    assert seen > 0


def classifier(seed: int, inputs: int = 6) -> tuple[Problem, Ball]:
    """A small classifier, the reference point and the question for another label."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, Shape(inputs=inputs, width=10, depth=2, outputs=4))
    x = rng.uniform(0.3, 0.7, inputs)
    label = int(enclose(graph, x)[0].argmax())
    others = [k for k in range(4) if k != label]
    rows = tuple(make_rows([({inputs + label: 1.0, inputs + k: -1.0}, 0.0)]) for k in others)
    return Problem(graph, Domain(np.zeros(inputs), np.ones(inputs)), rows), Ball(x, 1.0, np.inf)


@pytest.mark.parametrize("norm", [1.0, np.inf])
@pytest.mark.parametrize("seed", range(6))
def test_lazy_and_full_agree_with_one_plain_linear_program(seed: int, norm: float) -> None:
    problem, ball = classifier(seed)
    ball = replace(ball, norm=norm, radius=6.0)
    distances = []
    for lazy in (True, False):
        options = PointwiseLpOptions(targets="all", lazy=lazy)
        outcome = PointwiseLp(options).minimise(problem, ball, context(problem))
        found = outcome.point is not None
        distances.append(ball.distance(outcome.point) if found else np.inf)  # type: ignore[arg-type]
        assert outcome.distance == 0.0
    expected = min(plain_program(problem, ball, d) for d in range(3))
    assert distances[0] == pytest.approx(distances[1], abs=1e-5)
    assert distances[0] == pytest.approx(expected, abs=1e-4)


def plain_program(problem: Problem, ball: Ball, disjunct: int) -> float:
    n = problem.domain.size
    pattern = pattern_at(problem.graph, ball.centre)
    a, b, rhs = dense_rows(problem.disjuncts[disjunct], n, len(pattern.constant))
    out = np.hstack([a + b @ pattern.matrix, np.zeros((len(rhs), n + 1))])
    inside = np.hstack([pattern.sides, np.zeros((len(pattern.limits), n + 1))])
    eye, one = np.eye(n), np.ones((n, 1))
    blocks, limits = [out, inside], [rhs - b @ pattern.constant, pattern.limits]
    for sign in (1.0, -1.0):
        blocks.append(np.hstack([sign * eye, -eye, np.zeros((n, 1))]))
        limits.append(sign * ball.centre)
    if ball.norm == 1:
        blocks.append(np.hstack([np.zeros((1, n)), np.ones((1, n)), -np.ones((1, 1))]))
        limits.append(np.zeros(1))
    else:
        blocks.append(np.hstack([np.zeros((n, n)), eye, -one]))
        limits.append(np.zeros(n))
    box = [*zip(problem.domain.lower, problem.domain.upper, strict=True), *[(0, None)] * (n + 1)]
    cost = np.concatenate([np.zeros(2 * n), [1.0]])
    answer = linprog(cost, np.vstack(blocks), np.concatenate(limits), bounds=box)
    return float(answer.fun) if answer.fun is not None and answer.status == 0 else np.inf


@pytest.mark.parametrize("seed", range(6))
def test_its_radius_is_never_below_the_exact_minimum_and_its_point_replays(seed: int) -> None:
    from verifolio.plugins.milp.verifier import Milp

    problem, ball = classifier(seed, inputs=4)
    found = PointwiseLp(PointwiseLpOptions(targets="all")).minimise(problem, ball, context(problem))
    exact = Milp().minimise(problem, ball, context(problem, 60.0))
    assert exact.distance is not None
    if found.point is None:
        return  # nothing in the region of the centre
    radius = ball.distance(found.point)
    assert radius >= exact.distance - 1e-9
    assert exact.point is not None and ball.distance(exact.point) <= radius + 1e-5
    # the float32 point next to it, as core replays it
    near = np.asarray(np.float32(found.point), np.float64)
    assert ball.distance(near) <= radius + 1e-5
    assert checker(problem)(found.point)


def test_through_core_its_witness_replays_and_is_no_closer_than_what_milp_proves(tmp_path: Path) -> None:
    """The same statement about float32 points and ONNX Runtime, on files."""
    compared = 0
    with Oracle(executor="inline", timeout=60.0) as oracle:
        for seed in range(4):
            problem, ball = classifier(seed, inputs=4)
            query = write_problem(problem, tmp_path / str(seed))
            local = oracle.closest(query, ball, Choice("pointwise-lp", {"targets": "all"}))
            exact = oracle.closest(query, ball, Choice("milp"))
            assert local.lower == 0.0
            if local.witness is None:
                continue
            compared += 1
            assert exact.witness is not None and exact.lower <= exact.distance <= local.distance + 1e-5
            assert local.distance >= exact.lower
    assert compared >= 1


def test_alpha_is_kept_and_costs_distance() -> None:
    for seed in range(12):
        problem, ball = classifier(seed)
        plain = PointwiseLp().minimise(problem, ball, context(problem))
        deep = PointwiseLp(PointwiseLpOptions(alpha=0.05)).minimise(problem, ball, context(problem))
        if plain.point is not None and deep.point is not None:
            assert ball.distance(deep.point) >= ball.distance(plain.point) - 1e-9
            y = enclose(problem.graph, deep.point)[0]
            margins = [dense_rows(r, 6, 4)[1] @ y for r in problem.disjuncts]
            assert min(float(m.max()) for m in margins) <= -0.05 + 1e-6
            return
    pytest.fail("no seed has a counterexample in its own region")


def test_run_finds_what_lies_in_the_region_of_the_middle() -> None:
    found = 0
    for seed in range(10):
        made = generate(np.random.default_rng(seed), Shape(width=3, depth=1), 0.3, cuts=seed % 2)
        outcome = PointwiseLp(PointwiseLpOptions(targets="all")).run(made.problem, context(made.problem))
        assert outcome.verdict in (Verdict.SAT, Verdict.UNKNOWN)
        found += outcome.verdict is Verdict.SAT
    assert found >= 3


@pytest.mark.parametrize("make", [PointwiseLp, Lbfgs])
def test_a_failed_attack_is_no_proof(make: type[PointwiseLp] | type[Lbfgs]) -> None:
    made = generate(np.random.default_rng(1), Shape(), -0.1)
    assert make().run(made.problem, context(made.problem)).verdict is Verdict.UNKNOWN
    empty = made.problem.with_domain(Domain(np.ones(2), np.zeros(2)))
    assert make().run(empty, context(empty)).verdict is Verdict.UNKNOWN


def test_lbfgs_finds_close_counterexamples_and_keeps_the_largest_weight() -> None:
    found = 0
    for seed in range(6):
        problem, ball = classifier(seed)
        options = LbfgsOptions(targets="all", alpha=0.01)
        outcome = Lbfgs(options).minimise(problem, ball, context(problem))
        if outcome.point is None:
            continue
        found += 1
        assert checker(problem)(outcome.point)
        assert ball.distance(outcome.point) <= ball.radius
    assert found >= 2


def test_refusals_name_the_reason() -> None:
    builder = GraphBuilder(1)
    smooth = builder.finish(builder.add(Elementwise(1, "tanh"), 0))
    rows = (make_rows([({1: 1.0}, 0.0)]),)
    unit = Domain(np.zeros(1), np.ones(1))
    assert "piecewise" in str(PointwiseLp().refuses(Problem(smooth, unit, rows)))
    assert Lbfgs().refuses(Problem(smooth, unit, rows)) is None
    l2 = Problem(smooth, replace(unit, ball=Ball(np.zeros(1), 1.0, 2.0)), rows)
    assert "L2" in str(Lbfgs().refuses(l2))
    cut = random_domain(np.random.default_rng(0), 1, rows=1)
    assert "rows" in str(Lbfgs().refuses(Problem(smooth, cut, rows)))


def test_unbounded_inputs_and_ill_scaled_weights_are_harmless() -> None:
    builder = GraphBuilder(1)
    hidden = builder.add(Dense(1, np.zeros(1), np.full((1, 1), 1e8)), 0)
    graph = builder.finish(
        builder.add(Dense(1, np.zeros(1), np.full((1, 1), 1e-8)), builder.add(Relu(1), hidden))
    )
    open_domain = Domain(np.full(1, -np.inf), np.full(1, np.inf))
    problem = Problem(graph, open_domain, (make_rows([({1: -1.0}, -2.0)]),))
    outcome = PointwiseLp().run(problem, context(problem))
    assert outcome.verdict in (Verdict.SAT, Verdict.UNKNOWN)


def test_an_expired_budget_stops_at_once() -> None:
    problem, ball = classifier(0)
    started = time.monotonic()
    spent = Context(budget=Budget(0.0), check=checker(problem))
    assert PointwiseLp().minimise(problem, ball, spent).verdict is Verdict.UNKNOWN
    assert Lbfgs().minimise(problem, ball, spent).verdict is Verdict.UNKNOWN
    assert time.monotonic() - started < 1.0
