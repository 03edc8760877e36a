"""What rows need of each affine node when they go back through a chain, per box and computed once.

Let rows x stand over a ReLU's output, n = min(x, 0), and let the lines of the ReLU have the slopes low and up. Then
R = x low + n (up - low) are the rows over its input, |R| = x low - n (up + low), and for vectors v and s >= 0

    R v - |R| s = x (low (v - s)) + n ((up - low) v + (up + low) s)

so the constant that rows pick up (v = bias, s = noise) and what the node's interval says of them (v = centre,
s = reach) are two products with x and two with n. What these round is charged: see `_forms`; R itself is rounded
more often than once only where low and up are two numbers other than nought, which `_table` charges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.layers import DenseLayer, ScaleLayer
from verifolio.plugins.crown.propagate.relax.base import Interval, Lines

if TYPE_CHECKING:
    from verifolio.plugins.crown.propagate.program import Program, State

ELEMENTS = 1 << 19  # of one product with the weights, 4 MB in float64: more leave the caches
# The test by squares costs a column per live neuron, the product that it saves one per input, and it settles only
# some of the rows: it is made where there are this many times more inputs than live neurons.
PAYS = 4
MOST_PARTS = 1 << 23  # entries of one layer's parts that are kept for all boxes: 64 MB
MOST_SQUARES = 1 << 23  # entries of all boxes' matrices of squares: 64 MB


@dataclass(frozen=True, eq=False)
class Columns:
    """The neurons that the columns of rows stand for, in the order of the columns.

    `neurons` (boxes, columns) are their numbers; None stands for all of the node, by number. `leading` is the table
    whose order they begin, box by box, where they do: only then does a position in that order say which neuron a
    column is, so whoever reads anything by position asks `lead` first.
    """

    neurons: Tensor | None = None
    leading: Table | None = None

    def lead(self, table: Table) -> bool:
        """Whether column k of every box is the k-th neuron in the table's order."""
        return self.leading is table

    def same(self, other: Columns) -> bool:
        """Whether both certainly stand for the same neurons in the same order, box by box."""
        if self.neurons is None or other.neurons is None:
            return self.neurons is other.neurons
        return self.neurons is other.neurons or torch.equal(self.neurons, other.neurons)

    def of(self, boxes: Tensor) -> Columns:
        """Those of some of the boxes."""
        return self if self.neurons is None else Columns(self.neurons[boxes], self.leading)

    def take(self, vector: Tensor) -> Tensor:
        """The entries (boxes or 1, columns) of a vector over the node."""
        return vector[None] if self.neurons is None else vector[self.neurons]


@dataclass(frozen=True, eq=False)
class Table:
    """An affine node and the ReLU that reads it, if one does.

    `vectors` (batch, 6, size): low, up - low, then for x and for n the forms of the constant and of the interval.
    `order` (batch, size) lists the neurons that are not nought first, `count` (batch,) says how many they are.
    """

    vectors: Tensor
    interval: Interval
    lines: Lines | None
    order: Tensor | None
    count: Tensor | None

    def live(self) -> Tensor | None:
        """The first columns of `order`, as many as some box needs; None stands for all."""
        return None if self.order is None or self.count is None else self.order[:, : int(self.count.max())]

    def columns(self, boxes: Tensor) -> Columns:
        """The columns that boxes need; where they need fewer than others, some that are nought follow."""
        if self.order is None or self.count is None:
            return Columns()
        return Columns(self.order[boxes, : int(self.count[boxes].max())], self)

    def needed(self, boxes: Tensor, columns: Columns, width: int) -> list[int]:
        """How many of the columns each box needs: all of them, unless those that are nought come last."""
        if self.count is None or not columns.lead(self):
            return [width] * len(boxes)
        found: list[int] = self.count[boxes].tolist()
        return found

    def take(self, boxes: Tensor, columns: Columns) -> Tensor:
        vectors = self.vectors[boxes]
        if columns.neurons is None:
            return vectors
        return vectors.gather(2, columns.neurons[:, None].expand(-1, 6, -1))


