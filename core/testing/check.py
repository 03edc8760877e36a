"""A referee for problems that have no files: points are judged in doubles, which tiny networks hold exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.enclosure import enclose
from verifolio.model.problem import Domain, Problem, dense_rows
from verifolio.vnnlib import Rows

Array = NDArray[np.float64]


def checker(problem: Problem, single: bool = False) -> Callable[[Array], bool]:
    """Whether a point (rounded to float32 first, where `single`) is a counterexample: a context's `check`."""

    def check(x: Array) -> bool:
        point = x.astype(np.float32).astype(np.float64) if single else x
        if not inside(problem.domain, point):
            return False
        y = enclose(problem.graph, point)[0]
        return any(holds(rows, point, y) for rows in problem.disjuncts)

    return check


def inside(domain: Domain, x: Array) -> bool:
    """Whether a point lies in the box, the ball and the rows of a domain."""
    if bool((x < domain.lower).any() or (x > domain.upper).any()):
        return False
    if domain.ball is not None and domain.ball.distance(x) > domain.ball.radius:
        return False
    return domain.rows is None or holds(domain.rows, x, np.zeros(0))


def holds(rows: Rows, x: Array, y: Array) -> bool:
    """Whether all rows hold, strict ones strictly."""
    a, b, rhs = dense_rows(rows, len(x), len(y))
    left = a @ x + b @ y
    return bool(np.where(rows.strict, left < rhs, left <= rhs).all())
