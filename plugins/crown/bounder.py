"""The bounders `interval`, `crown` and `alpha`: neuron and row bounds for any other plugin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from verifolio.model.problem import Problem, finite
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds, Margins
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.arrays import all_rows, as_numbers
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region, proved
from verifolio.plugins.crown.training import crown_margins, interval_margins
from verifolio.run.budget import Budget

# problems bounded at once: memory grows with it, and fewer pay more for calling operations; a choice
MAX_BATCH = 256


class IntervalBounder(Bounder):
    """Interval arithmetic with rounding errors; the rows of the condition still go backward."""

    name = "interval"
    tightness: ClassVar[int] = 0
    differentiable: ClassVar[bool] = True
    effort: ClassVar[Effort] = Effort(tighten=False)

    def refuses(self, problem: Problem) -> str | None:
        return None if finite(problem.domain) else "an input has no finite bounds"

    def margins(self, module: nn.Module, lower: Tensor, upper: Tensor, rows: Tensor) -> Tensor:
        return interval_margins(module, lower, upper, rows)

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        """Problems that share a graph are bounded in one batch, with all their rows."""
        groups: dict[str, list[int]] = defaultdict(list)
        for i, problem in enumerate(problems):
            # a batch with sets of several shapes would have to forget the balls
            shape = None if problem.domain.ball is None else problem.domain.ball.norm
            groups[f"{problem.graph.sha256} {problem.row_count} {shape}"].append(i)
        found: dict[int, Bounds] = {}
        for members in groups.values():
            program = Program(problems[members[0]].graph, Space(torch.float64))
            for start in range(0, len(members), MAX_BATCH):
                part = members[start : start + MAX_BATCH]
                batch = self._batch(program, [problems[i] for i in part], budget)
                for i, bounds in zip(part, batch, strict=True):
                    holds = known is not None and known.applies_to(problems[i])
                    found[i] = bounds.intersect(known) if known is not None and holds else bounds
        return [found[i] for i in range(len(problems))]

    @torch.no_grad()
    def _batch(self, program: Program, problems: list[Problem], budget: Budget | None) -> list[Bounds]:
        region = Region.of([p.domain for p in problems], program.space)
        state = intermediate_bounds(program, region, self.effort, budget=budget)
        margins = row_margins(program, state, problems)
        nodes = sorted({*program.before, program.graph.output})
        lower = {i: as_numbers(state.interval[i][0].expand(len(problems), -1), -np.inf) for i in nodes}
        upper = {i: as_numbers(state.interval[i][1].expand(len(problems), -1), np.inf) for i in nodes}
        return [
            Bounds(
                problem.graph.sha256,
                problem.domain,
                {i: value[k].copy() for i, value in lower.items()},
                {i: value[k].copy() for i, value in upper.items()},
                Margins.of(problem, margins[k]),
                source=self.name,
            )
            for k, problem in enumerate(problems)
        ]


class CrownBounder(IntervalBounder):
    """Backward linear bounds (CROWN) for every neuron on which intervals leave a gap."""

    name = "crown"
    tightness: ClassVar[int] = 10  # above intervals (0), below optimised slopes (20); only the order counts
    effort: ClassVar[Effort] = Effort(tighten=True)

    def margins(self, module: nn.Module, lower: Tensor, upper: Tensor, rows: Tensor) -> Tensor:
        return crown_margins(module, lower, upper, rows)


class AlphaBounder(CrownBounder):
    """The same with every neuron's slopes optimised (alpha-CROWN): far tighter on deep networks, and dearer."""

    name = "alpha"
    tightness: ClassVar[int] = 20  # the tightest of ours
    differentiable: ClassVar[bool] = False
    effort: ClassVar[Effort] = Effort(steps=8)  # most of what optimised slopes gain

    def margins(self, module: nn.Module, lower: Tensor, upper: Tensor, rows: Tensor) -> Tensor:
        raise TypeError(f"bounder {self.name} is not differentiable; choose crown or interval")


def row_margins(program: Program, state: State, problems: list[Problem]) -> list[tuple[np.ndarray, ...]]:
    """Lower bounds of (row - rhs) for each problem's disjuncts; all problems have as many rows."""
    if not problems[0].row_count:
        return [tuple(np.zeros(0) for _ in p.disjuncts) for p in problems]
    inputs, outputs, rhs = (np.stack(t) for t in zip(*(all_rows(p) for p in problems), strict=True))
    space = program.space
    extra = {0: space.tensor(inputs)} if inputs.any() else None
    bound = program.lower(state, program.graph.output, space.tensor(outputs), extra)
    gap = bound - space.up(rhs) - space.tensor(np.abs(rhs)) * 4 * space.unit
    values = proved(gap).double().cpu().numpy()
    cuts = [np.cumsum([d.count for d in p.disjuncts])[:-1] for p in problems]
    return [tuple(np.split(v, c)) for v, c in zip(values, cuts, strict=True)]
