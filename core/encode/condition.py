"""Output conditions as rows: the violation margin to be minimised, or hard rows and a distance.

The margin of a point is the largest (row - rhs) over the rows of a disjunct and of the domain; the disjunct
is satisfied where it is <= 0. Minimising it keeps the decision away from feasibility tolerances: the
network's rows alone always have a solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from verifolio.encode.expression import Expression, combine, up
from verifolio.encode.model import Array, Index, Model
from verifolio.encode.rows import Encoding, add_distances
from verifolio.model.problem import Ball, Domain, dense_rows
from verifolio.vnnlib import Rows


@dataclass(frozen=True, eq=False)
class MarginModel:
    """Minimise column `margin`; columns `choice` pick one of several disjuncts (empty if there is one)."""

    model: Model
    margin: int
    inputs: Index
    choice: Index
    binaries: Index


def row_expression(encoding: Encoding, rows: Rows) -> Expression:
    """row - rhs of every row, over the columns of the encoding."""
    graph = encoding.graph
    over_inputs, over_outputs, rhs = dense_rows(rows, graph.input_size, graph.output_size)
    return encoding.affine(over_inputs, over_outputs, -rhs)


def row_bounds(encoding: Encoding, rows: Rows) -> tuple[Array, Array]:
    """Interval bounds of row - rhs."""
    return encoding.interval(row_expression(encoding, rows))


def domain_expressions(encoding: Encoding, domain: Domain) -> list[Expression]:
    """What must be <= 0 for an input to lie in the domain, besides its box."""
    found = []
    if domain.rows is not None and domain.rows.count:
        over_inputs, _, rhs = dense_rows(domain.rows, domain.size, 0)
        magnitude = encoding.builder.magnitude
        found.append(combine([sparse.csr_array(over_inputs)], -rhs, [encoding.values[0]], magnitude))
    if domain.ball is not None and encoding.distances is not None:
        index, width = encoding.distances, encoding.builder.columns
        ones = (np.ones(len(index)), (np.zeros(len(index), np.int64), index))
        matrix = sparse.csr_array(ones, shape=(1, width))
        found.append(Expression(matrix, np.array([-domain.ball.radius]), np.zeros(1)))
    return found


def margin_model(encoding: Encoding, domain: Domain, groups: Sequence[Rows], cutoff: float) -> MarginModel:
    """Minimise the margin of one disjunct, or of the best of several; margins above `cutoff` are left out."""
    work = encoding.fork()
    builder = work.builder
    expressions = [row_expression(work, rows) for rows in groups]
    shared = domain_expressions(work, domain)
    least = min(_range(work, e)[0] for e in expressions)
    floor = max([least, *(_range(work, e)[0] for e in shared)])
    most = max(_range(work, e)[1] for e in [*expressions, *shared])
    ceiling = max(min(cutoff, most), floor)
    margin = builder.add_columns(np.array([floor]), np.array([ceiling]))
    for expression in shared:
        _below_margin(work, expression, margin)
    choice = np.zeros(0, np.int64)
    if len(groups) == 1:
        _below_margin(work, expressions[0], margin)
    else:
        choice = builder.add_columns(np.zeros(len(groups)), np.ones(len(groups)), integer=True)
        for k, expression in enumerate(expressions):
            slack = up(np.maximum(work.interval(expression)[1] - floor, 0.0))
            _below_margin(work, expression, margin, choice[k : k + 1], slack)
        everyone = sparse.csr_array(np.ones((1, len(groups))))
        builder.add_rows([(everyone, choice)], np.ones(1), np.ones(1))
    cost = np.zeros(builder.columns)
    cost[margin] = 1.0
    model = builder.model(cost)
    return MarginModel(model, int(margin[0]), work.inputs, choice, np.flatnonzero(model.integer))


def _range(work: Encoding, e: Expression) -> tuple[float, float]:
    """Bounds of the largest of the rows; no rows at all are satisfied with room to spare."""
    low, high = work.interval(e)
    return (float(low.max()), float(high.max())) if e.size else (-1.0, -1.0)


def _below_margin(
    work: Encoding, e: Expression, margin: Index, choice: Index | None = None, slack: Array | None = None
) -> None:
    """expression <= margin, or only where the choice is 1: expression <= margin + slack (1 - choice)."""
    before = np.arange(e.matrix.shape[1], dtype=np.int64)
    parts = [(e.matrix, before), (sparse.csr_array(-np.ones((e.size, 1))), margin)]
    top = np.where(e.error > 0, up(e.error - e.constant), -e.constant)
    if choice is not None and slack is not None:
        parts.append((sparse.csr_array(slack[:, None]), choice))
        top = up(top + slack)
    work.builder.add_rows(parts, np.full(e.size, -np.inf), top)


def distance_model(
    encoding: Encoding, domain: Domain, rows: Rows, ball: Ball, margin: float = 0.0
) -> MarginModel:
    """Minimise ||x - centre|| (1 or infinity) subject to row - rhs <= -margin; the column is the distance."""
    work = encoding.fork()
    builder = work.builder
    for e in [row_expression(work, rows), *domain_expressions(work, domain)]:
        before = np.arange(e.matrix.shape[1], dtype=np.int64)
        top = up(e.error - e.constant) - margin
        builder.add_rows([(e.matrix, before)], np.full(e.size, -np.inf), top)
    distance = builder.add_columns(np.zeros(1), np.array([ball.radius]))
    size = len(ball.centre)
    if ball.norm == 1:
        each = add_distances(work, ball.centre)
        total = sparse.csr_array(np.ones((1, size)))
        parts = [(total, each), (sparse.csr_array(-np.ones((1, 1))), distance)]
        builder.add_rows(parts, np.full(1, -np.inf), np.zeros(1))
    else:
        one = sparse.csr_array(sparse.eye_array(size))
        minus = sparse.csr_array(-np.ones((size, 1)))
        none = np.full(size, -np.inf)
        builder.add_rows([(one, work.inputs), (minus, distance)], none, ball.centre)
        builder.add_rows([(-one, work.inputs), (minus, distance)], none, -ball.centre)
    cost = np.zeros(builder.columns)
    cost[distance] = 1.0
    model = builder.model(cost)
    return MarginModel(
        model, int(distance[0]), work.inputs, np.zeros(0, np.int64), np.flatnonzero(model.integer)
    )
