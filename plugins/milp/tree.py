"""Branch and bound over the binaries, every leaf closed by a safe dual bound (Neumaier and Shcherbina 2004)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from verifolio.encode.condition import MarginModel
from verifolio.encode.model import Array, Index
from verifolio.encode.safe import proves_infeasible, safe_lower_bound
from verifolio.run.budget import Budget

from .highs import Lp, LpResult
from .solver import SolverSettings, SolveStatus

WHOLE = 1e-9  # z (1 - z) of a binary that is whole up to the solver's tolerance
CUTOFF = 1e-7  # of the margin's range; far above what the safe bound subtracts for rounding
MOST_DOUBTS = 8  # leaves that stay open: one prevents a proof, a few more may still show a point


@dataclass(frozen=True, eq=False)
class Proof:
    """`bound` > 0: proved. `point`: a counterexample that replays. Else `reason` says what was missing.

    `closed` are the bounds of the binaries of every closed branch. `doubtful`: leaves without binaries were left that
    are neither closed nor replay; more time is of no use.
    """

    bound: float
    nodes: int
    point: Array | None = None
    reason: str = ""
    doubtful: bool = False
    closed: tuple[tuple[Array, Array], ...] = ()


def prove(
    target: MarginModel,
    settings: SolverSettings,
    budget: Budget,
    accept: Callable[[Array], bool],
    limit: float,
) -> Proof:
    """Prove that the margin is positive everywhere, or find a point that `accept` takes."""
    return _Tree(target, settings, budget, accept).run(limit)


def close(lp: Lp, result: LpResult) -> float:
    """The proved margin of the branch the program stands at; inf where it is proved to be empty."""
    if result.duals is not None and (result.status is not SolveStatus.OPTIMAL or result.objective > 0):
        safe = safe_lower_bound(lp.model, result.duals)
        if safe > 0:
            return np.inf if result.status is SolveStatus.INFEASIBLE else safe
    if result.ray is not None and proves_infeasible(lp.model, result.ray):
        return np.inf
    return -np.inf


class _Tree:
    """Depth first, the likelier child first, so that counterexamples are met early."""

    def __init__(
        self, target: MarginModel, settings: SolverSettings, budget: Budget, accept: Callable[[Array], bool]
    ) -> None:
        model = target.model
        self.target, self.budget, self.accept = target, budget, accept
        span = abs(float(model.lower[target.margin])) + 1e-3
        self.settings = settings
        self.lp = Lp(model, settings, budget, CUTOFF * span)
        self.plain: Lp | None = None
        self.brancher = Brancher(target)
        self.stack = [(model.lower.copy(), model.upper.copy())]
        self.bound, self.nodes, self.doubts = np.inf, 0, 0
        self.closed: list[tuple[Array, Array]] = []

    def run(self, limit: float) -> Proof:
        while self.stack:
            if self.budget.expired():
                return Proof(-np.inf, self.nodes, reason="out of time")
            if self.nodes >= limit:
                return Proof(-np.inf, self.nodes, reason=f"more than {limit:.0f} branches")
            point = self._visit(*self.stack.pop())
            if point is not None:
                return Proof(-np.inf, self.nodes, point)
            if self.doubts >= MOST_DOUBTS:
                break
        if self.doubts:
            reason = "a leaf stays within rounding of the boundary"
            return Proof(-np.inf, self.nodes, reason=reason, doubtful=True)
        return Proof(float(self.bound), self.nodes, closed=tuple(self.closed))

    def _visit(self, lower: Array, upper: Array) -> Array | None:
        """Close the branch, or push its children; a point that replays ends the search."""
        self.nodes += 1
        result, safe = self._solve(lower, upper)
        if safe > 0:
            self.bound = min(self.bound, safe)
            self.closed.append((lower[self.target.binaries], upper[self.target.binaries]))
            return None
        if result.point is not None and self.accept(result.point):
            return result.point
        if self.budget.expired():
            self.stack.append((lower, upper))
            return None
        binaries = self.target.binaries
        free = np.flatnonzero(lower[binaries] < upper[binaries])
        if len(free) == 0:
            self.doubts += 1
            return None
        column = int(binaries[self.brancher.choose(result, free)])
        value = 0.5 if result.point is None else float(result.point[column])
        self.stack += _children(column, lower, upper, value)
        return None

    def _solve(self, lower: Array, upper: Array) -> tuple[LpResult, float]:
        """The branch's program; once more without the cutoff where rounding spoiled what was cut off."""
        self.lp.set_bounds(lower, upper)
        result = self.lp.solve()
        safe = close(self.lp, result)
        if safe > 0 or result.status is not SolveStatus.ABOVE:
            return result, safe
        if self.plain is None:
            self.plain = Lp(self.target.model, self.settings, self.budget)
        self.plain.set_bounds(lower, upper)
        result = self.plain.solve()
        return result, close(self.plain, result)


class Brancher:
    """Which binary to branch on."""

    def __init__(self, target: MarginModel) -> None:
        self.binaries = target.binaries
        self.weights = _binary_rows(target.model.matrix, target.binaries)

    def choose(self, result: LpResult, free: Index) -> int:
        """The free binary (by its place) whose rows hold the bound back the most, or any where all are whole.

        z(1-z) times the duals of the two rows of a ReLU times their big-M constants: zero where the
        relaxation has no gap, and zero where the gap does not matter to the objective.
        """
        if result.point is None or result.duals is None:
            return int(free[0])
        z = np.clip(result.point[self.binaries[free]], 0.0, 1.0)
        gap = z * (1 - z)
        score = gap * (self.weights[free] @ np.abs(result.duals))
        if score.max() <= 0 or gap.max() < WHOLE:
            return int(free[int(gap.argmax())])
        return int(free[int(score.argmax())])


def _binary_rows(matrix: sparse.csr_array, binaries: Index) -> sparse.csr_array:
    """|coefficient| of every binary in every row, one row per binary."""
    return sparse.csr_array(abs(matrix).T.tocsr()[binaries])


def _children(column: int, lower: Array, upper: Array, value: float) -> list[tuple[Array, Array]]:
    """Both ways to fix a binary; the one nearer to the relaxation's value is visited first."""
    zero, one = (lower, upper.copy()), (lower.copy(), upper)
    zero[1][column] = 0.0
    one[0][column] = 1.0
    return [zero, one] if value >= 0.5 else [one, zero]
