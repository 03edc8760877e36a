"""Backward bounds in a chain of dense layers and ReLUs, where every box of a batch pays only for what it leaves open.

The boxes of a batch have few open neurons in common. So each has rows of its own, boxes with about as many of them
go back together, and neurons that are nought on a box have no column. Upper bounds come first: most open neurons
turn out to be nought, by the intervals of a layer on the way or by a cheap test before the layer that reads the
inputs, and need no lower bound. Lines are those of `Program.push`, charges are in `tables`: leaving out what is
multiplied by nought changes nothing, and shorter sums round less than the charges allow.

Shapes: rows (boxes, rows, columns).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.layers import DenseLayer, ScaleLayer
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.relax.base import Interval, tighter
from verifolio.plugins.crown.propagate.relax.relu import ReluRelaxation
from verifolio.plugins.crown.propagate.tables import Columns, Table, first_layer_input, front, pick
from verifolio.run.budget import Budget

ELEMENTS = 1 << 19  # of the rows that go back together, 4 MB in float64: more leave the caches
# The cost model by which boxes are grouped, as seen on one core of one machine (`benchmarks/throughput.py` measures
# the whole). It only decides which boxes go together: a wrong one costs time.
PASS = 3_000_000  # what calling the operations of one group's passes costs, in multiplications
ENTRY = 40  # what an entry of the rows costs by itself, in multiplications
PICK = 20  # what an entry of the weights costs by itself
# rows are copied if at most this share is left: for fewer the copy is not worth it; a choice
WORTH_DROPPING = 0.9


def is_chain(program: Program) -> bool:
    """Whether every node reads the one before: scalings, a dense layer, then both and single ReLUs; on a CPU."""
    relus = [isinstance(rule, ReluRelaxation) for rule in program.relaxations]
    affine = [isinstance(layer, DenseLayer | ScaleLayer) for layer in program.layers]
    first = first_layer_input(program) + 1
    return (
        program.space.device.type == "cpu"
        and all(parents == (i,) for i, parents in enumerate(program.parents[1:]))
        and all(r or a for r, a in zip(relus[1:], affine[1:], strict=True))
        and not any(a and b for a, b in pairwise(relus))
        and first < len(affine)
        and isinstance(program.layers[first], DenseLayer)
    )


def tighten(
    program: Program, state: State, node: int, wanted: Tensor, budget: Budget | None = None
) -> Interval:
    """The interval of an affine node with backward bounds for the neurons that are `wanted` (batch, size)."""
    chain = Chain(program, state, node)
    low, high = (t.expand(chain.batch, -1) for t in state.interval[node])
    below, above = chain.bounds(wanted.expand(chain.batch, -1), budget)
    return tighter((low, high), (below, -above))


def alike(work: list[list[int]], most: int) -> Iterator[list[int]]:
    """Boxes with rows to do, in groups that cost less than their members one by one.

    `work` has for every box the number of rows, then of columns at every node on the way; `most` limits the rows
    times columns of a group.
    """
    boxes = sorted((k for k, sizes in enumerate(work) if sizes[0]), key=lambda k: -_cost(work[k]))
    group: list[int] = []
    size: list[int] = []
    for k in boxes:
        wider = [max(pair) for pair in zip(size or work[k], work[k], strict=True)]
        count = len(group) + 1
        waste = count * _cost(wider) - len(group) * _cost(size) - _cost(work[k]) if group else 0
        if group and (waste > PASS or count * wider[0] * max(wider) > most):
            yield group
            group, wider = [], work[k]
        group, size = [*group, k], wider
    if group:
        yield group


def _cost(sizes: list[int]) -> int:
    """Multiplications of a box's passes."""
    return sum((sizes[0] * (a + ENTRY) + PICK * a) * b for a, b in pairwise(sizes))


