"""Many regions of one query with few inputs that vary: their boxes are bounded together and halved together.

Forward bounds of a batch cost a few passes through the network (`propagate.forward`), the condition's rows one more.
A box by itself costs as many calls of operations as a batch of hundreds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.problem import NARROW, Problem
from verifolio.plugins.crown.bounder import MAX_BATCH, CrownBounder, row_margins
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.arrays import all_rows, shrunk_box
from verifolio.plugins.crown.propagate.chain import is_chain
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region, proved
from verifolio.run.budget import Budget

Array = NDArray[np.float64]
# Inputs that vary in some region: a column of the forward bounds each, see MAX_FORWARD of the engine by tensors.
FEW = 16
# numbers of a node's form in a batch: 8 MB in float64, which leaves the caches late; a choice
ELEMENTS = 1 << 20
MOST_BOXES = 64  # of one region at a time: more of them are for a search of its own
FORWARD = Effort(tighten=False, forward=True)


@dataclass(frozen=True)
class _Boxes:
    """Boxes (count, inputs), and the number of the region that each is a part of."""

    lower: Array
    upper: Array
    owner: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.owner)

    def pick(self, index: NDArray[np.int64] | NDArray[np.bool_] | slice) -> _Boxes:
        return _Boxes(self.lower[index], self.upper[index], self.owner[index])

    def halves(self, score: Array) -> _Boxes:
        """Both parts of every box, along the input of the best score."""
        at, every = score.argmax(1), np.arange(len(self))
        middle = (self.lower[every, at] + self.upper[every, at]) / 2
        left, right = self.upper.copy(), self.lower.copy()
        left[every, at], right[every, at] = middle, middle
        lower, upper = (np.concatenate(p) for p in ((self.lower, right), (left, self.upper)))
        return _Boxes(lower, upper, np.tile(self.owner, 2))


class RegionBoxes:
    """Problems that share a graph and have as many rows in the same disjuncts; balls are taken for their boxes."""

    def __init__(self, problems: Sequence[Problem], budget: Budget) -> None:
        self.budget, self.space = budget, Space(torch.float64)
        self.program = Program(problems[0].graph, self.space)
        ends = [shrunk_box(p.domain) for p in problems]
        lower, upper = (np.stack(e) for e in zip(*ends, strict=True))
        self.first = _Boxes(lower, upper, np.arange(len(problems)))
        self.rows = [np.stack(part) for part in zip(*(all_rows(p) for p in problems), strict=True)]
        counts = [r.count for r in problems[0].disjuncts]
        self.cuts = np.cumsum([0, *counts])
        self.wide = int((self.first.upper > self.first.lower).any(0).sum())

    def apply(self) -> bool:
        return self.wide <= FEW

    @torch.no_grad()
    def proved(self) -> NDArray[np.bool_]:
        """Which regions have no point that satisfies the condition; the others are open."""
        boxes, given_up = self.first, np.zeros(len(self.first), bool)
        widest = max(self.program.sizes) * (self.wide + 1)
        room = max(1, ELEMENTS // widest)
        while len(boxes):
            left: list[_Boxes] = []
            for start in range(0, len(boxes), room):
                if self.budget.expired():
                    given_up[boxes.owner[start:]] = True
                    break
                left.append(self._halved(boxes.pick(slice(start, start + room)), given_up))
            if not left:
                break
            boxes = _Boxes(*(np.concatenate(p) for p in zip(*(vars(b).values() for b in left), strict=True)))
            given_up |= np.bincount(boxes.owner, minlength=len(given_up)) > MOST_BOXES
            boxes = boxes.pick(~given_up[boxes.owner])
        return ~given_up

    def _halved(self, boxes: _Boxes, given_up: NDArray[np.bool_]) -> _Boxes:
        """The parts of the boxes that stay open; a region with a box too small to halve is given up."""
        gap, rows = self._bound(boxes)
        best = np.stack(
            [gap[:, a:b].max(1, initial=-np.inf) for a, b in zip(self.cuts, self.cuts[1:], strict=False)], 1
        )
        live = np.asarray(~(best > 0).all(1))
        boxes, gap, rows = boxes.pick(live), gap[live], rows[live]
        width = boxes.upper - boxes.lower
        scale = np.maximum(np.abs(boxes.lower), np.abs(boxes.upper))
        # every input keeps a little score, so that inputs the rows ignore are split in the end too
        score = np.where(width > NARROW * scale, (np.nan_to_num(rows) + 1e-12) * width, 0.0)
        able = np.asarray(score.max(1, initial=0.0) > 0)
        given_up[boxes.owner[~able]] = True
        return boxes.pick(able).halves(score[able])

    def _bound(self, boxes: _Boxes) -> tuple[Array, Array]:
        """Lower bounds of (row - rhs) per box, and the sums of their absolute coefficients on the inputs."""
        inputs, outputs, rhs = (part[boxes.owner] for part in self.rows)
        space, program = self.space, self.program
        region = Region(space.tensor(boxes.lower), space.tensor(boxes.upper))
        state = intermediate_bounds(program, region, FORWARD)
        extra = {0: space.tensor(inputs)} if inputs.any() else None
        met: dict[int, Tensor] = {}
        bound = program.lower(state, program.graph.output, space.tensor(outputs), extra, met.__setitem__)
        gap = bound - space.up(rhs) - space.tensor(np.abs(rhs)) * 4 * space.unit
        size = met[0].abs().sum(1).expand(len(boxes), -1)
        return proved(gap).numpy(), size.numpy()


@torch.no_grad()
def proved_at_once(problems: Sequence[Problem], budget: Budget) -> list[bool]:
    """Which problems bounds decide that batches of them share: each disjunct has a row out of reach.

    Backward bounds of chains of dense layers; forward bounds of other graphs of which few inputs vary, whose boxes
    are halved. In batches, until the budget is over.
    """
    proved = [False] * len(problems)
    program = Program(problems[0].graph, Space(torch.float64))
    chain = is_chain(program)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        if problem.graph is problems[0].graph and problem.domain.ball is None and problem.row_count:
            groups[tuple(rows.count for rows in problem.disjuncts)].append(i)
    for members in groups.values():
        if not chain:
            together = RegionBoxes([problems[i] for i in members], budget)
            for i, done in zip(members, together.proved() if together.apply() else (), strict=False):
                proved[i] = bool(done)
            continue
        for start in range(0, len(members), MAX_BATCH):
            if budget.expired():
                return proved
            part = members[start : start + MAX_BATCH]
            batch = [problems[i] for i in part]
            region = Region.of([p.domain for p in batch], program.space)
            state = intermediate_bounds(program, region, CrownBounder.effort, budget=budget)
            for i, margins in zip(part, row_margins(program, state, batch), strict=True):
                proved[i] = all(bool((m > 0).any()) for m in margins)
    return proved
