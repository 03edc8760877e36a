"""Backward bounds in a chain of dense layers and ReLUs, where every box of a batch pays only for what it leaves open.

The boxes of a batch have few open neurons in common. So each has rows of its own, boxes with about as many of them
go back together, and neurons that are nought on a box have no column. Upper bounds come first: most open neurons
turn out to be nought, often by the intervals of a layer on the way, and need no lower bound. Lines and charges are
those of `Program.push`: leaving out what is multiplied by nought changes nothing, and shorter sums round less than
the charges allow. Only the layer that reads the inputs is passed otherwise, see `_Ground`.

Shapes: rows (boxes, rows, columns); tables (batch, entries, size).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from verifolio.budget import Budget
from verifolio.plugins.crown.layers import DenseLayer, ScaleLayer
from verifolio.plugins.crown.program import Program, State
from verifolio.plugins.crown.region import dot
from verifolio.plugins.crown.relax.base import Interval
from verifolio.plugins.crown.relax.relu import ReluRelaxation

ELEMENTS = 1 << 19  # of the rows that go back together: more leave the caches
WORTH_DROPPING = 0.9  # rows are copied if at most this share of them is left


def is_chain(program: Program) -> bool:
    """Whether every node reads the one before: scalings, a dense layer, then both and single ReLUs; on a CPU."""
    relus = [isinstance(rule, ReluRelaxation) for rule in program.relaxations]
    affine = [isinstance(layer, DenseLayer | ScaleLayer) for layer in program.layers]
    first = _ground(program) + 1
    return (
        program.space.device.type == "cpu"
        and all(parents == (i,) for i, parents in enumerate(program.parents[1:]))
        and all(r or a for r, a in zip(relus[1:], affine[1:], strict=True))
        and not any(a and b for a, b in pairwise(relus))
        and first < len(affine)
        and isinstance(program.layers[first], DenseLayer)
    )


def _ground(program: Program) -> int:
    """The node that the first dense layer reads; up to there the image of a box is a box."""
    node = 0
    while node + 1 < len(program.layers) and isinstance(program.layers[node + 1], ScaleLayer):
        node += 1
    return node


def tighten(
    program: Program, state: State, node: int, wanted: Tensor, budget: Budget | None = None
) -> Interval:
    """The interval of an affine node with backward bounds for the neurons that are `wanted` (batch, size)."""
    chain = Chain(program, state, node)
    low, high = (t.expand(chain.batch, -1) for t in state.interval[node])
    wanted = wanted.expand(chain.batch, -1)
    above = chain.lower(wanted, -1.0, budget)
    below = chain.lower(wanted & ~(above >= 0), 1.0, budget)
    low, high = torch.fmax(low, below), torch.fmin(high, -above)
    return torch.minimum(low, high), torch.maximum(low, high)


@dataclass
class _Walk:
    """Rows of several boxes on their way back: row (b, i) bounds neuron `neurons[b, i]` of box `boxes[b]`.

    `columns` (boxes, columns) are those that the rows have; None stands for all.
    """

    boxes: Tensor
    neurons: Tensor
    rows: Tensor
    columns: Tensor | None
    constant: Tensor
    charge: Tensor

    @property
    def at(self) -> tuple[Tensor, Tensor]:
        """The places of the rows in a table (batch, size)."""
        return self.boxes[:, None], self.neurons

    def relax(self, lower: Tensor, upper: Tensor, lift: Tensor) -> None:
        """Through a ReLU: positive entries take the lower line, others the upper one."""
        positive, negative = self.rows.clamp(min=0), self.rows.clamp_(max=0)
        self.constant = self.constant + dot(negative, lift)
        self.rows = positive.mul_(lower[:, None]).addcmul_(negative, upper[:, None])

    def keep(self, left: Tensor) -> None:
        """Only the rows that are `left` (boxes, rows), where that saves enough."""
        count = left.sum(1)
        most, some = int(count.max()), count.nonzero()[:, 0]
        if most * len(some) > WORTH_DROPPING * left.numel():
            return
        order = front(left[some], most)
        at = (some[:, None], order)
        self.rows, self.constant, self.charge = self.rows[at], self.constant[at], self.charge[at]
        self.neurons, self.boxes = self.neurons[at], self.boxes[some]
        self.columns = None if self.columns is None else self.columns[some]


def front(mask: Tensor, count: int) -> Tensor:
    """Per row the first `count` columns, those that are set before all others."""
    return (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]


class Chain:
    """What passes from `node` back to the inputs need of the nodes on the way."""

    def __init__(self, program: Program, state: State, node: int) -> None:
        self.program, self.state, self.node = program, state, node
        self.batch = state.region.batch
        self.ground = _Ground(program, state, _ground(program))
        self.tables = {i: self._table(i) for i in range(self.ground.node + 1, node)}
        # neurons of a ReLU that are not nought everywhere; NaN counts as not nought
        self.alive = {i: (t != 0).any(1) for i, t in self.tables.items() if i in state.lines}
        self.count = {i: mask.sum(1) for i, mask in self.alive.items()}
        self.order = {i: front(mask, mask.shape[1]) for i, mask in self.alive.items()}
        self.charge = state.noise[node].expand(self.batch, -1) + state.underflow()

    def _table(self, node: int) -> Tensor:
        """Of a ReLU the slopes and the lift; of an affine node the centre and reach of its box, and its noise."""
        lines = self.state.lines.get(node)
        if lines is None:
            parts = [*reach(self.program, self.state.interval[node]), self.state.noise[node]]
        else:
            slope, lift = lines.upper_slope[0], lines.upper_bias
            parts = [lines.lower_slope[0], slope, torch.zeros_like(slope) if lift is None else lift]
        return torch.stack([p.expand(self.batch, -1) for p in parts], 1)

    def lower(self, wanted: Tensor, sign: float, budget: Budget | None) -> Tensor:
        """Lower bounds of sign * value for the wanted neurons (batch, size), -inf for the others.

        With the sign -1, a bound that is not negative is good enough: the neuron is nought.
        """
        best = torch.full(wanted.shape, -torch.inf, dtype=self.program.space.dtype)
        for boxes, neurons in self._groups(wanted):
            if budget is not None and budget.expired():
                break
            walk = self._start(boxes, neurons, sign)
            self._down(walk, wanted, best if sign < 0 else None)
            if len(walk.boxes):
                _note(best, walk, self.ground.lower(walk))
        return torch.where(wanted, best, -torch.inf)

    def _groups(self, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Boxes with their neurons, padded by others to the largest count: those with about as many together."""
        width = max(self.program.sizes[: self.node])
        count, boxes = wanted.sum(1).sort(descending=True)
        counts = count.tolist()
        start = 0
        while start < len(counts) and counts[start]:
            most = min(counts[start], max(1, ELEMENTS // width))
            size = max(1, ELEMENTS // (width * most))
            group = boxes[start : start + size]
            group = group[: sum(c > 0 for c in counts[start : start + size])]
            for neurons in front(wanted[group], counts[start]).split(most, 1):
                yield group, neurons
            start += size

    def _down(self, walk: _Walk, wanted: Tensor, best: Tensor | None) -> None:
        """Take the rows to the first dense layer; where `best` is given, drop and note those that are settled."""
        for i in range(self.node - 1, self.ground.node, -1):
            table = self.tables[i][walk.boxes]
            if walk.columns is not None:
                table = table.gather(2, walk.columns[:, None].expand(-1, 3, -1))
            if i in self.alive:
                walk.relax(*table.unbind(1))
                continue
            size = walk.rows.abs() @ table[:, 1:].mT
            before = walk.constant - walk.charge
            walk.charge = walk.charge + size[:, :, 1]
            if best is not None:
                value = dot(walk.rows, table[:, 0]) - size[:, :, 0] + before
                _note(best, walk, torch.where(value >= 0, value, -torch.inf))
                walk.keep(wanted[walk.at] & ~(value >= 0))
            if not len(walk.boxes):
                return
            if i > self.ground.node + 1:
                self._through(walk, i)

    def _start(self, boxes: Tensor, neurons: Tensor, sign: float) -> _Walk:
        """The neurons, or their negatives, as rows over the node before them."""
        layer = self.program.layers[self.node]
        if isinstance(layer, DenseLayer):
            columns = self._columns(self.node - 1, boxes)
            rows = _pick(layer.weight, neurons, columns) * sign
        elif isinstance(layer, ScaleLayer):
            columns, rows = neurons, torch.diag_embed(layer.weight[neurons] * sign)
        else:
            raise TypeError(f"node {self.node} is neither dense nor a scaling")
        charge = self.charge[boxes[:, None], neurons]
        return _Walk(boxes, neurons, rows, columns, layer.bias[neurons] * sign, charge)

    def _through(self, walk: _Walk, node: int) -> None:
        """Rows over an affine node as rows over the node before it."""
        layer = self.program.layers[node]
        if isinstance(layer, DenseLayer):
            columns = self._columns(node - 1, walk.boxes)
            bias = layer.bias[None] if walk.columns is None else layer.bias[walk.columns]
            walk.constant = walk.constant + dot(walk.rows, bias)
            walk.rows = walk.rows @ _pick(layer.weight, walk.columns, columns)
            walk.columns = columns
        elif isinstance(layer, ScaleLayer):
            weight, bias = layer.weight[None], layer.bias[None]
            if walk.columns is not None:
                weight, bias = layer.weight[walk.columns], layer.bias[walk.columns]
            walk.constant = walk.constant + dot(walk.rows.double(), bias.double()).to(bias.dtype)
            walk.rows = walk.rows * weight[:, None]

    def _columns(self, node: int, boxes: Tensor) -> Tensor | None:
        """The columns that boxes need of a node; where they need fewer than others, some that are nought follow."""
        if node not in self.alive:
            return None
        return self.order[node][boxes][:, : int(self.count[node][boxes].max())]


def _note(best: Tensor, walk: _Walk, value: Tensor) -> None:
    """Keep the bounds of the rows; infinity and NaN prove nothing."""
    best[walk.at] = torch.fmax(best[walk.at], torch.where(value == torch.inf, torch.nan, value))


class _Ground:
    """The dense layer z = W x + b over boxes |x - c| <= r: the rest of a row is A (W c + b) - |A W| r.

    W c + b is computed once for all rows. With gamma for the layer's sums, this rounds by at most
    gamma |A| (|W| |c| + |b|) for W c + b and as much again for its product with A, and by gamma |A| |W| r for A W and
    as much again for its product with r. As |c| + r is the largest |x|, two gammas of |A| (|W| |x| + |b|) pay for
    all: the layer's noise is one of them, `again` the other.
    """

    def __init__(self, program: Program, state: State, node: int) -> None:
        layer = program.layers[node + 1]
        if not isinstance(layer, DenseLayer):
            raise TypeError(f"node {node + 1} is not dense")
        self.node = node
        low, high = state.interval[node]
        centre = (low + high) / 2
        self.weight, self.value = layer.weight, layer.forward(centre)
        self.radius = torch.maximum(high - centre, centre - low) * (1 + 4 * program.space.unit)
        largest = torch.maximum(low.abs(), high.abs())
        tiny = torch.finfo(low.dtype).tiny
        self.again = program.gamma(layer.terms) * (layer.spread(largest) + layer.bias.abs()) + tiny

    def lower(self, walk: _Walk) -> Tensor:
        """Bounds of the rows, which have paid the layer's noise already."""
        value, again, radius = (t[walk.boxes] for t in (self.value, self.again, self.radius))
        if walk.columns is not None:
            value, again = value.gather(1, walk.columns), again.gather(1, walk.columns)
        spread = dot((walk.rows @ _pick(self.weight, walk.columns, None)).abs_(), radius)
        charge = walk.charge + dot(walk.rows.abs(), again)
        return dot(walk.rows, value) - spread + (walk.constant - charge)


def reach(program: Program, interval: Interval) -> Interval:
    """The centre of a box, and how far rows over it must look, the rounding of their sums included (`Region`)."""
    low, high = interval
    unit = program.space.unit
    centre = (low + high) / 2
    radius = torch.maximum(high - centre, centre - low) * (1 + 4 * unit)
    error = 1.05 * (low.shape[1] + program.extra) * unit
    return centre, radius + error * (centre.abs() + radius)


def _pick(weight: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Every box's part of a matrix: (boxes or 1, rows, columns)."""
    part = weight[None] if rows is None else weight[rows]
    if columns is None:
        return part
    return part.expand(len(columns), -1, -1).gather(2, columns[:, None].expand(-1, part.shape[1], -1))