@dataclass
class Tables:
    """The tables of a state, made when they are first asked for."""

    made: dict[int, Table] = field(default_factory=dict)
    parts: dict[int, tuple[Table, Table, Tensor]] = field(default_factory=dict)
    first_layer: FirstLayer | None = None

    def get(self, program: Program, state: State, node: int) -> Table:
        """The table of a node; made anew where its interval or lines are not those it was made from."""
        found, lines = self.made.get(node), state.lines.get(node + 1)
        if found is None or found.interval is not state.interval[node] or found.lines is not lines:
            found = self.made[node] = _table(program, state, node, lines, self.first_layer_of(program, state))
        return found

    def weights(
        self, program: Program, state: State, node: int, boxes: Tensor, rows: Columns, columns: Columns
    ) -> Tensor:
        """Of a dense layer the weights (boxes or 1, rows, columns) from these neurons before it to those of it."""
        layer = program.layers[node]
        if not isinstance(layer, DenseLayer):
            raise TypeError(f"node {node} is not dense")
        if rows.neurons is not None and columns.neurons is not None and columns.leading is not None:
            after, before = self.get(program, state, node), columns.leading
            whole = self._whole(node, layer.weight, after, before) if rows.lead(after) else None
            if whole is not None:
                return whole[boxes, : rows.neurons.shape[1], : columns.neurons.shape[1]]
        return pick(layer.weight, rows.neurons, columns.neurons)

    def _whole(self, node: int, weight: Tensor, after: Table, before: Table) -> Tensor | None:
        """The weights of all boxes in the orders of two tables; None where that is too much."""
        rows, columns = after.live(), before.live()
        if rows is None or columns is None or rows.numel() * columns.shape[1] > MOST_PARTS:
            return None
        found = self.parts.get(node)
        if found is None or found[0] is not after or found[1] is not before:
            found = self.parts[node] = after, before, pick(weight, rows, columns)
        return found[2]

    def first_layer_of(self, program: Program, state: State) -> FirstLayer:
        """The first dense layer over the boxes; made anew where the boxes are not those it was made from."""
        if self.first_layer is None or self.first_layer.boxes is not state.interval[self.first_layer.node]:
            self.first_layer = FirstLayer(program, state)
        return self.first_layer


def front(mask: Tensor, count: int) -> Tensor:
    """Per row the first `count` columns, those that are set before all others."""
    return (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]


def first_layer_input(program: Program) -> int:
    """The node that the first dense layer reads; up to there the image of a box is a box."""
    node = 0
    while node + 1 < len(program.layers) and isinstance(program.layers[node + 1], ScaleLayer):
        node += 1
    return node


def _table(program: Program, state: State, node: int, lines: Lines | None, first_layer: FirstLayer) -> Table:
    layer, interval, noise = program.layers[node], state.interval[node], state.noise[node]
    if not isinstance(layer, DenseLayer | ScaleLayer):
        raise TypeError(f"node {node} is neither dense nor a scaling")
    one = torch.ones_like(interval[0])
    low, up, lift = one, one, torch.zeros_like(one)
    if lines is not None:
        low, up = lines.lower_slope[0], lines.upper_slope[0]
        lift = lift if lines.upper_bias is None else lines.upper_bias
    constant, charge = layer.bias, noise
    if node == first_layer.node + 1:
        constant, charge = first_layer.value, noise + first_layer.again
    elif isinstance(layer, ScaleLayer):  # whose noise is that of single products
        charge = noise + program.gamma(layer.size) * layer.bias.abs()
    on_x, on_n = _forms(program, low, up, constant, charge)
    seen_x, seen_n = _forms(program, low, up, *reach(program, interval, layer.size))
    gap = up - low
    largest = torch.maximum(interval[0].abs(), interval[1].abs())
    blurred = torch.where((low != 0) & (gap != 0), (low + gap.abs()) * largest, 0.0)
    on_n = on_n + 4 * program.space.unit * blurred
    parts = torch.broadcast_tensors(low, gap, on_x, seen_x, on_n + lift, seen_n + lift)
    vectors = torch.stack([p.expand(state.region.batch, -1) for p in parts], 1)
    if lines is None:
        return Table(vectors, interval, lines, None, None)
    alive = (low != 0) | (up != 0) | (lift != 0)  # NaN counts as not nought
    alive = alive.expand(state.region.batch, -1)
    return Table(vectors, interval, lines, front(alive, alive.shape[1]), alive.sum(1))


def _forms(program: Program, low: Tensor, up: Tensor, v: Tensor, s: Tensor) -> Interval:
    """The vectors for x and n of R v - |R| s, where s pays for the rounding of the sum R v.

    With gamma for a sum over the node, what s does not pay for is charged to n: sums over x and n have larger terms
    than one over R where low > up, by 2 (low - up) |v|, and those with s round as well. Lifts, which are added to the
    vector for n, are of one sign and were raised to allow for their sum.
    """
    gap, gamma = up - low, program.gamma(low.shape[-1])
    s = s * (1 + 2 * gamma)
    error = gamma * (2 * (-gap).clamp(min=0) * v.abs() + 4 * low * s)
    return low * (v - s), gap * v + (up + low) * s + error


def reach(program: Program, interval: Interval, terms: int = 0) -> Interval:
    """The centre of a box, and how far rows over it must look; with `terms`, their sums' rounding included."""
    low, high = interval
    unit = program.space.unit
    centre = (low + high) / 2
    radius = torch.maximum(high - centre, centre - low) * (1 + 4 * unit)
    return centre, radius + (program.gamma(terms) * (centre.abs() + radius) if terms else 0.0)


