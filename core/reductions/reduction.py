"""The reductions themselves: each rewrites one feature of a problem into plainer ones.

A reduced problem holds every counterexample of the original one, so proofs carry over. All but
`BoundingBox` also keep the set of counterexamples as it is; points are replayed on the original anyway.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Domain, Problem
from verifolio.vnnlib import Rows, make_rows

Array = NDArray[np.float64]
MANY = 8  # disjuncts from which on one margin head is cheaper than as many problems


class Reduction(ABC):
    """One rewriting step."""

    name: ClassVar[str]

    @abstractmethod
    def accepts(self, problem: Problem) -> bool:
        """Whether there is something to rewrite."""

    @abstractmethod
    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        """The problems to solve instead; the original holds a counterexample only if one of them does."""

    def lift(self, problem: Problem, point: Array) -> Array:
        """A point of a reduced problem as a point of `problem`; inputs stay what they are by default."""
        return np.asarray(point, np.float64)[: problem.domain.size]


class InfinityBallToBox(Reduction):
    """A ball in the maximum norm is a box."""

    name = "infinity ball to box"

    def accepts(self, problem: Problem) -> bool:
        ball = problem.domain.ball
        return ball is not None and math.isinf(ball.norm)

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        return (problem.with_domain(_boxed(problem.domain)),)


class BallToNormHead(Reduction):
    """An L1 ball becomes one more output, the distance, and the row distance <= radius in every disjunct."""

    name = "ball to norm head"

    def accepts(self, problem: Problem) -> bool:
        ball = problem.domain.ball
        return ball is not None and ball.norm == 1 and math.isfinite(ball.radius)

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        from verifolio.encode.heads import norm_head

        ball = problem.domain.ball
        if ball is None:
            return (problem,)
        graph = norm_head(problem.graph, ball)
        distance = problem.graph.input_size + problem.graph.output_size
        limit = make_rows([({distance: 1.0}, ball.radius)])
        disjuncts = tuple(join_rows(rows, limit) for rows in problem.disjuncts)
        return (Problem(graph, _boxed(problem.domain), disjuncts),)


class InputRowsToOutputRows(Reduction):
    """Rows over the inputs move into every disjunct, as rows that mention inputs only."""

    name = "input rows to output rows"

    def accepts(self, problem: Problem) -> bool:
        rows = problem.domain.rows
        return rows is not None and rows.count > 0

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        rows = problem.domain.rows
        if rows is None:
            return (problem,)
        disjuncts = tuple(join_rows(d, rows) for d in problem.disjuncts)
        return (Problem(problem.graph, replace(problem.domain, rows=None), disjuncts),)


class MixedRowsToIdentity(Reduction):
    """Rows that mention inputs read them from outputs that copy the inputs."""

    name = "mixed rows to identity outputs"

    def accepts(self, problem: Problem) -> bool:
        return problem.mixes_inputs

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        from verifolio.encode.heads import identity_head

        inputs, outputs = problem.graph.input_size, problem.graph.output_size
        copies = np.arange(inputs + outputs)
        copies[:inputs] += inputs + outputs
        disjuncts = tuple(_sorted_rows(replace(r, column=copies[r.column])) for r in problem.disjuncts)
        return (Problem(identity_head(problem.graph), problem.domain, disjuncts),)


class DisjunctsToProblems(Reduction):
    """One problem per disjunct."""

    name = "disjuncts to problems"

    def accepts(self, problem: Problem) -> bool:
        return 1 < len(problem.disjuncts) <= MANY

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        return tuple(replace(problem, disjuncts=(rows,)) for rows in problem.disjuncts)


class DisjunctsToMargin(Reduction):
    """A disjunction of conjunctions becomes one output g with the row g <= 0 (g < 0 if all are strict)."""

    name = "disjuncts to margin head"

    def accepts(self, problem: Problem) -> bool:
        large = len(problem.disjuncts) > 1 or problem.row_count > 1
        return large and all(rows.count for rows in problem.disjuncts)

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        from verifolio.encode.heads import margin_head, margin_is_strict

        graph = margin_head(problem.graph, problem.disjuncts)
        strict = margin_is_strict(problem.disjuncts)
        row = make_rows([({problem.graph.input_size: 1.0}, 0.0)], strict=strict)
        return (Problem(graph, problem.domain, (row,)),)


class BoundingBox(Reduction):
    """The last resort for a ball: its bounding box. Proofs carry over, points may lie outside the ball."""

    name = "ball to bounding box"

    def accepts(self, problem: Problem) -> bool:
        return problem.domain.ball is not None

    def apply(self, problem: Problem) -> tuple[Problem, ...]:
        return (problem.with_domain(_boxed(problem.domain)),)

    def lift(self, problem: Problem, point: Array) -> Array:
        """The nearest point on the way to the centre that lies in the ball."""
        x, ball = super().lift(problem, point), problem.domain.ball
        if ball is None or ball.distance(x) <= ball.radius:
            return x
        shrink = ball.radius / ball.distance(x) * (1 - 1e-12)
        return np.asarray(ball.centre + shrink * (x - ball.centre), np.float64)


ALL: tuple[Reduction, ...] = (
    InfinityBallToBox(),
    BallToNormHead(),
    InputRowsToOutputRows(),
    MixedRowsToIdentity(),
    DisjunctsToProblems(),
    DisjunctsToMargin(),
    BoundingBox(),
)


def _boxed(domain: Domain) -> Domain:
    """The domain without its ball, its box narrowed to the ball's, rounded outward."""
    ball = domain.ball
    if ball is None:
        return domain
    low = np.nextafter(ball.centre - ball.radius, -np.inf)
    high = np.nextafter(ball.centre + ball.radius, np.inf)
    return Domain(np.maximum(domain.lower, low), np.minimum(domain.upper, high), domain.rows)


def join_rows(first: Rows, second: Rows) -> Rows:
    """The conjunction of two sets of rows over the same columns."""
    return Rows(
        np.concatenate([first.row, second.row + first.count]),
        np.concatenate([first.column, second.column]),
        np.concatenate([first.coefficient, second.coefficient]),
        np.concatenate([first.rhs, second.rhs]),
        np.concatenate([first.strict, second.strict]),
        (*first.exact_rhs, *second.exact_rhs),
    )


def _sorted_rows(rows: Rows) -> Rows:
    order = np.lexsort((rows.column, rows.row))
    return replace(rows, row=rows.row[order], column=rows.column[order], coefficient=rows.coefficient[order])