@dataclass
class _Walk:
    """Rows of several boxes on their way back: row (b, i) bounds neuron `neurons[b, i]` of box `boxes[b]`.

    `columns` say which neurons the rows are over, and in which order. `constant` is what the rows have picked up,
    less what is charged. Rows that are not `open` only fill gaps.
    """

    boxes: Tensor
    neurons: Tensor
    rows: Tensor
    columns: Columns
    constant: Tensor
    open: Tensor

    def keep(self, share: float) -> bool:
        """Only the open rows, those first, if they are at most this share of all; whether any was dropped."""
        count = self.open.sum(1)
        some = count.nonzero()[:, 0]
        most = int(count.max()) if len(some) else 0
        if most * len(some) > share * self.open.numel():
            return False
        at = (some[:, None], front(self.open[some], most))
        self.rows, self.constant, self.open = self.rows[at], self.constant[at], self.open[at]
        self.neurons, self.boxes = self.neurons[at], self.boxes[some]
        self.columns = self.columns.of(some)
        return True

    def note(self, best: Tensor, value: Tensor) -> None:
        """Keep the bounds of open rows in a table (batch, size); infinity and NaN prove nothing."""
        value = torch.where(self.open & (value < torch.inf), value, -torch.inf)
        at = (self.boxes[:, None], self.neurons)
        best[at] = torch.maximum(best[at], value)

    def settle(self, best: Tensor, value: Tensor) -> bool:
        """Note and close the rows whose bound is not negative; whether rows were dropped."""
        done = self.open & (value >= 0)
        if not bool(done.any()):
            return False
        self.note(best, torch.where(done, value, torch.nan))
        self.open = self.open & ~done
        return self.keep(WORTH_DROPPING)


