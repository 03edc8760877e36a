"""Solve the linear program of an activation pattern, adding rows as they are violated, and replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Ball, Problem, dense_rows
from verifolio.plugin.verifier import Context

from .nearest_point import NearestPoint
from .pattern import Pattern, Slopes, pattern_at
from .verifier import PointwiseLpOptions

Array = NDArray[np.float64]
# of a row, far above the solver's 1e-9: what is violated by less is rounding, not a missing row
TOLERANCE = 1e-6
# the optimum sits on a tie: where it does not replay, every output row is asked to hold by more
EXTRA = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class Solved:
    """The nearest point of one pattern and target, and what it took."""

    point: Array | None
    rounds: int
    rows: int


def reference(problem: Problem) -> Ball:
    """The point an attack starts from where none is named: the ball's centre, or the middle of the box."""
    domain = problem.domain
    if domain.ball is not None:
        return domain.ball
    with np.errstate(invalid="ignore"):
        middle = (domain.lower + domain.upper) / 2
    centre = np.where(np.isfinite(middle), middle, np.clip(0.0, domain.lower, domain.upper))
    return Ball(centre, np.inf, np.inf)


def closest(problem: Problem, ball: Ball, context: Context, options: PointwiseLpOptions) -> Outcome:
    """The closest counterexample that shares the centre's activation pattern; nothing is proved."""
    if ball.norm not in (1, np.inf):
        return Outcome.unknown("only norms 1 and infinity are linear", distance=0.0)
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.unknown("no input or no condition to satisfy", distance=0.0)
    centre = np.clip(ball.centre, problem.domain.lower, problem.domain.upper)
    slopes = Slopes(problem.graph, centre)
    best: tuple[float, Array] | None = None
    rounds = rows = built = 0
    for d in targets(problem, slopes, centre, options.targets):
        direction = descent(problem, slopes, d, centre, ball)
        if out_of_reach(problem, Slopes(problem.graph, centre, direction), d, centre, ball, options.alpha):
            continue
        pattern = pattern_at(problem.graph, centre, direction)
        built = len(pattern.limits)
        for extra in EXTRA:
            if context.budget.expired():
                break
            margin = options.alpha + extra
            solved = solve(problem, pattern, d, ball, margin, options.lazy, context)
            rounds, rows = rounds + solved.rounds, rows + solved.rows
            if solved.point is None:
                break
            distance = ball.distance(solved.point)
            if best is not None and distance >= best[0]:
                break
            if context.check(solved.point):
                best = (distance, solved.point)
                break
    stats = {"rounds": rounds, "rows": rows, "pattern_rows": built}
    if best is not None:
        return Outcome(Verdict.SAT, point=best[1], distance=0.0, stats=stats)
    return Outcome.unknown("no counterexample shares the activation pattern", distance=0.0, stats=stats)


def targets(problem: Problem, slopes: Slopes, x: Array, which: str) -> list[int]:
    """The disjuncts to try: the one with the least margin at x first, the others only where asked for."""
    y, margins = slopes.outputs, []
    for rows in problem.disjuncts:
        a, b, rhs = dense_rows(rows, len(x), len(y))
        margins.append(float((a @ x + b @ y - rhs).max(initial=-np.inf)))
    order = sorted(range(len(margins)), key=margins.__getitem__)
    return order if which == "all" else order[:1]


def moves(problem: Problem, x: Array, ball: Ball) -> tuple[Array, Array]:
    """How far each input can go down and up; a 1-ball is no box, and does not limit it."""
    reach = ball.radius if ball.norm == np.inf else np.inf
    domain = problem.domain
    down, up = np.maximum(domain.lower, ball.centre - reach), np.minimum(domain.upper, ball.centre + reach)
    return down - x, up - x


def descent(problem: Problem, slopes: Slopes, disjunct: int, x: Array, ball: Ball) -> Array:
    """The direction in which the disjunct's rows sink fastest within the box."""
    down, up = moves(problem, x, ball)
    a, b, _ = dense_rows(problem.disjuncts[disjunct], len(x), len(slopes.outputs))
    slope = a.sum(axis=0) + slopes.of(b.sum(axis=0))
    step = np.where(slope > 0, down, np.where(slope < 0, up, 0.0))
    return np.clip(step, -1.0, 1.0)


def out_of_reach(
    problem: Problem, slopes: Slopes, disjunct: int, x: Array, ball: Ball, margin: float
) -> bool:
    """Whether some output row cannot hold anywhere in the box and ball, the region's rows left aside.

    This is the first of the lazy programs, solved row by row without a solver; most inputs end here.
    """
    down, up = moves(problem, x, ball)
    a, b, rhs = dense_rows(problem.disjuncts[disjunct], len(x), len(slopes.outputs))
    for over_inputs, over_outputs, limit in zip(a, b, rhs, strict=True):
        slope = over_inputs + slopes.of(over_outputs)
        moving = slope != 0
        gain = np.minimum(slope[moving] * down[moving], slope[moving] * up[moving]).sum()
        least = over_inputs @ x + over_outputs @ slopes.outputs + gain
        if least > limit - margin + TOLERANCE:
            return True
    return False


def solve(
    problem: Problem, pattern: Pattern, disjunct: int, ball: Ball, margin: float, lazy: bool, context: Context
) -> Solved:
    """min ||x - centre|| in the pattern's region with every output row holding by `margin`."""
    domain = problem.domain
    program = NearestPoint.nearest(ball, domain.lower, domain.upper, context.budget.cores)
    a, b, rhs = dense_rows(problem.disjuncts[disjunct], domain.size, len(pattern.constant))
    program.add(a + b @ pattern.matrix, rhs - b @ pattern.constant - margin)
    if domain.rows is not None and domain.rows.count:
        over_inputs, _, limits = dense_rows(domain.rows, domain.size, 0)
        program.add(over_inputs, limits)
    waiting = np.ones(len(pattern.limits), np.bool_)
    if not lazy:
        program.add(pattern.sides, pattern.limits)
        waiting[:] = False
    rounds = 0
    while not context.budget.expired():
        rounds += 1
        x = program.solve(context.budget.remaining)
        if x is None:
            break
        violated = waiting & (pattern.sides @ x - pattern.limits > TOLERANCE)
        if not violated.any():
            clipped = np.clip(x, domain.lower, domain.upper)
            return Solved(clipped, rounds, int((~waiting).sum()))
        program.add(pattern.sides[violated], pattern.limits[violated])
        waiting &= ~violated
    return Solved(None, rounds, int((~waiting).sum()))
