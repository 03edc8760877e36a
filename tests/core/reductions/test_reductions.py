"""Reductions keep the set of counterexamples, and are only used where a member asks for them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from verifolio.graph.enclosure import enclose
from verifolio.model.problem import Ball, Domain, Problem, dense_rows
from verifolio.reductions import ALL, Reduced, reduce_for
from verifolio.testing.generate import Shape, generate
from verifolio.testing.samples import sum_graph
from verifolio.vnnlib import make_rows


def satisfied(problem: Problem, x: np.ndarray) -> bool:
    """Whether x is a counterexample, by plain evaluation."""
    d = problem.domain
    if bool((x < d.lower).any()) or bool((x > d.upper).any()):
        return False
    if d.ball is not None and d.ball.distance(x) > d.ball.radius:
        return False
    point = np.concatenate([x, enclose(problem.graph, x)[0]])
    groups = [] if d.rows is None else [d.rows]
    n, m = problem.graph.input_size, problem.graph.output_size
    inside = all((np.hstack(dense_rows(r, n, m)[:2]) @ point <= r.rhs).all() for r in groups)
    return inside and any(
        (np.hstack(dense_rows(r, n, m)[:2]) @ point <= r.rhs).all() for r in problem.disjuncts
    )


@cache
def problems() -> list[Problem]:
    rng = np.random.default_rng(5)
    found = []
    for k in range(12):
        made = generate(rng, Shape(), None, disjuncts=1 + k % 3, rows=1 + k % 2, cuts=k % 2, mixed=k % 4 == 0)
        domain = made.problem.domain
        centre = (domain.lower + domain.upper) / 2
        norm = (1.0, math.inf)[k % 2]
        ball = Ball(centre, float((domain.upper - domain.lower).max()) / 2, norm) if k >= 6 else None
        found.append(made.problem.with_domain(Domain(domain.lower, domain.upper, domain.rows, ball)))
    return found


def plain(problem: Problem) -> str | None:
    """A member that wants boxes, output rows and a single row."""
    if not problem.domain.is_box:
        return "only boxes"
    if problem.mixes_inputs:
        return "no inputs in rows"
    return "one row only" if problem.row_count > 1 else None


@pytest.mark.parametrize("k", range(12))
def test_a_plain_member_gets_an_equivalent_problem(k: int) -> None:
    problem = problems()[k]
    reduced = reduce_for(plain, problem)
    assert not isinstance(reduced, str), reduced
    rng = np.random.default_rng(k)
    for x in rng.uniform(problem.domain.lower, problem.domain.upper, size=(50, problem.domain.size)):
        assert satisfied(problem, x) == any(satisfied(r.problem, x) for r in reduced)
        assert (reduced[0].lift(x) == x).all()


def test_a_member_that_accepts_gets_the_problem_untouched() -> None:
    problem = problems()[7]
    reduced = reduce_for(lambda _: None, problem)
    assert isinstance(reduced[0], Reduced)
    assert reduced[0].problem is problem


def test_a_refusal_that_nothing_helps_is_passed_on() -> None:
    assert reduce_for(lambda _: "no relaxation for Erf", problems()[0]) == "no relaxation for Erf"


def test_an_l2_ball_falls_back_to_its_bounding_box() -> None:
    ball = Ball(np.array([0.5, 0.5]), 0.25, 2.0)
    domain = Domain(np.zeros(2), np.ones(2), None, ball)
    problem = Problem(sum_graph(), domain, (make_rows([({2: -1.0}, -0.5)]),))
    reduced = reduce_for(plain, problem)
    assert not isinstance(reduced, str)
    (only,) = reduced
    assert only.problem.domain.is_box
    lifted = only.lift(np.array([0.75, 0.75]))
    assert ball.distance(lifted) <= ball.radius


def test_every_reduction_has_a_name() -> None:
    assert len({r.name for r in ALL}) == len(ALL)