class Chain:
    """Passes from `node` back to the inputs."""

    def __init__(self, program: Program, state: State, node: int) -> None:
        self.program, self.state, self.node = program, state, node
        self.batch = state.region.batch
        self.first_layer = state.tables.first_layer_of(program, state)
        # rows are multiplied more often here than what `underflow` speaks of
        self.underflow = 4 * state.underflow().expand(self.batch, 1)
        self.charge = state.noise[node].expand(self.batch, -1) + self.underflow

    def bounds(self, wanted: Tensor, budget: Budget | None) -> Interval:
        """Lower bounds of the wanted neurons and of their negatives (batch, size), -inf for the others.

        A negative whose bound is not negative belongs to a neuron that is nought: that is good enough.
        """
        below, above = (wanted.new_full(wanted.shape, -torch.inf, dtype=self.charge.dtype) for _ in range(2))
        for boxes, neurons in self._groups(wanted):
            if budget is not None and budget.expired():
                break
            up = self._start(boxes, neurons, wanted[boxes[:, None], neurons], -1.0)
            self._down(up, self.node - 1, above)
            up.keep(1.0)
            if not len(up.boxes):
                continue
            down = self._start(up.boxes, up.neurons, up.open, 1.0)
            self._down(down, self.node - 1, None)
            for walk, best, value in zip((up, down), (above, below), self._end(up, down), strict=True):
                walk.note(best, value)
        return below, above

    def _groups(self, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Boxes with their neurons, padded by others to the largest count: those together that are about as dear."""
        work = self._work(wanted.sum(1))
        order = front(wanted, max(sizes[0] for sizes in work))
        for group in alike(work, ELEMENTS):
            boxes = torch.tensor(group)
            most = max(work[k][0] for k in group)
            width = max(1, *(max(work[k][1:]) for k in group))
            step = max(1, ELEMENTS // (len(group) * width))
            for neurons in order[boxes, :most].split(step, 1):
                yield boxes, neurons

    def _work(self, rows: Tensor) -> list[list[int]]:
        """Per box the number of rows, then of columns at every node on the way, the last first."""
        found = [rows]
        for i in range(self.node - 1, self.first_layer.node, -1):
            if i not in self.state.lines:
                count = self._table(i).count
                found.append(torch.full_like(rows, self.program.sizes[i]) if count is None else count)
        listed: list[list[int]] = torch.stack(found, 1).tolist()
        return listed

    def _down(self, walk: _Walk, node: int, best: Tensor | None) -> None:
        """Take rows over a node to the first dense layer; with `best`, note and drop those that are settled."""
        for i in range(node, self.first_layer.node, -1):
            if i in self.state.lines:
                continue
            table = self._table(i)
            self._relax(walk, table, best)
            if not len(walk.boxes):
                return
            if i > self.first_layer.node + 1:
                self._through(walk, i)
            elif best is not None:
                spread = self.first_layer.spread_at_most(walk.boxes, walk.columns, walk.rows, table)
                if spread is not None:
                    walk.settle(best, walk.constant - spread)

    def _relax(self, walk: _Walk, table: Table, best: Tensor | None) -> None:
        """Rows over a ReLU as rows over the affine node that it reads, with that node's constants and charges."""
        vectors = table.take(walk.boxes, walk.columns)
        negative = walk.rows.clamp(max=0)
        forms = 1 if best is None else 2
        sums = vectors[:, 2 : 2 + forms] @ walk.rows.mT + vectors[:, 4 : 4 + forms] @ negative.mT
        before, walk.constant = walk.constant, walk.constant + sums[:, 0]
        if best is not None and walk.settle(best, before + sums[:, 1]):
            vectors, negative = table.take(walk.boxes, walk.columns), walk.rows.clamp(max=0)
        if table.lines is not None:
            walk.rows = walk.rows.mul_(vectors[:, :1]).addcmul_(negative, vectors[:, 1:2])

    def _start(self, boxes: Tensor, neurons: Tensor, wanted: Tensor, sign: float) -> _Walk:
        """The neurons, or their negatives, as rows over the node before them."""
        layer = self.program.layers[self.node]
        if isinstance(layer, DenseLayer):
            columns = self._columns(self.node - 1, boxes)
            rows = pick(layer.weight, neurons, columns.neurons).mul_(sign)
        elif isinstance(layer, ScaleLayer):
            columns, rows = Columns(neurons), torch.diag_embed(layer.weight[neurons] * sign)
        else:
            raise TypeError(f"node {self.node} is neither dense nor a scaling")
        constant = layer.bias[neurons] * sign - self.charge[boxes[:, None], neurons]
        return _Walk(boxes, neurons, rows, columns, constant, wanted)

    def _through(self, walk: _Walk, node: int) -> None:
        """Rows over an affine node as rows over the node before it."""
        layer = self.program.layers[node]
        if isinstance(layer, DenseLayer):
            columns = self._columns(node - 1, walk.boxes)
            tables, boxes = self.state.tables, walk.boxes
            walk.rows = walk.rows @ tables.weights(
                self.program, self.state, node, boxes, walk.columns, columns
            )
            walk.columns = columns
        elif isinstance(layer, ScaleLayer):
            walk.rows = walk.rows * walk.columns.take(layer.weight)[:, None]

    def _end(self, up: _Walk, down: _Walk) -> list[Tensor]:
        """Bounds of rows over the first dense layer; both walks have the same boxes and open rows, those first.

        Walks that began at a scaling have its neurons for columns: rows that were dropped on the way up are columns
        on one way and not on the other.
        """
        table, boxes, count = self._table(self.first_layer.node + 1), up.boxes, up.open.sum(1)
        if up.columns.same(down.columns):
            spread = self.first_layer.spread(boxes, up.columns, table, [up.rows, down.rows], count)
        else:
            spread = [
                self.first_layer.spread(boxes, w.columns, table, [w.rows], count)[0] for w in (up, down)
            ]
        return [walk.constant - s for walk, s in zip((up, down), spread, strict=True)]

    def _table(self, node: int) -> Table:
        return self.state.tables.get(self.program, self.state, node)

    def _columns(self, node: int, boxes: Tensor) -> Columns:
        """The columns that boxes need of a node: of a ReLU not those that are nought."""
        return self._table(node - 1).columns(boxes) if node in self.state.lines else Columns()
