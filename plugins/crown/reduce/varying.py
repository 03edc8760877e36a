"""A smaller graph for regions in which the same few inputs vary: what does not depend on these is an input of it.

A region fixes most inputs of a network that reads a table, and with them most of its values. What such a value is on
a region is computed once, by interval arithmetic, and not again for every part of the region: the small graph holds
the values that depend on inputs that vary, and reads what the fixed ones contribute.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import (
    Constant,
    Conv,
    Dense,
    Elementwise,
    Graph,
    GraphBuilder,
    Input,
    Node,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
)
from verifolio.graph.matrix import linear_part, offset
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.int64]
Matrix = sparse.csr_array
ENTRYWISE = (Relu, Elementwise)
ELEMENTS = (
    1 << 20
)  # of the widest node on regions at once: all nodes are kept, some hundred times 8 MB; a choice
DENSE = 0.1  # share of entries that are not nought from which a matrix is stored as a whole; a choice


class Layout:
    """A program and the matrices of its affine nodes, from which graphs for different inputs are made."""

    def __init__(self, program: Program) -> None:
        # the sign of a value says nothing of the part of it that is fixed
        self.program = copy(program)
        self.program.floors = {}
        self.matrices = [self._matrices(node) for node in program.graph.nodes]
        self.errors = [_errors(node.op, self.matrices[i]) for i, node in enumerate(program.graph.nodes)]

    def applies(self) -> bool:
        """Whether every operator is one whose entries can be told apart."""
        return all(
            isinstance(n.op, (*ENTRYWISE, Input, Constant, Product)) or m is not None
            for n, m in zip(self.program.graph.nodes, self.matrices, strict=True)
        )

    def _matrices(self, node: Node) -> tuple[Matrix, ...] | None:
        try:
            return linear_part(node.op, tuple(self.program.sizes[p] for p in node.parents))
        except TypeError:
            return None

    def reached(self, node: int, k: int, mask: Mask, rows: Index | slice = slice(None)) -> Mask:
        """Which of a node's entries some entries of its k-th parent reach, by a weight or what it may be off by."""
        matrices, error = self.matrices[node], self.errors[node]
        if matrices is None:
            return mask[rows]
        found = _touched(matrices[k][rows], mask)
        return found if error is None else found | _touched(error[rows], mask)

    def depends(self, vary: Mask) -> list[Mask]:
        """Which entries of every node depend on the inputs that vary."""
        found: list[Mask] = []
        for i, node in enumerate(self.program.graph.nodes):
            mine = vary if isinstance(node.op, Input) else np.zeros(node.op.size, bool)
            for k, parent in enumerate(node.parents):
                mine = mine | self.reached(i, k, found[parent])
            found.append(mine)
        return found


def _touched(matrix: Matrix, mask: Mask) -> Mask:
    pattern = sparse.csr_array((matrix.data != 0, matrix.indices, matrix.indptr), shape=matrix.shape)
    return np.asarray(pattern.astype(np.float64) @ mask.astype(np.float64) > 0)


def _errors(op: Op, matrices: tuple[Matrix, ...] | None) -> Matrix | None:
    """By how much the entries of an affine operator's matrix may be off; None: by nothing."""
    if not isinstance(op, Dense | Sparse | Conv | Scale) or op.weight_error is None or matrices is None:
        return None
    in_place_of_weights: dict[str, Any] = {"weight": op.weight_error}
    (found,) = linear_part(replace(op, **in_place_of_weights), (matrices[0].shape[1],))
    return found


