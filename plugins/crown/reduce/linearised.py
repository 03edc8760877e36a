"""A network whose only nonlinear functions are ReLUs, and whose values contain those of another one on a domain.

    h = f(z)   becomes   h = k z + m + r t,   -1 <= t <= 1,   where r is the distance of f from the line k z + m

The slopes k are those of the lines that a row over the output takes, below where its coefficient is positive and
above where it is negative. So the row has the same bound on the new network, whose numbers t are further inputs. What
is proved of the new network holds for the old one.

Sums of products or of exponentials, as in attention, get one number t for each sum. Where a softmax's values add up
to one, the one whose coefficient is the median is replaced by one minus the others, see `propagate/simplex.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from verifolio.graph import Elementwise, Graph, GraphBuilder, Product, Relu, Select, Sparse, Sum
from verifolio.plugins.crown.propagate.program import Program, State

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Csr = sparse.csr_array
UNIT = 2.0**-53  # the largest relative rounding error of a double
# Numbers t, of which each is a column of the condensed network: 16384 columns and 1000 kept neurons take 128 MB
MOST_SYMBOLS = 1 << 14
# Part of what all errors cost that those without a number t may cost. They are charged to every row and neuron by
# themselves, where numbers t cancel: 2 % of what the row missed cost it twice as much again on a vision transformer.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Linearised:
    """The new graph, whose inputs are the old ones and `symbols` more.

    `origin`: for nodes of the new graph the one of the old graph whose values they take.
    """

    graph: Graph
    symbols: int
    origin: dict[int, int]


@dataclass
class _Band:
    """A function's values lie within `radius` of sum_k slopes[k] z_k + middle, rounding included."""

    slopes: list[Array]
    middle: Array
    radius: Array


@dataclass
class _Piece:
    """An affine part of the new graph with an error: sum_k matrices[k] (node sources[k]) + constant +- radius."""

    sources: list[int]
    matrices: list[Csr]
    constant: Array
    radius: Array


def linearise(program: Program, state: State, rows: dict[int, Tensor]) -> Linearised | None:
    """The new network for one row, whose coefficients at every nonlinear node are `rows` (size,).

    `state` holds all intervals and the lines of all nonlinear nodes. None: there are no bounds, or functions
    without them.
    """
    graph = program.graph
    if any(not isinstance(graph.nodes[i].op, Relu | Elementwise | Product) for i in graph.nonlinear):
        return None
    bands = {
        i: _band(program, state, i, rows) for i in graph.nonlinear if not isinstance(graph.nodes[i].op, Relu)
    }
    if any(not np.isfinite(b.radius).all() for b in bands.values()):
        return None
    sums = _sums(program)
    pieces = {}
    for i, band in bands.items():
        at = sums.get(i, i)
        pieces[at] = _piece(program, state, i, at, band)
    if not all(np.isfinite(p.radius).all() for p in pieces.values()):
        return None
    marked = _marked(program, sums, bands, rows)
    return _Writer(program, pieces, marked, rows).write()


def _band(program: Program, state: State, node: int, rows: dict[int, Tensor]) -> _Band:
    """The row's own slopes, and how far the function may lie from their line."""
    rule, inputs = program.relaxations[node], state.inputs(program, node)
    if rule is None:
        raise TypeError(f"node {node} has no relaxation")
    lines = state.lines[node]
    side = rows[node].sign() if node in rows else torch.zeros_like(lines.lower_slope[0].reshape(-1))
    # half of both where the row reads nothing
    slopes = [
        (low * (1 + side) + high * (1 - side)) / 2
        for low, high in zip(lines.lower_slope, lines.upper_slope, strict=True)
    ]
    ends = rule.band(tuple(slopes), *((low[:1], high[:1]) for low, high in inputs))
    below, above = (_numbers(end) for end in ends)
    middle = below + (above - below) / 2
    radius = np.maximum(above - middle, middle - below) * (1 + 4 * UNIT)
    return _Band([_numbers(k) for k in slopes], middle, radius)


