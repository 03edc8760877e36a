"""Branch and bound on phases with a linear program at every node, for networks with one hidden layer.

Where such a network encodes a formula, bounds are exactly 0 until enough neurons are fixed: gradients find no
direction there, a linear program finds the multipliers at once. They are hints; the bound they give in float64 is the
proof.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from verifolio.model.answer import Outcome
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.reduce.compress import Stacked
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.neurons.record import ProofRecord
from verifolio.plugins.crown.search.neurons.subproblems import Subproblems
from verifolio.plugins.crown.search.root import Root

Array = NDArray[np.float64]
GAP = 1e-7  # between a neuron and its relaxation: linear programs are solved to about that
OUTWEIGH = 1e3  # phases that contradict each other count so much more than what the rows can be


class LpTree:
    """Depth first; splits the neuron whose relaxation is farthest from the truth at the program's solution."""

    def __init__(self, root: Root, net: Condensed, matrices: Stacked, context: Context, room: int) -> None:
        self.root, self.matrices, self.context, self.nodes = root, matrices, context, 0
        self.bounding = SubproblemBounds(root, net, context.budget)
        self.record = ProofRecord(room)
        self.low, self.high = (end.double().cpu().numpy() for end in (net.low, net.high))
        self.slope = self.high / np.maximum(self.high - self.low, 1e-30)
        self.box = [t[0].double().cpu().numpy() for t in (root.state.region.lower, root.state.region.upper)]

    def run(self) -> Outcome:
        first = self.bounding.first()
        stack = [first.pick(slice(k, k + 1)) for k in range(len(first))]
        while stack:
            if self.context.budget.expired():
                return Outcome.unknown(f"out of time: {len(stack)} domains open after {self.nodes}")
            item = stack.pop()
            self.nodes += 1
            variables, gap, point = self._solve(item)
            if variables is not None:
                self.record.add(item, variables)
            elif gap.max(initial=0.0) > GAP:
                chosen = torch.tensor([[int(gap.argmax())]], device=item.phase.device)
                stack += [replace(item, phase=item.phase.scatter(1, chosen, sign)) for sign in (1, -1)]
            elif point is not None and self.context.check(point):
                return Outcome.found(point, stats={"domains": self.nodes})
            else:
                return Outcome.unknown(f"a linear program stays open after {self.nodes} domains")
        return Outcome.proved(stats={"domains": self.nodes, "by": "linear programs"})

    def _solve(self, item: Subproblems) -> tuple[Variables | None, Array, Array | None]:
        """The variables that prove an item impossible; else how loose every free neuron is, and the point."""
        phase = item.phase[0].cpu().numpy()
        matrix, limits, bounds = self._program(item, phase)
        cost = np.zeros(matrix.shape[1])
        cost[-1] = 1.0
        found: Any = linprog(cost, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
        if found.status != 0:
            return None, np.zeros(0), None
        if found.fun > GAP:
            variables = self._variables(item, phase, found)
            if variables is not None:
                return variables, np.zeros(0), None
        m, inputs, kept = self.matrices, len(self.box[0]), len(phase)
        x, h = found.x[:inputs], found.x[inputs:-1]
        z = m.direct[:kept] @ x + m.feed[:kept] @ h + m.bias[:kept]
        return None, np.where(phase == 0, np.abs(h - np.maximum(z, 0)), 0.0), np.clip(x, *self.box)

    def _program(
        self, item: Subproblems, phase: NDArray[np.int8]
    ) -> tuple[Any, Array, list[tuple[float | None, float | None]]]:
        """Rows over (x, h, t), whose least t is positive if no x satisfies all rows and phases.

        In order: z - h <= 0, h - line <= 0, -phase z <= t of every neuron, the goal's rows <= t.
        """
        m, kept = self.matrices, len(phase)
        goal = kept + self.bounding.rows(item)[0].cpu().numpy()
        z, eye, free = np.hstack([m.direct, m.feed]), np.eye(kept), phase == 0
        h = np.hstack([np.zeros((kept, m.direct.shape[1])), eye])
        slope = np.where(free, self.slope, (phase > 0).astype(float))[:, None]
        lift = np.where(free, -self.slope * self.low, 0.0)
        fixed = np.flatnonzero(~free)
        sign = phase[fixed][:, None]
        rows = np.vstack([z[:kept] - h, h - slope * z[:kept], -sign * z[fixed], z[goal]])
        rows[:kept][phase < 0] = 0.0  # an inactive neuron's output is 0, whatever its input
        limits = [
            -m.bias[:kept] * (phase >= 0),
            lift + slope[:, 0] * m.bias[:kept],
            sign[:, 0] * m.bias[fixed],
        ]
        on_t = np.r_[np.zeros(2 * kept), -np.ones(len(fixed) + len(goal))]
        ends = [(0.0, 0.0) if p < 0 else (0.0, None) if p == 0 else (None, None) for p in phase]
        bounds = [*zip(*self.box, strict=True), *ends, (None, None)]
        matrix = sparse.csr_array(np.hstack([rows, on_t[:, None]]))
        return matrix, np.concatenate([*limits, -m.bias[goal]]), bounds

    def _variables(self, item: Subproblems, phase: NDArray[np.int8], found: Any) -> Variables | None:
        """The program's multipliers as slopes, multipliers of phases and weights of rows, if they prove the item."""
        kept, count = len(phase), int((phase != 0).sum())
        duals = -np.asarray(found.ineqlin.marginals)
        inputs = len(self.box[0])
        zero = np.maximum(np.asarray(found.lower.marginals)[inputs:-1], 0)
        above = np.maximum(duals[:kept], 0)
        alpha = np.where(above + zero > 0, above / np.maximum(above + zero, 1e-300), self.high > -self.low)
        beta, mix = np.zeros(kept), np.maximum(duals[2 * kept + count :], 0)
        beta[phase != 0] = np.maximum(duals[2 * kept : 2 * kept + count], 0)
        if mix.sum() < GAP:  # the phases alone contradict each other
            beta *= OUTWEIGH * self._span() / found.fun
            mix = np.full(len(mix), 1.0 / len(mix))
        tensors = (torch.as_tensor(v[None], device=item.phase.device) for v in (alpha, beta, mix))
        variables = Variables(*tensors)
        margin = self.bounding.prove(item, variables).margin
        return variables if bool((margin > 0).any()) else None

    def _span(self) -> float:
        low, high = self.root.state.interval[self.root.program.graph.output]
        return 1.0 + float(torch.maximum(low.abs(), high.abs()).max())
