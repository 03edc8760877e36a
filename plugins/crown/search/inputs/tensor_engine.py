"""Bounds of many boxes of one problem by tensors, for what the compiled kernel cannot bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.problem import Problem, free_inputs
from verifolio.plugin.evidence import Bounds
from verifolio.plugins.crown.kernel.boxes import BoxBatch, BoxEngine, Findings
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.optimise.row_slopes import ascend_rows
from verifolio.plugins.crown.propagate.arrays import all_rows
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Balls, Region, proved
from verifolio.plugins.crown.reduce.opposites import MergedOpposites
from verifolio.plugins.crown.search.inputs.kernel_engine import kernel_engine
from verifolio.plugins.crown.search.root import as_intervals
from verifolio.run.budget import Budget

Array = NDArray[np.float64]
ELEMENTS = 1 << 24  # of one pass's rows: 128 MB in float64; a choice between memory and the number of calls
# With n inputs a node's forward bounds cost 2 (n + 1) passes through its operator: with many, more than the
# backward bounds that they save. A choice.
MAX_FORWARD = 16
# With more neurons than this backward bounds of all of them, which cost time in proportion to the square of their
# number, are too dear for every box: with few inputs zonotopes take their place, with many only the condition's rows
# go backward. A choice.
MAX_TIGHTENED = 8000
ROW_STEPS = (
    20  # on the slopes of the condition's rows, where zonotopes alone leave a box open: a part of their time
)


class TensorEngine:
    """Backward linear bounds in torch, for every operator the graph can hold and for balls."""

    neurons = 0
    phase: NDArray[np.int8] = np.zeros(0, np.int8)

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        device: str = "cpu",
        known: Bounds | None = None,
        plain: bool = False,
    ) -> None:
        self.problem, self.budget = problem, budget
        self.space = Space(torch.float64, device)
        self.program = Program(problem.graph, self.space)
        self.known = (
            None if known is None else as_intervals(known, MergedOpposites(problem.graph), self.program)
        )
        wide = free_inputs(problem.domain.lower, problem.domain.upper)
        few, small = wide <= MAX_FORWARD, problem.graph.neurons <= MAX_TIGHTENED
        self.apart = few and not small and not plain  # boxes one by one, by zonotopes
        self.effort = Effort(
            tighten=(few or small) and not self.apart,
            forward=few and not self.apart,
            zonotopes=self.apart,
            elements=ELEMENTS,
        )
        on_inputs, on_outputs, rhs = all_rows(problem)
        self.on_inputs, self.on_outputs = self.space.tensor(on_inputs), self.space.tensor(on_outputs)
        self.rhs = self.space.up(rhs)
        self.disjunct = np.concatenate([np.full(r.count, d) for d, r in enumerate(problem.disjuncts)])
        self.strict = np.concatenate([r.strict for r in problem.disjuncts])

    def bound(self, batch: BoxBatch) -> Findings:
        region = Region(
            self.space.tensor(batch.lower), self.space.tensor(batch.upper), self._balls(len(batch))
        )
        every = torch.arange(len(batch), device=self.space.device)
        done = [self._bounds(region.select(part)) for part in every.split(1 if self.apart else len(batch))]
        gap, rows = (torch.cat([found[k] for found in done]).cpu().numpy() for k in (0, 1))
        return self._judge(batch, gap, rows)

    @torch.no_grad()
    def _bounds(self, region: Region) -> tuple[Tensor, Tensor]:
        """How far the condition's rows are above their right-hand sides, and the rows over the inputs."""
        state = intermediate_bounds(self.program, region, self.effort, self.known, self.budget)
        captured: dict[int, Tensor] = {}
        extra = {0: self.on_inputs[None]} if bool(self.on_inputs.any()) else None
        output, reserve = self.problem.graph.output, self.rhs + self.rhs.abs() * 4 * self.space.unit
        bound = self.program.lower(state, output, self.on_outputs[None], extra, captured.__setitem__)
        if self.apart and extra is None and not bool((bound > reserve).all()):
            rows = self.on_outputs[None]
            bound = torch.fmax(bound, ascend_rows(self.program, state, output, rows, ROW_STEPS, self.budget))
        return proved(bound - reserve), captured[0].expand(region.batch, -1, -1)

    def _balls(self, count: int) -> Balls | None:
        ball = self.problem.domain.ball
        if ball is None or ball.norm == np.inf:
            return None
        one = Region.of([replace(self.problem.domain)], self.space).balls
        if one is None:
            return None
        return Balls(one.centre.expand(count, -1), one.radius.expand(count), one.norm)

    def _judge(self, batch: BoxBatch, gap: Array, rows: Array) -> Findings:
        count, disjuncts = len(batch), len(self.problem.disjuncts)
        done = np.where(self.strict, gap >= 0, gap > 0)
        impossible = np.stack([done[:, self.disjunct == d].any(1) for d in range(disjuncts)], 1)
        best = np.stack([gap[:, self.disjunct == d].max(1) for d in range(disjuncts)], 1)
        best[impossible] = np.inf
        closed = np.asarray(impossible.all(1))
        target = best.argmin(1)
        chosen = np.where(self.disjunct[None] == target[:, None], gap, -np.inf).argmax(1)
        lead = rows[np.arange(count), chosen]
        corner = np.where(lead > 0, batch.lower, batch.upper)
        width = batch.upper - batch.lower
        # every input keeps a little score, so that inputs the row ignores are split in the end too
        score = (np.abs(lead) + 1e-3 * np.abs(rows).mean(1) + 1e-12) * width
        return Findings(closed, score, corner, np.where(closed, np.inf, best.min(1)))


def make_engine(
    problem: Problem, budget: Budget, device: str = "cpu", known: Bounds | None = None, plain: bool = False
) -> BoxEngine:
    """The fastest engine that can handle the problem; see `kernel_engine`."""
    return kernel_engine(problem, budget.cores, known, plain) or TensorEngine(
        problem, budget, device, known, plain
    )