def _sums(program: Program) -> dict[int, int]:
    """Nonlinear nodes that only a sum reads, every entry once: the node of that sum."""
    readers: dict[int, list[int]] = {}
    for i, parents in enumerate(program.parents):
        for p in parents:
            readers.setdefault(p, []).append(i)
    found = {}
    for i in program.graph.nonlinear:
        only = readers.get(i, [])
        op = program.graph.nodes[only[0]].op if len(only) == 1 else None
        if (
            i in program.simplices
            or i == program.graph.output
            or not isinstance(op, Sparse)
            or not _exact(op)
        ):
            continue
        if isinstance(program.graph.nodes[i].op, Relu):
            continue
        if np.bincount(op.weight.indices, minlength=1).max(initial=0) <= 1:
            found[i] = only[0]
    return found


def _exact(op: Sparse) -> bool:
    return op.weight_error is None and op.bias_error is None


def _piece(program: Program, state: State, node: int, at: int, band: _Band) -> _Piece:
    """The node, or the sum `at` that reads it, over what it reads; copies and differences are read through."""
    size = program.sizes[node]
    if at == node:
        weight, bias = Csr(sparse.eye_array(size, format="csr")), np.zeros(size)
    else:
        weight, bias = _sum(program, at)
    sources, matrices = [], []
    spread, terms = (
        abs(weight) @ np.abs(band.middle) + np.abs(bias),
        int(np.diff(weight.indptr).max(initial=1)),
    )
    for k, p in zip(band.slopes, program.parents[node], strict=True):
        source, through = _through(program, p)
        scaled = Csr(weight.multiply(k[None]))
        sources.append(source)
        matrices.append(scaled if through is None else Csr(scaled @ through))
        matrices[-1].sum_duplicates()
        size_of = np.maximum(*(np.abs(_numbers(end)) for end in state.interval[source]))
        spread = spread + abs(scaled) @ (size_of if through is None else abs(through) @ size_of)
    constant = weight @ band.middle + bias
    # a weight times a slope, perhaps two of a difference, is rounded, and what is added up to an entry
    charge = 4 * (2 * terms + 8) * UNIT
    radius = (abs(weight) @ band.radius + charge * spread) * (1 + charge) + 1e-300
    return _Piece(sources, matrices, constant, radius)


def _sum(program: Program, node: int) -> tuple[Csr, Array]:
    """The weights and constants of a sum."""
    op = program.graph.nodes[node].op
    if not isinstance(op, Sparse):
        raise TypeError(f"node {node} is no sum")
    return Csr(op.weight), op.bias


def _through(program: Program, node: int) -> tuple[int, Csr | None]:
    """Which node to read instead of copies of it, or of differences, and by which matrix."""
    if not program.parents[node]:
        return node, None
    (source, *others), op = program.parents[node], program.graph.nodes[node].op
    if others:
        return node, None
    width = program.sizes[source]
    if isinstance(op, Select):
        held = np.flatnonzero(op.index >= 0)
        shape = (op.size, width)
        return source, Csr((np.ones(len(held)), (held, op.index[held])), shape=shape)
    nonlinear = program.layers[source] is None and source > 0
    if not isinstance(op, Sparse) or not _exact(op) or op.bias.any() or nonlinear:
        return node, None
    few = np.diff(op.weight.indptr).max(initial=0) <= 2
    return (source, Csr(op.weight)) if few and bool((np.abs(op.weight.data) == 1).all()) else (node, None)


def _marked(
    program: Program, sums: dict[int, int], bands: dict[int, _Band], rows: dict[int, Tensor]
) -> dict[int, Index]:
    """Which entries' errors get a number t: those that cost the row most, or may do so after a split."""
    cost = {}
    for i, band in bands.items():
        met = np.abs(_numbers(rows[i])) if i in rows else np.zeros(len(band.radius))
        each = (met + met.mean()) * band.radius
        at = sums.get(i, i)
        if at != i:
            each = (abs(_sum(program, at)[0]) > 0).astype(float) @ each
        cost[at] = each
    every = np.sort(np.concatenate([np.zeros(1), *cost.values()]))
    total = np.cumsum(every)
    below = int(np.searchsorted(total, NEGLIGIBLE * total[-1], side="right"))
    least = every[max(below - 1, len(every) - MOST_SYMBOLS - 1, 0)]
    return {at: np.flatnonzero(c > least).astype(np.int64) for at, c in cost.items()}


