"""A network on one box as affine forms over its unstable neurons, and that on the parts of the box.

The forms of a graph's nodes are made from the inputs on. A ReLU that is active passes its form on, a dead one is
nought, and an unstable one becomes a column of its own. So every layer is bounded on matrices that hold nothing but
the unstable neurons before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from verifolio.graph import Graph, Relu
from verifolio.graph.enclosure import TINY, gamma
from verifolio.graph.matrix import linear_part
from verifolio.plugins.crown.propagate.cone import cone
from verifolio.plugins.crown.propagate.forward import ForwardBounds
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.base import Interval, tighter
from verifolio.plugins.crown.reduce.kept import Forms, KeptNeurons
from verifolio.run.budget import Budget

Array = NDArray[np.float64]
Rows = Any  # a dense or a sparse matrix: their stubs have no common type whose products are known
# Additions of a dense product that take as long as one of a sparse product, as seen on one core of one machine: 20e9
# and 2e8 per second. It only decides which of two ways to the same forms is taken.
DENSE_PER_SPARSE = 100
# share of entries that are not nought above which a matrix of forms is kept as a dense one; a choice
DENSE = 0.1


class GoalRows(Protocol):
    """Rows over the outputs (goals, rows, outputs) and over the inputs, and their right-hand sides (goals, rows)."""

    @property
    def rows(self) -> Tensor: ...
    @property
    def inputs(self) -> Tensor | None: ...
    @property
    def rhs(self) -> Tensor: ...


@dataclass(frozen=True)
class Carried:
    """Where neurons of a larger box are on a smaller one: dead ones are nowhere.

    `open`, `column`: unstable ones by their old number and their new column. `blocks`: old numbers and forms of those
    that are active, layer by layer.
    """

    open: Tensor
    column: Tensor
    blocks: tuple[tuple[Tensor, Forms, Tensor], ...] = ()

    def after(self, start: int, low: Tensor, high: Tensor, forms: Forms, kept: KeptNeurons) -> Carried:
        """With a layer more, whose neurons have the old numbers from `start` on; its open ones are kept already."""
        unstable, active = (mask.nonzero()[:, 0] for mask in phases(low, high))
        column = len(kept.reach) - len(unstable) + torch.arange(len(unstable))
        own = forms.pick(active)
        blocks = (*self.blocks, (start + active, own, own.size(kept.reach))) if len(active) else self.blocks
        return Carried(torch.cat([self.open, start + unstable]), torch.cat([self.column, column]), blocks)

    def forms(self, old: Forms, kept: KeptNeurons) -> Forms:
        """Forms over the old columns as forms over the new ones."""
        n = kept.inputs
        rows = old.rows.new_zeros(len(old), len(kept.reach))
        rows[:, :n] = old.rows[:, :n]
        rows[:, self.column] = old.rows[:, n + self.open]
        bias, error = old.bias.clone(), old.error.clone()
        total = rows.abs() @ kept.reach + bias.abs()
        for numbers, own, size in self.blocks:
            felt = old.rows[:, n + numbers]
            rows[:, : own.rows.shape[1]].addmm_(felt, own.rows)
            bias.addmv_(felt, own.bias)
            weight = felt.abs()
            error = error + weight @ own.error
            total = total + weight @ size
        return Forms(rows, bias, 1.05 * (error + gamma(kept.terms() + len(old.rows[0])) * total) + TINY)


@dataclass(frozen=True)
class BoxNetwork:
    """A network on one box: its kept neurons and the forms of the goal's rows."""

    kept: KeptNeurons
    goal: Forms

    def pick(self, rows: Tensor) -> BoxNetwork:
        return replace(self, goal=self.goal.pick(rows))

    @torch.no_grad()
    def narrowed(self, region: Region, budget: Budget) -> BoxNetwork | None:
        """The same network on a smaller box, without the neurons that are stable there; None: the time is over."""
        kept = KeptNeurons(region, self.kept.cores)
        carried = Carried(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
        start = 0
        for layer in self.kept.layers:
            if budget.expired():
                return None
            forms = carried.forms(layer.forms, kept)
            low, high = kept.ends(forms)
            low, high = torch.maximum(low, layer.low), torch.minimum(high, layer.high)
            unstable = phases(low, high)[0].nonzero()[:, 0]
            if len(unstable):
                kept.add(forms.pick(unstable), low[unstable], high[unstable])
            carried = carried.after(start, low, high, forms, kept)
            start += len(layer)
        return BoxNetwork(kept, carried.forms(self.goal, kept))


@dataclass(frozen=True)
class _NodeForms:
    """Forms of the entries `alive` of a node, of which all others are nought; rows are dense or sparse."""

    alive: NDArray[np.int64]
    rows: Rows
    bias: Array
    error: Array

    def dense(self, entries: NDArray[np.int64], columns: int) -> Forms:
        """Forms of some entries, all of them alive, over so many columns."""
        at = np.searchsorted(self.alive, entries)
        rows = self.rows[at]
        whole = np.zeros((len(at), columns))
        whole[:, : rows.shape[1]] = rows if isinstance(rows, np.ndarray) else rows.toarray()
        parts = (torch.as_tensor(p) for p in (whole, self.bias[at], self.error[at]))
        return Forms(*parts)


@torch.no_grad()
def box_network(
    graph: Graph, region: Region, goal: GoalRows, budget: Budget, most: int
) -> tuple[BoxNetwork, dict[int, Interval]] | None:
    """The network on one box, and its neurons' intervals; None: more than `most` numbers in one matrix, or no time.

    `goal` is in float64; its rows are those of the network, one after the other, minus their right-hand sides.
    """
    return _Walk(graph, region, goal, budget, most).run()


class _Walk:
    """Node by node; forms are dropped once nobody reads them any more."""

    def __init__(self, graph: Graph, region: Region, goal: GoalRows, budget: Budget, most: int) -> None:
        self.graph, self.goal, self.budget, self.most = graph, goal, budget, most
        self.program = Program(graph, Space(torch.float64))
        self.state = self.program.enter(region)
        self.forward = ForwardBounds(self.program, self.state)
        self.kept = KeptNeurons(region, budget.cores)
        self.needed = cone(self.program, goal.rows)
        n = graph.input_size
        self.forms = {0: _NodeForms(np.arange(n), np.eye(n), np.zeros(n), np.zeros(n))}
        self.readers: list[list[int]] = [[] for _ in graph.nodes]
        for i, parents in enumerate(self.program.parents):
            for p in parents:
                self.readers[p].append(i)
        self.only_relus = {
            p for p, found in enumerate(self.readers) if found and all(i in graph.relus for i in found)
        }

    def run(self) -> tuple[BoxNetwork, dict[int, Interval]] | None:
        for i in range(1, self.graph.output + 1):
            if self.budget.expired():
                return None
            self.program.forward(self.state, i)
            self.program.relax(self.state, i)
            self.forward.add(i)
            if i in self.needed and not self._add(i):
                return None
            self.forms = {p: f for p, f in self.forms.items() if max(self.readers[p], default=i + 1) > i}
        intervals = {p: self.state.interval[p] for p in self.program.before}
        return BoxNetwork(self.kept, self._goal()), intervals

    def _add(self, node: int) -> bool:
        """The forms of a node; False: they are too many."""
        if isinstance(self.graph.nodes[node].op, Relu):
            self.forms[node] = self._relu(node)
            return True
        wanted = self.needed[node].numpy()
        if node in self.only_relus:  # to which dead entries are nought
            wanted = wanted & ~(self.state.interval[node][1][0] <= 0).numpy()  # NaN is not nought
        alive = np.flatnonzero(wanted)
        if len(alive) * len(self.kept.reach) > self.most:
            return False
        self.forms[node] = self._affine(node, alive)
        if node in self.program.before and self.kept.layers:
            self._tighten(node)
        return True

    def _affine(self, node: int, alive: NDArray[np.int64]) -> _NodeForms:
        parents = self.program.parents[node]
        layer = self.program.layers[node]
        if layer is None:
            raise TypeError(f"node {node} is neither affine nor a ReLU")
        sizes = [self.program.sizes[p] for p in parents]
        bias = layer.forward(*(torch.zeros(1, s, dtype=torch.float64) for s in sizes))[0].numpy()[alive]
        rows: Rows = sparse.csr_array((len(alive), len(self.kept.reach)))
        matrices = linear_part(self.graph.nodes[node].op, tuple(sizes)) if parents else ()
        for p, matrix in zip(parents, matrices, strict=True):
            own = self.forms[p]
            felt = sparse.csr_array(matrix[alive][:, own.alive])
            rows = rows + _widened(_product(felt, own.rows), len(self.kept.reach))
            bias = bias + felt @ own.bias
        if not isinstance(rows, np.ndarray) and rows.nnz > DENSE * np.prod(rows.shape):
            rows = rows.toarray()
        return _NodeForms(alive, rows, bias, self._error(node)[alive])

    def _error(self, node: int) -> Array:
        """What the exact values of a node may differ by from its forms, which are exact sums of rounded terms."""
        layer = self.program.layers[node]
        if layer is None:
            raise TypeError(f"node {node} is not affine")
        errors, sizes = [], []
        for p in self.program.parents[node]:
            own, whole = self.forms[p], torch.zeros(2, self.program.sizes[p], dtype=torch.float64)
            rows: Rows = abs(own.rows)
            reach = self.kept.reach.numpy()
            whole[0, own.alive] = torch.as_tensor(own.error)
            whole[1, own.alive] = torch.as_tensor(
                rows @ reach[: rows.shape[1]] + np.abs(own.bias) + own.error
            )
            errors.append(whole[:1])
            # forms of more columns than terms: what the sums of their sizes round
            sizes.append(whole[1:] * (1 + gamma(len(reach))))
        noise = self.program.noise_of(layer, sizes)
        carried = layer.spread(*errors) * (1 + 2 * self.program.gamma(layer.terms))
        return np.asarray((1.01 * (carried + noise))[0].numpy())

    def _tighten(self, node: int) -> None:
        """Backward bounds of the neurons that intervals leave open."""
        low, high = (end[0].clone() for end in self.state.interval[node])
        alive = self.forms[node].alive
        entries = alive[((low < 0) & (high > 0)).numpy()[alive]]
        if len(entries):
            below, above = self.kept.ends(self.forms[node].dense(entries, len(self.kept.reach)))
            low[entries] = torch.fmax(low[entries], below)
            high[entries] = torch.fmin(high[entries], above)
        self.state.interval[node] = tighter(self.state.interval[node], (low[None], high[None]))

    def _relu(self, node: int) -> _NodeForms:
        (parent,) = self.program.parents[node]
        own, columns = self.forms[parent], len(self.kept.reach)
        low, high = (end[0] for end in self.state.interval[parent])
        open_ones, active = (mask.numpy()[own.alive] for mask in phases(low, high))
        unstable = own.alive[open_ones]
        if len(unstable):
            self.kept.add(own.dense(unstable, columns), low[unstable], high[unstable])
        self.program.relax(self.state, node)
        alive = own.alive[open_ones | active]
        passed = np.flatnonzero(active)
        at = np.searchsorted(alive, own.alive[passed])
        place = np.searchsorted(alive, unstable)
        shape = (len(alive), columns + len(unstable))
        units = sparse.csr_array((np.ones(len(place)), (place, columns + np.arange(len(place)))), shape=shape)
        spread = sparse.csr_array((np.ones(len(at)), (at, np.arange(len(at)))), shape=(len(alive), len(at)))
        rows = _widened(sparse.csr_array(spread @ sparse.csr_array(own.rows[passed])), shape[1]) + units
        bias, error = (np.zeros(len(alive)) for _ in range(2))
        bias[at], error[at] = own.bias[passed], own.error[passed]
        return _NodeForms(alive, rows, bias, error)

    def _goal(self) -> Forms:
        own = self.forms[self.graph.output]
        whole = own.dense(own.alive, len(self.kept.reach))
        return goal_forms(self.goal, whole, self.kept, torch.as_tensor(own.alive))


def goal_forms(goal: GoalRows, outputs: Forms, kept: KeptNeurons, alive: Tensor) -> Forms:
    """The goal's rows, flat, as forms; `outputs` are those of the outputs `alive`, all others are nought."""
    rows = goal.rows.flatten(0, 1)[:, alive]
    rhs, direct = goal.rhs.flatten(), torch.zeros(len(rows), len(kept.reach), dtype=torch.float64)
    if goal.inputs is not None:
        direct[:, : kept.inputs] = goal.inputs.flatten(0, 1)
    size = rows.abs() @ outputs.size(kept.reach) + direct.abs() @ kept.reach + rhs.abs()
    error = 1.05 * (rows.abs() @ outputs.error + gamma(kept.terms() + rows.shape[1]) * size) + TINY
    return Forms(rows @ outputs.rows + direct, rows @ outputs.bias - rhs, error)


def phases(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Which neurons are unstable and which are active; all others are nought. What is not a number is unstable."""
    dead = high <= 0
    active = (low >= 0) & ~dead
    return ~(dead | active), active


def _product(felt: Rows, rows: Rows) -> Rows:
    """The product of sparse weights and forms, the quicker way."""
    if isinstance(rows, np.ndarray):
        work = felt.nnz * rows.shape[1]
    else:
        work = int(np.diff(rows.indptr)[felt.indices].sum())
    if felt.shape[0] * felt.shape[1] * rows.shape[1] > DENSE_PER_SPARSE * work:
        return felt @ rows
    whole = rows if isinstance(rows, np.ndarray) else rows.toarray()
    product = torch.as_tensor(felt.toarray()) @ torch.as_tensor(whole)
    return np.asarray(product.numpy())


def _widened(rows: Rows, columns: int) -> Rows:
    """The same rows with columns of nought to the right."""
    if isinstance(rows, np.ndarray):
        return np.pad(rows, ((0, 0), (0, columns - rows.shape[1])))
    wider = rows.tocsr(copy=True)
    wider.resize((wider.shape[0], columns))
    return wider
