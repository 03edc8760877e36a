"""Queries that no input can answer: there is nothing to ask a verifier, and the user should know."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.vnnlib import Case
from verifolio.vnnlib.rows import LinearRow


def emptiness(query: Query) -> str:
    """Why no point can be a counterexample, whatever the networks are; nothing where that is not plain.

    A region is seen to be empty by its bounds, by one row over inputs, or by a ball that is too far away. Several
    rows that exclude each other are left to the verifiers.
    """
    specification = query.specification
    if not any(case.disjuncts for case in specification.cases):
        return "the condition is false as written"
    reasons = [_why_empty(query, case) for case in specification.cases if case.disjuncts]
    if not all(reasons):
        return ""
    more = f" (and {len(reasons) - 1} more input regions are empty)" if len(reasons) > 1 else ""
    return f"the input set is empty: {reasons[0]}{more}"


def _why_empty(query: Query, case: Case) -> str:
    if case.empty:
        lower, upper = case.inner
        doubtful = np.flatnonzero(lower > upper).tolist()
        k = next(k for k in doubtful if case.exact_lower[k] > case.exact_upper[k])
        low, high = float(case.exact_lower[k]), float(case.exact_upper[k])
        return f"{_name(query, k)} has the lower bound {low:g} and the upper bound {high:g}"
    for row in _doubtful_rows(case):
        least = sum((_least(case, column, value) for column, value in row.terms), Fraction(0))
        if least > row.rhs or (row.strict and least == row.rhs):
            names = ", ".join(_name(query, column) for column, _ in row.terms[:3])
            return f"no point of the box satisfies the constraint over {names}"
    if query.ball is not None and _apart(case, query.ball):
        return "the ball does not meet the box"
    return ""


def _doubtful_rows(case: Case) -> list[LinearRow]:
    """The input rows that doubles do not show to hold at some point of the box."""
    rows = case.input_rows
    if not rows.count:
        return []
    ends = np.where(rows.coefficient > 0, case.lower[rows.column], case.upper[rows.column])
    with np.errstate(over="ignore", invalid="ignore"):
        products = rows.coefficient * ends
        least = np.bincount(rows.row, products, rows.count)
        sizes = np.bincount(rows.row, np.abs(products), rows.count) + np.abs(rows.rhs)
        # as in `row_margins`, and the ends may be off by one rounding more
        surely = rows.rhs - least > sizes * ((len(products) + 8) * 2.0**-50) + 1e-300
    every = rows.linear_rows()
    return [every[k] for k in np.flatnonzero(~surely).tolist()]


def _least(case: Case, column: int, value: Fraction) -> Fraction:
    return value * (case.exact_lower[column] if value > 0 else case.exact_upper[column])


def _apart(case: Case, ball: Ball) -> bool:
    """Whether even the point of the box nearest to the centre is outside, by more than rounding."""
    nearest = np.clip(ball.centre, case.lower, case.upper)
    return ball.distance(nearest) > ball.radius * (1 + (len(nearest) + 8) * 2.0**-50)


def _name(query: Query, column: int) -> str:
    from verifolio.vnnlib.symbols import element_name

    spec = query.specification
    return element_name(spec.networks, spec.input_size, column, spec.version)
