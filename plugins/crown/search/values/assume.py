"""Tighter intervals under the assumption that the property is violated.

Kotha et al. 2023 (INVPROP). Where c y <= d, a value z is at least min (z + g (c y - d)), for any g >= 0: what is not
needed for a counterexample is cut away without branching. An interval that becomes empty is a proof.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.adam import Adam
from verifolio.plugins.crown.optimise.intermediate import loose
from verifolio.plugins.crown.optimise.row_slopes import unit_rows
from verifolio.plugins.crown.search.values.bounds import ValueBounds
from verifolio.plugins.crown.search.values.pieces import Pieces
from verifolio.plugins.crown.worker_threads import WorkerThreads
from verifolio.run.budget import Budget

# Every neuron has ten steps for its lines and its weight of the assumption. The weight starts from a guess of its
# scale, so it moves faster than the lines, which start where the piece's own ended. Choices; all values are sound.
ALPHA_RATE, WEIGHT_RATE, DECAY = 0.1, 0.2, 0.97
# in units that make both parts of a row's bound worth about as much; nought would have no gradient
FIRST_WEIGHT = 0.2
# part of a layer's width that must go, or the layers before it, which gain less, are left alone
WORTHWHILE = 0.01
# rows times parameters of one pass: 2 MB per tensor, of which autograd keeps a few for every node
CHUNK = 1 << 18
ENDLESS = 1e6  # wider intervals are not worth a gradient: their gradients would swamp the others'; a choice


def assume(bounds: ValueBounds, piece: Pieces, steps: int, budget: Budget) -> Pieces | None:
    """One piece with narrower intervals, from the last layer back while that pays; None: nothing is left of it."""
    for node in reversed(bounds.columns.nodes):
        if budget.expired():
            break
        if bounds.root.program.mixing[node] < 2:  # affine in the inputs: the assumption has nothing to add
            continue
        layer = _Layer(bounds, piece, node, steps, budget)
        low, high = layer.run()
        if bool((low > high).any()):
            return None
        piece = bounds.columns.narrowed(piece, node, low, high)
        if not layer.gain > WORTHWHILE:
            break
    return piece


class _Layer:
    """The neurons of one layer, two rows each: z and minus z."""

    def __init__(self, bounds: ValueBounds, piece: Pieces, node: int, steps: int, budget: Budget) -> None:
        self.bounds, self.piece, self.node, self.steps, self.budget = bounds, piece, node, steps, budget
        self.program, self.columns = bounds.root.program, bounds.columns
        self.state = self.columns.state(bounds.root.state, piece)
        self.low, self.high = (end[0].clone() for end in self.state.interval[node])
        self.least, self.most = self.columns.range(piece)
        self.gain = 0.0

    def run(self) -> tuple[Tensor, Tensor]:
        """New ends of the layer's intervals."""
        wanted = loose(self.program, self.state, self.node)[0].nonzero()[:, 0]
        wanted = wanted[(self.high - self.low)[wanted] < ENDLESS]
        copies = self.program.copies.get(self.node)
        if copies is not None:
            wanted = copies[wanted].unique()
        if len(wanted):
            before = (self.high - self.low)[wanted].sum()
            room = max(1, CHUNK // (2 * max(self.least.shape[1], *self.program.sizes)))
            waiting = list(wanted.split(min(room, -(-len(wanted) // self.budget.cores))))
            WorkerThreads(self.budget.cores, lambda: waiting.pop() if waiting else None, self._work).run()
            self.gain = 1 - float((self.high - self.low)[wanted].sum() / before)
        if copies is not None:
            self.low, self.high = self.low[copies], self.high[copies]
        return self.low, self.high

    def _work(self, neurons: Tensor) -> bool:
        bound = self._ascend(neurons)
        count = len(neurons)
        self.low[neurons] = torch.fmax(self.low[neurons], bound[:count])
        self.high[neurons] = torch.fmin(self.high[neurons], -bound[count:])
        return self.budget.expired()

    @torch.no_grad()
    def _ascend(self, neurons: Tensor) -> Tensor:
        """The best bounds seen (2 count,) while each row improves its own lines and its weight of the assumption."""
        unit, count = unit_rows(self.program, self.node, neurons), len(neurons)
        width = (self.high - self.low)[neurons].repeat(2).clamp(min=1e-9)
        # such weights make both parts of a row's bound worth about as much
        scale = (width / self.piece.bound.abs().clamp(min=1e-9))[None, :, None]
        start = self.columns.shares(self.piece, self.least, self.most)
        share = start[:, None].repeat(1, 2 * count, 1).requires_grad_()
        weight = torch.full_like(scale, FIRST_WEIGHT).requires_grad_()
        adam = Adam(([share], ALPHA_RATE), ([weight], WEIGHT_RATE))
        best = torch.full_like(width, -torch.inf)
        for step in range(self.steps):
            with torch.enable_grad():
                bound = self._bound(unit, share, weight * scale)
                total = (bound / width).nan_to_num(0.0).sum()
            best = torch.fmax(best, bound.detach())
            if step + 1 == self.steps or self.budget.expired():
                break
            adam.step(torch.autograd.grad(total, [share, weight], allow_unused=True), DECAY**step)
            share.clamp_(0, 1)
            weight.clamp_(min=0)
        return best

    def _bound(self, unit: Tensor, share: Tensor, weight: Tensor) -> Tensor:
        """Lower bounds (rows,) of the rows of `unit` over the points that violate the property."""
        program, state = self.program, replace(self.state, lines={}, noise=dict(self.state.noise))
        self.bounds.enclose(state, self.least[:, None] + share * (self.most - self.least)[:, None])
        goal, lead = self.bounds.root.goal.pick(self.piece.goal), self.piece.row
        extra = {self.node: unit}
        if goal.inputs is not None:
            extra[0] = weight * goal.inputs[:, lead]
        bound = program.lower(state, program.graph.output, weight * goal.rows[:, lead], extra)
        given = weight[..., 0] * goal.rhs[:, lead]
        return (bound - given - 4 * program.space.unit * (given.abs() + bound.abs()))[0]
