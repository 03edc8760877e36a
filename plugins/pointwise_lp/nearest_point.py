"""The linear program min ||x - centre|| over a box and rows, to which rows can be added between solves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from verifolio.encode.highs import new_solver, run
from verifolio.model.problem import Ball

Array = NDArray[np.float64]


@dataclass(eq=False)
class NearestPoint:
    """Columns: the inputs, then one distance (norm infinity) or one per input (norm 1)."""

    solver: highspy.Highs
    size: int

    @classmethod
    def nearest(cls, ball: Ball, lower: Array, upper: Array, threads: int) -> NearestPoint:
        """An empty program around the ball's centre, at most its radius away."""
        size = len(ball.centre)
        solver = new_solver(threads)
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            solver.setOptionValue(name, 1e-9)
        extra = size if ball.norm == 1 else 1
        low = np.concatenate([lower, np.zeros(extra)])
        high = np.concatenate([upper, np.full(extra, ball.radius)])
        solver.addVars(size + extra, low, high)
        solver.changeColsCost(extra, np.arange(size, size + extra, dtype=np.int32), np.ones(extra))
        program = cls(solver, size)
        program._add_distance(ball, extra)
        return program

    def _add_distance(self, ball: Ball, extra: int) -> None:
        """x_k - d <= centre_k and -x_k - d <= -centre_k."""
        distance = np.full(self.size, self.size) if extra == 1 else np.arange(self.size) + self.size
        for sign in (1.0, -1.0):
            index = np.stack([np.arange(self.size), distance], axis=1).ravel().astype(np.int32)
            value = np.tile([sign, -1.0], self.size)
            starts = (2 * np.arange(self.size)).astype(np.int32)
            top = sign * ball.centre
            self.solver.addRows(self.size, np.full(self.size, -np.inf), top, len(index), starts, index, value)
        if ball.norm == 1 and math.isfinite(ball.radius):
            everything = np.arange(self.size, 2 * self.size, dtype=np.int32)
            self.solver.addRow(-np.inf, ball.radius, self.size, everything, np.ones(self.size))

    def add(self, sides: Array, limits: Array) -> None:
        """sides @ x <= limits."""
        if len(limits) == 0:
            return
        row, column = np.nonzero(sides)
        starts = np.searchsorted(row, np.arange(len(limits))).astype(np.int32)
        values = sides[row, column]
        none = np.full(len(limits), -np.inf)
        self.solver.addRows(len(limits), none, limits, len(values), starts, column.astype(np.int32), values)

    def solve(self, seconds: float) -> Array | None:
        """The nearest point, or None where there is none (or no time)."""
        if math.isfinite(seconds):
            self.solver.setOptionValue("time_limit", self.solver.getRunTime() + max(seconds, 1e-3))
        run(self.solver)
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return np.array(self.solver.getSolution().col_value[: self.size], np.float64)
