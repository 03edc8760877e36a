"""Linear programs that tighten what unstable neurons read, each bound proved by its duals."""

from __future__ import annotations

import time

import numpy as np

from verifolio.encode.expression import Expression, down, up
from verifolio.encode.model import Array
from verifolio.encode.rows import Encoding
from verifolio.encode.safe import safe_lower_bound
from verifolio.run.budget import Budget

from .highs import Lp
from .solver import SolverSettings, SolveStatus


class Tightener:
    """Refines one layer after another until its seconds are used up; usable as `encode(refine=...)`."""

    def __init__(self, budget: Budget, settings: SolverSettings, seconds: float) -> None:
        self._budget, self._settings = budget, settings
        self._left = seconds
        self.solved = 0

    def __call__(
        self, encoding: Encoding, node: int, pre: Expression, low: Array, high: Array
    ) -> tuple[Array, Array]:
        unstable = np.flatnonzero((low < 0) & (high > 0))
        # without earlier unstable neurons and rows, interval arithmetic is exact already
        if len(unstable) == 0 or encoding.builder.columns == len(encoding.inputs) or self._left <= 0:
            return low, high
        started = time.monotonic()
        low, high = low.copy(), high.copy()
        lp = Lp(encoding.builder.model(), self._settings, self._budget)
        widest = unstable[np.argsort(low[unstable] * high[unstable])]
        for neuron in widest:
            left = min(self._left - (time.monotonic() - started), self._budget.remaining)
            if left <= 0 or self._budget.expired():
                break
            low[neuron] = max(low[neuron], self._least(lp, pre, int(neuron), 1.0, left))
            if low[neuron] < 0:
                high[neuron] = min(high[neuron], -self._least(lp, pre, int(neuron), -1.0, left))
        self._left -= time.monotonic() - started
        return low, high

    def _least(self, lp: Lp, pre: Expression, neuron: int, sign: float, seconds: float) -> float:
        """A proved lower bound of sign * (what the neuron reads)."""
        row = pre.take(np.array([neuron]))
        cost = np.zeros(lp.model.columns)
        cost[row.matrix.indices] = sign * row.matrix.data
        lp.set_cost(cost)
        result = lp.solve(seconds)
        self.solved += 1
        if result.status is not SolveStatus.OPTIMAL or result.duals is None:
            return -np.inf
        safe = safe_lower_bound(lp.model, result.duals)
        rest = down(sign * row.constant - up(row.error))
        return float(down(np.array([safe]) + rest)[0])
