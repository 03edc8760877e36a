"""Pairs of neurons with opposite inputs need one ReLU: max(-z, 0) = max(z, 0) - z.

Identities passed through a ReLU layer, absolute values and neurons split on purpose come as such pairs. Bounded
one by one each has its own triangle; written with one ReLU and the line z, what the two have in common cancels:
max(z, 0) - max(-z, 0) is z without any relaxation. The rewriting copies, selects and subtracts: nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from verifolio.graph import Conv, Dense, Graph, GraphBuilder, Op, Relu, Select, Sum
from verifolio.graph.graph import is_exact
from verifolio.graph.ops import Array, Index

Ends = tuple[Array, Array]


@dataclass(frozen=True)
class Pairs:
    """Which entry of a vector stands for each (itself, or an earlier one), and whether as its opposite."""

    stands: Index
    opposite: np.ndarray

    @property
    def kept(self) -> Index:
        return np.flatnonzero(~self.opposite)

    def keep(self, low: Array, high: Array) -> Ends:
        """Bounds of all entries as bounds of the kept ones, for which those of their opposites hold as well."""
        lower, upper = low.copy(), high.copy()
        other, stands = np.flatnonzero(self.opposite), self.stands[self.opposite]
        lower[stands] = np.maximum(lower[stands], -high[other])
        upper[stands] = np.minimum(upper[stands], -low[other])
        return lower[self.kept], upper[self.kept]

    def restore(self, low: Array, high: Array) -> Ends:
        """Bounds of the kept entries as bounds of all."""
        place = np.cumsum(~self.opposite) - 1
        index = place[self.stands]
        lower = np.where(self.opposite, -high[index], low[index])
        upper = np.where(self.opposite, -low[index], high[index])
        return lower, upper


@dataclass(frozen=True)
class MergedOpposites:
    """The rewritten graph; for each rewritten ReLU's input, by its position there: the old position and the pairs."""

    graph: Graph
    pairs: dict[int, tuple[int, Pairs]] = field(default_factory=dict)
    place: dict[int, int] = field(default_factory=dict)

    def carry(self, ends: dict[int, Ends]) -> dict[int, Ends]:
        """Bounds of the old graph's nodes as bounds of the rewritten graph's."""
        if not self.pairs:
            return ends
        found = {self.place[old]: pair for old, pair in ends.items() if old in self.place}
        for node, (old, pairs) in self.pairs.items():
            if old in ends:
                found[node] = pairs.keep(*ends[old])
        return found

    def restore(self, ends: dict[int, Ends]) -> dict[int, Ends]:
        """Bounds of the rewritten graph's nodes as bounds of the old graph's."""
        if not self.pairs:
            return ends
        old = {new: was for was, new in self.place.items()}
        found: dict[int, Ends] = {}
        for node, (low, high) in ends.items():
            if node in self.pairs:
                was, pairs = self.pairs[node]
                found[was] = pairs.restore(low, high)
            elif node in old:
                found[old[node]] = (low, high)
        return found


def merge_opposites(graph: Graph) -> MergedOpposites:
    """The graph with one ReLU for each pair of exactly opposite neurons of a layer; itself where there is none."""
    found = {i: pairs for i in graph.relus if (pairs := _pairs(graph.nodes[graph.nodes[i].parents[0]].op))}
    if not found:
        return MergedOpposites(graph)
    builder = GraphBuilder(graph.input_size)
    place, merged = {0: 0}, {}
    for i, node in enumerate(graph.nodes[1:], start=1):
        parents = tuple(place[p] for p in node.parents)
        if i in found:
            place[i], before = _one_relu(builder, parents[0], found[i])
            merged[before] = (node.parents[0], found[i])
        else:
            place[i] = builder.add(node.op, *parents, name=node.name)
    return MergedOpposites(Graph(tuple(builder.nodes), place[graph.output]), merged, place)


def _one_relu(builder: GraphBuilder, value: int, pairs: Pairs) -> tuple[int, int]:
    """ReLU of all entries from the kept ones; returns its position and that of the ReLU's input."""
    kept, size = pairs.kept, len(pairs.stands)
    before = builder.add(Select(len(kept), kept), value)
    active = builder.add(Relu(len(kept)), before)
    place = np.cumsum(~pairs.opposite) - 1
    copies = builder.add(Select(size, place[pairs.stands]), active)
    lines = builder.add(Select(size, np.where(pairs.opposite, pairs.stands, -1)), value)
    return builder.add(Sum(size, (1.0, -1.0)), copies, lines), before


def _pairs(op: Op) -> Pairs | None:
    """Which rows of an affine map are exactly opposite to an earlier one; None: no two are."""
    if not isinstance(op, Dense | Conv) or not is_exact(op) or getattr(op, "transposed", False):
        return None
    rows = np.c_[op.weight.reshape(len(op.weight), -1), op.bias] + 0.0  # one zero, not two
    stands, opposite = np.arange(len(rows)), np.zeros(len(rows), bool)
    per_group = len(rows) // (op.groups if isinstance(op, Conv) else 1)
    free: dict[tuple[int, bytes], int] = {}
    for k, row in enumerate(rows):
        partner = free.pop((k // per_group, (0.0 - row).tobytes()), None)
        if partner is None or not row.any():
            free[k // per_group, row.tobytes()] = k
        else:
            stands[k], opposite[k] = partner, True
    if not opposite.any():
        return None
    if isinstance(op, Conv):
        grid = np.arange(op.size).reshape(len(rows), -1)
        stands, opposite = grid[stands].ravel(), np.repeat(opposite, grid.shape[1])
    return Pairs(stands, opposite)