class FirstLayer:
    """The dense layer z = W x + b over boxes |x - c| <= r: the rest of a row is A (W c + b) - |A W| r.

    W c + b is computed once for all rows. With gamma for the layer's sums, this rounds by at most
    gamma |A| (|W| |c| + |b|) for W c + b and as much again for its product with A, and by gamma |A| |W| r for A W and
    as much again for its product with r. As |c| + r is the largest |x|, two gammas of |A| (|W| |x| + |b|) pay for
    all: the layer's noise is one of them, `again` the other.
    """

    def __init__(self, program: Program, state: State) -> None:
        self.node = first_layer_input(program)
        layer = program.layers[self.node + 1]
        if not isinstance(layer, DenseLayer):
            raise TypeError(f"node {self.node + 1} is not dense")
        self.program, self.weight = program, layer.weight
        self.boxes = state.interval[self.node]
        low, high = self.boxes
        centre, self.radius = reach(program, (low, high))
        self.value = layer.forward(centre)
        largest = torch.maximum(low.abs(), high.abs())
        tiny = torch.finfo(low.dtype).tiny * low.shape[1]  # entries of W r may underflow
        self.again = program.gamma(layer.terms) * (layer.spread(largest) + layer.bias.abs()) + tiny
        self._squares: Squares | None = None

    def spread(
        self, boxes: Tensor, columns: Columns, table: Table, rows: list[Tensor], count: Tensor
    ) -> list[Tensor]:
        """|A W| r for the first `count` rows of each box, box by box: no two have the same columns, or as many.

        All of `rows` have these columns.
        """
        found = [r.new_zeros(r.shape[:2]) for r in rows]
        step = max(1, ELEMENTS // self.weight.shape[1])
        needed = table.needed(boxes, columns, rows[0].shape[2])
        for k, (box, live, height) in enumerate(zip(boxes.tolist(), needed, count.tolist(), strict=True)):
            weight = self.weight
            if columns.neurons is not None:
                weight = weight.index_select(0, columns.neurons[k, :live])
            weight = weight * self.radius[box if len(self.radius) > 1 else 0]
            part = torch.cat([r[k, :height, : len(weight)] for r in rows])
            total = torch.cat([(p @ weight).abs_().sum(1) for p in part.split(step)]).view(len(rows), height)
            for out, value in zip(found, total, strict=True):
                out[k, :height] = value
        return found

    def spread_at_most(self, boxes: Tensor, columns: Columns, rows: Tensor, table: Table) -> Tensor | None:
        """The same from above and far cheaper for many inputs, by the inequality of Cauchy and Schwarz.

        For any d > 0, sum |v_j| <= sqrt(sum d_j) sqrt(sum v_j^2 / d_j). With v = A W r that is |A S|_2 for some S, or
        the root of A (S S') A', and S S' has but the live neurons' rows and columns. With s_i for the length of
        row i of S, all that is rounded is at most gamma (|A| s)^2. None where it would not pay, or where the columns
        are not in the order that S S' has.
        """
        squares = self._squares_of(table) if columns.lead(table) else None
        if squares is None:
            return None
        live = rows.shape[2]
        product, length = squares.product[boxes, :live, :live], squares.length[boxes, :live]
        exact = torch.linalg.vecdot(rows @ product, rows).clamp_(min=0)
        size = (length[:, None] @ rows.abs().mT)[:, 0]
        underflow = 4 * live * torch.finfo(rows.dtype).tiny
        found: Tensor = (exact + squares.gamma * size.square() + underflow).sqrt_()
        return found.mul_(1 + 8 * self.program.space.unit)

    def _squares_of(self, table: Table) -> Squares | None:
        """S S' of every box for the neurons that its table lists first; None where it would not pay."""
        if table.order is None or table.count is None:
            return None
        most, batch, inputs = int(table.count.max()), len(table.count), self.weight.shape[1]
        if most * PAYS > inputs or batch * most * most > MOST_SQUARES:
            return None
        if self._squares is None or self._squares.table is not table:
            tiny = torch.finfo(self.weight.dtype).tiny
            d = self.radius * self.weight.norm(dim=0) + tiny  # as large as the entries of v tend to be
            factor = (self.radius / d.sqrt() * d.sum(1, keepdim=True).sqrt()).expand(batch, -1)
            product = self.weight.new_zeros(batch, most, most)
            for k, live in enumerate(table.count.tolist()):
                part = self.weight.index_select(0, table.order[k, :live]).mul_(factor[k])
                product[k, :live, :live] = part @ part.T
            gamma = self.program.gamma(4 * (inputs + most))
            # the last term is for squares that underflow
            length = product.diagonal(dim1=1, dim2=2).sqrt() + math.sqrt((inputs + most) * tiny / gamma)
            self._squares = Squares(table, product, length, gamma)
        return self._squares


@dataclass(frozen=True)
class Squares:
    """S S' (batch, live, live), at least the lengths of S's rows (batch, live), and the error's factor."""

    table: Table
    product: Tensor
    length: Tensor
    gamma: float


def pick(weight: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Every box's part of a matrix: (boxes or 1, rows, columns)."""
    height, width = weight.shape
    if columns is None:
        if rows is None:
            return weight[None]
        return weight.index_select(0, rows.reshape(-1)).view(*rows.shape, width)
    if rows is None:
        rows = torch.arange(height)[None]
    small = torch.int32 if weight.numel() < 1 << 31 else torch.int64
    index = (rows * width).to(small)[:, :, None] + columns.to(small)[:, None]
    return weight.view(-1).index_select(0, index.view(-1)).view(index.shape)
