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
from verifolio.plugins.crown.reduce.varying import Layout, Varying
from verifolio.run.budget import Budget

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Inputs that vary in some region: a column of the forward bounds each, see MAX_FORWARD of the engine by tensors.
FEW = 16
# numbers of a node's form in a batch: 8 MB in float64, which leaves the caches late; a choice
ELEMENTS = 1 << 20
MOST_BOXES = (
    1024  # of one region at a time: more of them are for a search of its own, which tries points as well
)


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


@dataclass(frozen=True)
class Rows:
    """All rows of every region's condition, and where its disjuncts begin among them."""

    inputs: Array
    outputs: Array
    rhs: Array
    cuts: NDArray[np.int64]

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> Rows:
        inputs, outputs, rhs = (np.stack(part) for part in zip(*(all_rows(p) for p in problems), strict=True))
        return cls(inputs, outputs, rhs, np.cumsum([0, *(r.count for r in problems[0].disjuncts)]))

    def pick(self, index: NDArray[np.int64]) -> Rows:
        return Rows(self.inputs[index], self.outputs[index], self.rhs[index], self.cuts)


class RegionBoxes:
    """Regions of one graph in which the same inputs vary, with as many rows in the same disjuncts.

    Their boxes are bounded on the graph of what depends on these inputs.
    """

    def __init__(self, layout: Layout, first: _Boxes, vary: Mask, rows: Rows, budget: Budget) -> None:
        self.budget, self.space = budget, layout.program.space
        read = (rows.inputs != 0).any((0, 1))
        small = Varying(layout, vary, read)
        self.wide, self.cuts = small.count, rows.cuts
        self.program = Program(small.graph, self.space)
        self.first = _Boxes(*small.box(first.lower, first.upper), np.arange(len(first)))
        inputs = np.zeros((len(first), rows.inputs.shape[1], small.graph.input_size))
        inputs[:, :, : len(small.inputs)] = rows.inputs[:, :, small.inputs]
        self.rows = (inputs, rows.outputs, rows.rhs)
        self.effort = Effort(tighten=False, forward=True, columns=max(1, small.count))

    @torch.no_grad()
    def proved(self) -> NDArray[np.bool_]:
        """Which regions have no point that satisfies the condition; the others are open."""
        # what overflowed outside of the boxes bounds nothing
        given_up = np.asarray(~np.isfinite(self.first.lower + self.first.upper).all(1))
        boxes = self.first.pick(~given_up)
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
        score[:, self.wide :] = 0.0  # what fixed inputs contribute
        able = np.asarray(score.max(1, initial=0.0) > 0)
        given_up[boxes.owner[~able]] = True
        return boxes.pick(able).halves(score[able])

    def _bound(self, boxes: _Boxes) -> tuple[Array, Array]:
        """Lower bounds of (row - rhs) per box, and the sums of their absolute coefficients on the inputs."""
        inputs, outputs, rhs = (part[boxes.owner] for part in self.rows)
        space, program = self.space, self.program
        region = Region(space.tensor(boxes.lower), space.tensor(boxes.upper))
        state = intermediate_bounds(program, region, self.effort)
        extra = {0: space.tensor(inputs)} if inputs.any() else None
        met: dict[int, Tensor] = {}
        bound = program.lower(state, program.graph.output, space.tensor(outputs), extra, met.__setitem__)
        gap = bound - space.up(rhs) - space.tensor(np.abs(rhs)) * 4 * space.unit
        size = met[0].abs().sum(1).expand(len(boxes), -1)
        return proved(gap).numpy(), size.numpy()


def _by_pattern(problems: Sequence[Problem], program: Program, budget: Budget) -> NDArray[np.bool_]:
    """Regions with the same rows, those together in which the same inputs vary."""
    layout, done = Layout(program), np.zeros(len(problems), bool)
    if not layout.applies():
        return done
    ends = [shrunk_box(p.domain) for p in problems]
    lower, upper = (np.stack(e) for e in zip(*ends, strict=True))
    every = _Boxes(lower, upper, np.arange(len(problems)))
    rows = Rows.of(problems)
    wide = upper - lower > NARROW * np.maximum(np.abs(lower), np.abs(upper))
    patterns, group = np.unique(wide, axis=0, return_inverse=True)
    for k, vary in enumerate(patterns):
        index = np.flatnonzero(group.ravel() == k)
        if vary.sum() > FEW:
            continue
        if budget.expired():
            break
        done[index] = RegionBoxes(layout, every.pick(index), vary, rows.pick(index), budget).proved()
    return done


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
            found = _by_pattern([problems[i] for i in members], program, budget)
            for i, done in zip(members, found, strict=True):
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
