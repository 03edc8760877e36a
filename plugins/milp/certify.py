"""Branch and bound whose leaves are closed by safe dual bounds only, so that no tolerance is trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verifolio.budget import Budget
from verifolio.encode.condition import MarginModel
from verifolio.encode.model import Array
from verifolio.encode.safe import proves_infeasible, safe_lower_bound

from .highs import Lp
from .solver import Settings, Status

INTEGRAL = 1e-6


@dataclass(frozen=True, eq=False)
class Proof:
    """`bound` > 0: proved. `point`: a counterexample that replays. Else `reason` says what was missing."""

    bound: float
    nodes: int
    point: Array | None = None
    reason: str = ""


def prove(
    target: MarginModel, settings: Settings, budget: Budget, accept: Callable[[Array], bool], limit: int
) -> Proof:
    """Prove that the margin is positive everywhere, or find a point that `accept` takes."""
    lp = Lp(target.model, settings)
    stack = [(target.model.lower.copy(), target.model.upper.copy())]
    bound, nodes = np.inf, 0
    while stack:
        if budget.expired():
            return Proof(-np.inf, nodes, reason="out of time")
        if nodes >= limit:
            return Proof(-np.inf, nodes, reason=f"more than {limit} branches")
        lower, upper = stack.pop()
        lp.set_bounds(lower, upper)
        nodes += 1
        result = lp.solve(budget.remaining)
        if result.status is Status.INFEASIBLE:
            if result.ray is None or not proves_infeasible(lp.model, result.ray):
                return Proof(-np.inf, nodes, reason="an infeasible branch has no safe certificate")
            continue
        if result.point is None or result.duals is None:
            return Proof(-np.inf, nodes, reason=f"the linear program {result.status.value}")
        safe = safe_lower_bound(lp.model, result.duals)
        if safe > 0:
            bound = min(bound, safe)
            continue
        if accept(result.point):
            return Proof(-np.inf, nodes, result.point)
        column = _branching(target, result.point, lower, upper)
        if column is None:
            return Proof(safe, nodes, reason="a leaf stays within rounding of the boundary")
        stack += _children(column, lower, upper, float(result.point[column]))
    return Proof(float(bound), nodes)


def _branching(target: MarginModel, point: Array, lower: Array, upper: Array) -> int | None:
    """The free binary farthest from a whole number, or any free one where all are whole."""
    free = target.binaries[lower[target.binaries] < upper[target.binaries]]
    if len(free) == 0:
        return None
    distance = np.abs(point[free] - np.round(point[free]))
    return int(free[int(distance.argmax())])


def _children(column: int, lower: Array, upper: Array, value: float) -> list[tuple[Array, Array]]:
    """Both ways to fix a binary; the one nearer to the relaxation's value is visited first."""
    zero, one = (lower, upper.copy()), (lower.copy(), upper)
    zero[1][column] = 0.0
    one[0][column] = 1.0
    return [zero, one] if value >= 0.5 else [one, zero]