class _Writer:
    """Writes the new graph, node by node."""

    def __init__(
        self,
        program: Program,
        pieces: dict[int, _Piece],
        marked: dict[int, Index],
        rows: dict[int, Tensor],
    ) -> None:
        self.program, self.pieces, self.marked, self.rows = program, pieces, marked, rows
        self.count = sum(len(m) for m in marked.values())
        self.inputs = program.sizes[0]
        self.builder = GraphBuilder(self.inputs + self.count)
        self.used = 0
        self.place: dict[int, int] = {}

    def write(self) -> Linearised:
        program = self.program
        wanted = self._wanted()
        self.place[0] = self.builder.add(Select(self.inputs, np.arange(self.inputs, dtype=np.int64)), 0)
        for i in range(1, program.graph.output + 1):
            if i not in wanted:
                continue
            if i in self.pieces:
                at = self._affine(i, self.pieces[i])
            else:
                node = program.graph.nodes[i]
                at = self.builder.add(node.op, *(self.place[p] for p in node.parents))
            self.place[i] = self._adding_up(i, at) if i in program.simplices else at
        output = self.place[program.graph.output]
        moved = self.builder.places(output)
        origin = {moved[p]: i for i, p in self.place.items() if p in moved}
        return Linearised(self.builder.finish(output), self.count, origin)

    def _wanted(self) -> set[int]:
        wanted = {self.program.graph.output}
        for i in range(self.program.graph.output, 0, -1):
            if i in wanted:
                wanted.update(self._sources(i))
        return wanted

    def _sources(self, node: int) -> Iterable[int]:
        return self.pieces[node].sources if node in self.pieces else self.program.parents[node]

    def _affine(self, node: int, piece: _Piece) -> int:
        size, own = self.program.sizes[node], self.marked[node]
        parts = []
        for k, (source, matrix) in enumerate(zip(piece.sources, piece.matrices, strict=True)):
            bias = piece.constant if k == 0 else np.zeros(size)
            parts.append(self.builder.add(Sparse(size, bias, matrix), self.place[source]))
        rest = piece.radius.copy()
        rest[own] = 0.0
        column = self.inputs + self.used + np.arange(len(own))
        self.used += len(own)
        weight = Csr((piece.radius[own], (own, column)), shape=(size, self.inputs + self.count))
        parts.append(self.builder.add(Sparse(size, np.zeros(size), weight, None, rest), 0))
        return self.builder.add(Sum(size, (1.0,) * len(parts)), *parts)

    def _adding_up(self, node: int, at: int) -> int:
        """In every group that adds up to one, the value that the row reads least is one minus the others."""
        size, groups = self.program.sizes[node], _indices(self.program.simplices[node].groups)
        met = np.abs(_numbers(self.rows[node])) if node in self.rows else np.zeros(size)
        least = groups[np.arange(len(groups)), met[groups].argmin(1)]
        plain = np.setdiff1d(np.arange(size), least)
        others = [g[g != j] for g, j in zip(groups, least, strict=True)]
        row = np.concatenate([plain, np.repeat(least, groups.shape[1] - 1)])
        column = np.concatenate([plain, *others])
        value = np.concatenate([np.ones(len(plain)), -np.ones(len(row) - len(plain))])
        bias = np.zeros(size)
        bias[least] = 1.0
        return self.builder.add(Sparse(size, bias, Csr((value, (row, column)), shape=(size, size))), at)


def _numbers(value: Tensor) -> Array:
    found: Array = value.detach().double().reshape(-1).cpu().numpy()
    return found


def _indices(value: Tensor) -> Index:
    found: Index = value.cpu().numpy()
    return found
