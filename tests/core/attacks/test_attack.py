"""The batched attack: what it finds holds, what cannot be is not found, and equal seeds give equal points."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from verifolio.attacks import AttackSettings, attack_many, unattackable
from verifolio.attacks.polish import polish
from verifolio.attacks.project import inside, project, steepest
from verifolio.attacks.targets import inner_box, make_targets
from verifolio.graph import Constant, Dense, Graph, GraphBuilder, Relu
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.run.budget import Budget
from verifolio.vnnlib import Rows, make_rows

QUICK = AttackSettings(rounds=2, restarts=4, steps=20, samples=500)


def dense(rng: np.random.Generator, inputs: int, outputs: int) -> Dense:
    weight = rng.normal(size=(outputs, inputs)) / math.sqrt(inputs)
    return Dense(outputs, 0.1 * rng.normal(size=outputs), weight)


def network(inputs: int = 6, outputs: int = 3, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(inputs)
    hidden = builder.add(Relu(16), builder.add(dense(rng, inputs, 16), 0))
    return builder.finish(builder.add(dense(rng, 16, outputs), hidden))


def identity(size: int) -> Graph:
    builder = GraphBuilder(size)
    return builder.finish(builder.add(Dense(size, np.zeros(size), np.eye(size)), 0))


def box(size: int, radius: float = 1.0, **more: object) -> Domain:
    return Domain(np.full(size, -radius), np.full(size, radius), **more)  # type: ignore[arg-type]


def values(problem: Problem, x: np.ndarray) -> np.ndarray:
    """Inputs and outputs in float64."""
    y = GraphModule(problem.graph, torch.float64)(torch.from_numpy(x)[None])[0].numpy()
    return np.concatenate([x, y])


def rows_hold(rows: Rows, point: np.ndarray) -> bool:
    left = np.bincount(rows.row, rows.coefficient * point[rows.column], rows.count)
    return bool(np.where(rows.strict, left < rows.rhs, left <= rows.rhs).all())


def holds(problem: Problem, x: np.ndarray) -> bool:
    """The meaning of a problem, spelled out."""
    domain = problem.domain
    if bool((x < domain.lower).any() or (x > domain.upper).any()):
        return False
    if domain.ball is not None and domain.ball.distance(x) > domain.ball.radius:
        return False
    point = values(problem, x)
    if domain.rows is not None and not rows_hold(domain.rows, point):
        return False
    return any(rows_hold(d, point) for d in problem.disjuncts)


def attack(problems: list[Problem], **more: object) -> list[np.ndarray | None]:
    results = attack_many(problems, lambda k, x: holds(problems[k], x), settings=QUICK, **more)  # type: ignore[arg-type]
    return [r.point for r in results]


@pytest.mark.parametrize("seed", range(5))
def test_every_point_is_a_counterexample(seed: int) -> None:
    graph = network(seed=seed)
    reach = float(values(Problem(graph, box(6), ()), np.zeros(6))[6]) - 0.1
    problem = Problem(graph, box(6), (make_rows([({6: 1.0}, reach)]), make_rows([({7: 1.0, 8: -1.0}, -0.1)])))
    (point,) = attack([problem])
    assert point is not None
    assert holds(problem, point)


def test_impossible_conditions_are_not_found() -> None:
    problem = Problem(identity(3), box(3), (make_rows([({3: 1.0}, -1.001)]),))
    assert attack([problem]) == [None]


def test_a_contradiction_is_not_found() -> None:
    problem = Problem(identity(2), box(2), (make_rows([({2: 1.0}, -0.1), ({2: -1.0}, -0.1)]),))
    assert attack([problem]) == [None]


def test_constant_outputs_have_no_slope() -> None:
    builder = GraphBuilder(2)
    graph = builder.finish(builder.add(Constant(1, np.ones(1))))
    problem = Problem(graph, box(2), (make_rows([({2: 1.0}, 0.5)]),))
    module, target = GraphModule(graph, torch.float64), make_targets([problem]).to("cpu", torch.float64)
    assert polish(module, target, torch.zeros(2, dtype=torch.float64))[1] > 0


def test_ties_count_and_strict_rows_do_not_tie() -> None:
    """max(x, 0) <= 0 holds with equality only; < 0 never holds."""
    builder = GraphBuilder(2)
    graph = builder.finish(builder.add(Relu(2), 0))
    tie = Problem(graph, box(2), (make_rows([({2: 1.0, 3: 1.0}, 0.0)]),))
    strict = Problem(graph, box(2), (make_rows([({2: 1.0, 3: 1.0}, 0.0)], strict=True),))
    found, missed = attack([tie, strict])
    assert found is not None and holds(tie, found)
    assert missed is None


def test_a_point_box_is_decided_by_its_point() -> None:
    x = np.array([0.25, -0.5])
    rows = (make_rows([({2: 1.0}, 0.25)]),)
    reachable, missed = (Problem(identity(2), Domain(c, c), rows) for c in (x, x + 1))
    first, second = attack([reachable, missed])
    assert first is not None and np.array_equal(first, x)
    assert second is None


def test_an_empty_box_has_no_point() -> None:
    domain = Domain(np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    assert attack([Problem(identity(2), domain, (make_rows([]),))]) == [None]


def test_no_disjunct_is_false_and_no_row_is_true() -> None:
    never = Problem(identity(2), box(2), ())
    always = Problem(identity(2), box(2), (make_rows([]),))
    first, second = attack([never, always])
    assert first is None
    assert second is not None


def test_zero_width_coordinates_stay_where_they_are() -> None:
    lower, upper = np.array([0.3, -1.0, 7.0]), np.array([0.3, 1.0, 7.0])
    low32 = lower.astype(np.float32).astype(np.float64)
    domain = Domain(np.minimum(lower, low32), np.maximum(upper, low32))
    problem = Problem(identity(3), domain, (make_rows([({4: 1.0}, -0.9)]),))
    (point,) = attack([problem])
    assert point is not None and holds(problem, point)


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_balls_are_respected(norm: float) -> None:
    ball = Ball(np.full(6, 0.5), 0.4, norm)
    graph = identity(6)
    size = {1.0: 0.4, 2.0: 0.4 * math.sqrt(6), math.inf: 2.4}[norm]
    near = make_rows([(dict.fromkeys(range(6, 12), 1.0), 3.0 - 0.95 * size)])
    far = make_rows([(dict.fromkeys(range(6, 12), 1.0), 3.0 - 1.01 * size)])
    domain = Domain(np.zeros(6), np.ones(6), None, ball)
    found, missed = attack([Problem(graph, domain, (near,)), Problem(graph, domain, (far,))])
    assert found is not None and ball.distance(found) <= ball.radius
    assert missed is None


def test_a_ball_and_a_box_that_cuts_it() -> None:
    ball = Ball(np.zeros(2), 1.0, 2.0)
    domain = Domain(np.array([0.5, -1.0]), np.array([1.0, 1.0]), None, ball)
    rows = (make_rows([({3: -1.0}, -0.85)]), make_rows([({3: -1.0}, -0.87)]))
    near, far = (Problem(identity(2), domain, (r,)) for r in rows)
    found, missed = attack([near, far])
    assert found is not None and holds(near, found)
    assert missed is None


def test_rows_over_inputs_are_obeyed() -> None:
    """x0 + x1 <= -1.5 leaves a corner; y0 >= -0.6 is possible there only near x0 = -0.6."""
    cut = make_rows([({0: 1.0, 1: 1.0}, -1.5)])
    problem = Problem(identity(2), box(2, rows=cut), (make_rows([({2: -1.0}, 0.6)]),))
    (point,) = attack([problem])
    assert point is not None and holds(problem, point)


def test_output_rows_may_mention_inputs() -> None:
    problem = Problem(network(), box(6), (make_rows([({0: 1.0, 6: -0.001}, -0.99)]),))
    (point,) = attack([problem])
    assert point is not None and holds(problem, point)


def test_a_narrow_band_is_found() -> None:
    """Two rows that nearly make an equation."""
    graph = network(4, 2, seed=3)
    middle = float(values(Problem(graph, box(4), ()), np.full(4, 0.3))[4])
    band = make_rows([({4: 1.0}, middle + 1e-4), ({4: -1.0}, -middle + 1e-4)])
    problem = Problem(graph, box(4), (band,))
    (point,) = attack([problem])
    assert point is not None and holds(problem, point)


def test_equal_seeds_give_equal_points() -> None:
    graph = network(seed=7)
    goal = make_rows(
        [({6: 1.0, 7: 1.0}, float(values(Problem(graph, box(6), ()), np.zeros(6))[6:8].sum()) - 0.5)]
    )
    problem = Problem(graph, box(6), (goal,))
    first, second = attack([problem], seed=3)[0], attack([problem], seed=3)[0]
    assert first is not None and second is not None
    assert np.array_equal(first, second)


def test_many_problems_share_batches_and_keep_their_order() -> None:
    graph = network(seed=1)
    goal = (make_rows([({6: 1.0}, float(values(Problem(graph, box(6), ()), np.zeros(6))[6]) - 0.05)]),)
    problems = [Problem(graph, box(6, radius), goal) for radius in (0.0, 1e-6, 0.5, 1.0)]
    points = attack(problems)
    assert [p is not None for p in points] == [False, False, True, True]
    assert all(holds(problem, p) for problem, p in zip(problems, points, strict=True) if p is not None)


def test_first_stops_at_one() -> None:
    always = Problem(identity(2), box(2), (make_rows([]),))
    asked: list[int] = []

    def check(k: int, _: object) -> bool:
        asked.append(k)
        return True

    attack_many([always] * 3, check, settings=QUICK, first=True)
    assert len(asked) == 1


def test_candidates_come_first() -> None:
    wanted = np.array([0.125, 0.25])
    seen: list[np.ndarray] = []
    problem = Problem(identity(2), box(2), (make_rows([]),))

    def check(_: int, x: np.ndarray) -> bool:
        seen.append(x)
        return True

    attack_many([problem], check, settings=QUICK, candidates=[wanted])
    assert np.array_equal(seen[0], wanted)


def test_a_rejecting_check_is_asked_for_deeper_points() -> None:
    """A referee that wants a margin of 0.5 gets one."""
    problem = Problem(identity(2), box(2), (make_rows([({2: 1.0}, 0.0)]),))
    (result,) = attack_many([problem], lambda _, x: bool(x[0] <= -0.5), settings=QUICK)
    assert result.point is not None and result.point[0] <= -0.5


def test_a_stop_request_ends_it_at_once() -> None:
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 3

    problem = Problem(identity(2), box(2), (make_rows([({2: 1.0}, -2.0)]),))
    (result,) = attack_many([problem], lambda *_: False, Budget(stop=stop), AttackSettings(rounds=10**6))
    assert result.point is None
    assert calls < 20


def test_the_nearest_point_and_its_margin_are_reported() -> None:
    problem = Problem(identity(2), box(2), (make_rows([({2: 1.0}, -1.5)]),))
    (result,) = attack_many([problem], lambda *_: False, settings=QUICK)
    assert result.nearest is not None
    assert result.margin == pytest.approx(0.5)


def test_unbounded_inputs_are_refused() -> None:
    domain = Domain(np.array([-np.inf, 0.0]), np.ones(2))
    assert unattackable(Problem(identity(2), domain, (make_rows([]),))) is not None


def test_inner_box_is_inside_where_float32_exists() -> None:
    lower, upper = np.array([0.1, 0.1]), np.array([0.7, np.nextafter(0.1, 1)])
    low, high = inner_box(Domain(lower, upper))
    assert low[0] >= 0.1 and high[0] <= 0.7
    assert low[1] == high[1] == np.float32(0.1)


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_projection_is_idempotent_and_near_optimal(norm: float) -> None:
    """No other point of the ball lies closer."""
    rng = np.random.default_rng(0)
    ball = Ball(np.zeros(5), 1.0, norm)
    targets = make_targets([Problem(identity(5), box(5, 10.0, ball=ball), (make_rows([]),))])
    x = torch.from_numpy(rng.normal(size=(1, 50, 5)).astype(np.float32)) * 3
    y = project(targets, x)
    assert bool(inside(targets, y).all())
    assert torch.allclose(project(targets, y), y, atol=1e-5)
    others = rng.normal(size=(2000, 5))
    others /= np.maximum(1.0, np.linalg.norm(others, ord=norm, axis=1))[:, None]
    best = np.linalg.norm(x[0, :, None].numpy() - others[None], axis=-1).min(1)
    assert bool((np.linalg.norm((x - y)[0].numpy(), axis=-1) <= best + 1e-4).all())


def test_steps_have_the_size_of_the_set() -> None:
    domain = Domain(np.zeros(2), np.array([1.0, 4.0]))
    targets = make_targets([Problem(identity(2), domain, (make_rows([]),))])
    step = steepest(targets, torch.tensor([[[2.0, -0.1]]]))
    assert step.tolist() == [[[-1.0, 4.0]]]