class Varying:
    """The small graph for inputs that vary.

    Its first inputs are the old ones numbered `inputs`: those that vary, then those in `also`. The others are what
    fixed inputs contribute: entries of nodes of the old graph, with whatever varies taken for nought.
    """

    def __init__(self, layout: Layout, vary: Mask, also: Mask) -> None:
        self.layout, self.count = layout, int(vary.sum())
        self.depends = layout.depends(vary)
        self.inputs: Index = np.r_[np.flatnonzero(vary), np.flatnonzero(also & ~vary)]
        self.slots: list[tuple[int, Index]] = []
        self.size = len(self.inputs)
        self.builder, self.place = GraphBuilder(0), dict[int, int]()
        self.graph = self._build(layout.program.graph)

    def _build(self, graph: Graph) -> Graph:
        for i, node in enumerate(graph.nodes):
            mine = np.flatnonzero(self.depends[i])
            if not len(mine):
                continue
            if i == 0:
                self.place[0] = self.builder.add(Select(len(mine), np.arange(len(mine))), 0)
            elif isinstance(node.op, ENTRYWISE):
                self.place[i] = self.builder.add(
                    replace(node.op, size=len(mine)), self.place[node.parents[0]]
                )
            elif isinstance(node.op, Product):
                sides = {p: self._values(p, mine) for p in node.parents}
                self.place[i] = self.builder.add(Product(len(mine)), *(sides[p] for p in node.parents))
            else:
                self.place[i] = self._affine(i, mine)
        output = self._values(graph.output, np.arange(graph.output_size))
        self.builder.nodes[0] = Node(Input(self.size), (), "input")
        return self.builder.finish(output)

    def _fixed(self, node: int, entries: Index, within: Mask) -> int:
        """What is fixed of some entries of an old node, at the places of `within` that are true; nought elsewhere."""
        index = np.full(len(within), -1)
        index[within] = self.size + np.arange(len(entries))
        self.slots.append((node, entries))
        self.size += len(entries)
        return self.builder.add(Select(len(within), index), 0)

    def _values(self, node: int, entries: Index) -> int:
        """Entries of an old node, whether they depend on what varies or not."""
        here = self.depends[node][entries]
        parts: list[int] = []
        if here.any():
            index = np.where(here, (np.cumsum(self.depends[node]) - 1)[entries], -1)
            parts.append(self.builder.add(Select(len(entries), index), self.place[node]))
        if not here.all():
            parts.append(self._fixed(node, entries[~here], ~here))
        return self._sum(len(entries), parts)

    def _affine(self, node: int, mine: Index) -> int:
        """The part of an affine node that depends on what varies, and what the fixed part adds to it."""
        layout, old = self.layout, self.layout.program.graph.nodes[node]
        matrices, error = layout.matrices[node] or (), layout.errors[node]
        parts: list[int] = []
        fixed = (offset(old.op)[mine] != 0) | (getattr(old.op, "bias_error", None) is not None)
        for k, (matrix, parent) in enumerate(zip(matrices, old.parents, strict=True)):
            live = self.depends[parent]
            fixed |= layout.reached(node, k, ~live, mine)
            if layout.reached(node, k, live, mine).any():
                columns = np.flatnonzero(live)
                off = None if error is None else error[mine][:, columns]
                parts.append(self._linear(matrix[mine][:, columns], off, self.place[parent]))
        if fixed.any():
            parts.append(self._fixed(node, mine[fixed], fixed))
        return self._sum(len(mine), parts)

    def _linear(self, matrix: Matrix, error: Matrix | None, parent: int) -> int:
        size, width = matrix.shape
        if error is not None:
            op = Dense(size, np.zeros(size), matrix.toarray(), error.toarray())
            return self.builder.add(op, parent)
        entries = np.diff(matrix.indptr)
        if entries.max() <= 1 and (matrix.data == 1).all():
            index = np.full(size, -1)
            index[entries == 1] = matrix.indices
            return self.builder.add(Select(size, index), parent)
        if matrix.nnz > DENSE * size * width:
            return self.builder.add(Dense(size, np.zeros(size), matrix.toarray()), parent)
        return self.builder.add(Sparse(size, np.zeros(size), matrix), parent)

    def _sum(self, size: int, parts: list[int]) -> int:
        return self.builder.add(Sum(size, (1.0,) * len(parts)), *parts)

    def box(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The small graph's inputs on regions (count, old inputs), whatever these are."""
        step = max(1, ELEMENTS // max(self.layout.program.sizes))
        parts = [slice(k, k + step) for k in range(0, len(lower), step)]
        ends = zip(*(self._box(lower[p], upper[p]) for p in parts), strict=True)
        low, high = (np.concatenate(e) for e in ends)
        return low, high

    @torch.no_grad()
    def _box(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        program = self.layout.program
        state = program.enter(Region(program.space.tensor(lower), program.space.tensor(upper)))
        wanted = dict[int, list[Index]]()
        taken: tuple[dict[int, list[Array]], ...] = {}, {}
        for i, entries in self.slots:
            wanted.setdefault(i, []).append(entries)
        for i in range(program.graph.output + 1):
            program.forward(state, i)
            for found, end in zip(taken, state.interval[i], strict=True):
                found[i] = [end.expand(len(lower), -1).numpy()[:, e] for e in wanted.get(i, ())]
            live = torch.as_tensor(self.depends[i])
            low, high = (end.masked_fill(live, 0.0) for end in state.interval[i])
            state.interval[i] = (low, high)
        ends = []
        for first, found in zip((lower, upper), taken, strict=True):
            ends.append(np.concatenate([first[:, self.inputs], *(found[i].pop(0) for i, _ in self.slots)], 1))
        return ends[0], ends[1]
