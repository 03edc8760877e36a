"""Zonotopes from the inputs forward (Singh et al. 2018, *Fast and Effective Robustness Certification*).

On one region every node's value is centre + sum_k t_k rows_k, up to an error of each entry by itself. The numbers t_k
in [-1, 1] are the same for all nodes: one for every input that varies, one for every error that several entries see.

    affine, z = W h + b:    centre' = W centre + b,  rows' = W rows,  error' = |W| error + rounding
    nonlinear, k z + t <= h <= k z + T:
                            centre' = k centre + (t + T) / 2,  rows' = k rows,  error' = |k| error + (T - t) / 2

A pass costs as many evaluations of the network as there are numbers t_k, while bounding neurons backward costs two
passes for each of them. An error stays by itself as long as only one entry reads it; then it gets a t_k.

Rows of a node that would take too much memory are computed from those of earlier nodes when they are read, in chunks.
Each time they may be rounded differently: what is said of them holds for any rounding that `noise_of` allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.model.problem import NARROW
from verifolio.plugins.crown.propagate.layers import (
    ConcatLayer,
    ConvLayer,
    DenseLayer,
    Layer,
    ScaleLayer,
    SelectLayer,
    SparseLayer,
    csr,
)
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.relax.base import Interval, Lines, tighter
from verifolio.plugins.crown.worker_threads import WorkerThreads

CHUNK = (
    1 << 18
)  # numbers of a node's rows that are computed together: 2 MB in float64; larger ones leave the caches
STORED = 1 << 26  # numbers of rows that are kept at a time: 512 MB in float64
# further errors stay by themselves: so many passes through a network of attention take a few seconds
MOST_SYMBOLS = 1 << 14
# An error below this part of an entry's size is rounding, or as good as nothing: it gets no t_k
WORTHWHILE = 1e-9


@dataclass
class Zonotope:
    """A node: `centre`, `radius` (the sum of the rows' absolute values, or more) and `error`, each (size,).

    `noise` is the part of the error that rounding the node's own rows has.
    `rows` (count, size), if they are kept; None: they follow from the parents'. Those that are missing at the end are
    nought, except for entries `own` of numbers t_k from `first` on, whose errors were `values`.
    """

    centre: Tensor
    radius: Tensor
    error: Tensor
    noise: Tensor
    rows: Tensor | None = None
    first: int = 0
    own: Tensor | None = None
    values: Tensor | None = None

    def reach(self) -> Tensor:
        """No value of the node is larger, and no sum of its terms."""
        return self.centre.abs() + self.radius + self.error

    def promote(self, entries: Tensor, first: int) -> None:
        """Give the errors of some entries a number t_k each."""
        self.first, self.own, self.values = first, entries, self.error[entries]
        self.error = self.error.index_fill(0, entries, 0.0)
        self.radius = self.radius.index_add(0, entries, self.values)


class Zonotopes:
    """The zonotopes of all nodes over one region, made one after the other."""

    def __init__(self, program: Program, state: State, cores: int = 1) -> None:
        if state.region.batch != 1:
            raise ValueError("zonotopes are made of one region at a time")
        self.program, self.state, self.cores = program, state, cores
        self.fans = fan_outs(program)
        self.measured = measured(program, self.fans)
        self.slopes: dict[int, list[Tensor]] = {}
        self.direct: dict[int, list[tuple[int, Tensor]]] = {}
        self.last = last_readers(program)
        low, high = state.region.lower[0], state.region.upper[0]
        centre = (low + high) / 2
        reach = torch.maximum(high - centre, centre - low) * (1 + 4 * program.space.unit)
        wide = (reach > NARROW * centre.abs()).nonzero()[:, 0]
        zero = torch.zeros_like(reach)
        first = Zonotope(centre, zero, reach, zero, reach.new_zeros(0, len(reach)))
        first.promote(wide, 0)
        self.count = len(wide)
        self.nodes = {0: first}

    @torch.no_grad()
    def add(self, node: int) -> None:
        """The zonotope of a node; narrows the node's interval."""
        layer, parents = self.program.layers[node], self.program.parents[node]
        if layer is not None:
            made = self._affine(layer, [self.nodes[p] for p in parents])
        else:
            made = self._relaxed(node, [self.nodes[p] for p in parents])
        self.nodes[node] = made
        self._shorten(node)
        pointwise = is_pointwise(self.program, node)
        if node in self.measured:
            self._measure(node, made)
        self._narrow(node, made)
        fixed = made.rows is not None or (pointwise and all(self._fixed(p) for p in parents))
        if fixed and self.fans[node]:
            self._promote(made)
        self._forget(node, made)

    def _affine(self, layer: Layer, parents: list[Zonotope]) -> Zonotope:
        program = self.program
        centre = layer.forward(*(p.centre[None] for p in parents))[0]
        noise = program.noise_of(layer, [p.reach()[None] for p in parents])[0]
        grown = 1 + 2 * program.gamma(layer.terms)
        error, radius = torch.zeros_like(noise), torch.zeros_like(noise)
        if parents:
            error = layer.spread(*(p.error[None] for p in parents))[0] * grown
            radius = layer.spread(*(p.radius[None] for p in parents))[0] * grown
        return Zonotope(centre.clone(), radius + noise, error + noise, noise)

    def _relaxed(self, node: int, parents: list[Zonotope]) -> Zonotope:
        inputs = self.state.inputs(self.program, node)
        rule = self.program.relaxations[node]
        if rule is None:
            raise TypeError(f"node {node} is neither affine nor relaxed")
        slopes, below, above = parallel(rule.parallel(*inputs), inputs, self.program.space.unit)
        self.slopes[node] = [k[0] for k in slopes]
        below, above = below[0], above[0]
        centre, error, radius, size = (
            (above + below) / 2,
            (above - below) / 2,
            torch.zeros_like(below),
            below.abs(),
        )
        for k, parent in zip(self.slopes[node], parents, strict=True):
            centre = centre + k * parent.centre
            error, radius = error + k.abs() * parent.error, radius + k.abs() * parent.radius
            size = size + k.abs() * parent.reach()
        unit = self.program.space.unit
        lost = 16 * (len(parents) + 2) * unit * (size + above.abs()) + torch.finfo(below.dtype).tiny
        return Zonotope(centre, radius + lost, error * (1 + 16 * unit) + lost, lost)

    def _shorten(self, node: int) -> None:
        """Sums of products, as in attention: one sparse matrix for each factor, instead of the products' own rows.

        Where a factor copies entries, the matrix reads the originals. A weight times a slope is rounded once more,
        which the error of the products allows for.
        """
        layer, parents = self.program.layers[node], self.program.parents[node]
        if not isinstance(layer, SparseLayer) or len(self.slopes.get(parents[0], ())) < 2:
            return
        made = []
        if parents[0] in self.measured or self.nodes[parents[0]].own is not None:
            return
        column, weight = layer.weight.col_indices(), layer.weight.values()
        for k, p in zip(self.slopes[parents[0]], self.program.parents[parents[0]], strict=True):
            at, values, copies = column, weight * k[column], self.program.layers[p]
            if isinstance(copies, SelectLayer) and self.nodes[p].own is None:
                values = values.masked_fill(copies.hole[column], 0.0)
                at, p = copies.index[column], self.program.parents[p][0]
            made.append(
                (p, csr(layer.weight.crow_indices(), at, values, (layer.size, self.program.sizes[p])))
            )
        self.direct[node] = made

    def _fixed(self, node: int) -> bool:
        """Whether the rows are the same numbers whenever they are read."""
        if self.nodes[node].rows is not None:
            return True
        return is_pointwise(self.program, node) and all(self._fixed(p) for p in self.program.parents[node])

    def _measure(self, node: int, made: Zonotope) -> None:
        """The sum of the rows, in chunks; they are kept where there is room."""
        size = self.program.sizes[node]
        held = sum(z.rows.numel() for z in self.nodes.values() if z.rows is not None)
        keep = held + self.count * size <= STORED and not self._cheap(node)
        rows = made.radius.new_empty(self.count if keep else 0, size)
        totals: list[Tensor] = []
        read = [p for p, _ in self.direct.get(node, [])] or self.program.parents[node]
        step = max(1, CHUNK // max(size, *(self.program.sizes[p] for p in read)))
        starts = list(range(0, self.count, step))

        @torch.no_grad()  # every thread has its own setting
        def work(a: int) -> bool:
            part = self._compute(node, a, min(self.count, a + step))
            totals.append(part.abs().sum(0))
            if keep:
                rows[a : a + step] = part
            return False

        WorkerThreads(self.cores, lambda: starts.pop() if starts else None, work).run()
        made.rows = rows if keep else None
        total = torch.stack(totals).sum(0) if totals else torch.zeros_like(made.radius)
        reserve = 2 * (self.count + 8) * self.program.space.unit
        # rows that are computed again may be rounded differently
        made.radius = torch.fmin(total * (1 + reserve) + 2 * made.noise, made.radius)

    def _cheap(self, node: int) -> bool:
        """Whether rows are sooner computed again than written: few terms each, and more entries than before."""
        layer, parents = self.program.layers[node], self.program.parents[node]
        return isinstance(layer, SparseLayer) and layer.size > self.program.sizes[parents[0]]

    def _narrow(self, node: int, made: Zonotope) -> None:
        unit = self.program.space.unit
        reserve = made.radius * (1 + 4 * unit) + made.error + 4 * unit * made.reach()
        low, high = made.centre - reserve, made.centre + reserve
        low = torch.where(low.isfinite(), low, -torch.inf)
        high = torch.where(high.isfinite(), high, torch.inf)
        self.state.interval[node] = tighter((low[None], high[None]), self.state.interval[node])

    def _promote(self, made: Zonotope) -> None:
        large = (made.error > WORTHWHILE * made.reach()) & (made.error > 4 * made.noise)
        entries = (large & made.error.isfinite()).nonzero()[:, 0]
        if len(entries) and self.count + len(entries) <= MOST_SYMBOLS:
            made.promote(entries, self.count)
            self.count += len(entries)

    def _forget(self, node: int, made: Zonotope) -> None:
        """Drop the rows that nobody reads any more."""
        for p in set(self.program.parents[node]):
            if made.rows is None:
                self._extend(p, self.last[node])
        for p, zonotope in self.nodes.items():
            if self.last[p] <= node and zonotope.rows is not None:
                zonotope.rows = None

    def _extend(self, node: int, until: int) -> None:
        self.last[node] = max(self.last[node], until)
        if self.nodes[node].rows is None:
            for p in self.program.parents[node]:
                self._extend(p, until)

    def _rows(self, node: int, a: int, b: int) -> Tensor:
        """Rows a to b of a node (b - a, size)."""
        zonotope = self.nodes[node]
        rows = zonotope.rows
        if rows is None:
            found = self._compute(node, a, b)
        else:
            found = rows[a:b]
            if b > len(rows):
                found = torch.cat([found, rows.new_zeros(b - max(a, len(rows)), rows.shape[1])])
        if zonotope.own is None or zonotope.values is None:
            return found
        start, end = max(a, zonotope.first), min(b, zonotope.first + len(zonotope.own))
        if start < end:
            found = found.clone()
            place = torch.arange(start, end, device=found.device)
            at = place - zonotope.first
            found[place - a, zonotope.own[at]] += zonotope.values[at]
        return found

    def _compute(self, node: int, a: int, b: int) -> Tensor:
        layer, parents = self.program.layers[node], self.program.parents[node]
        if not parents:
            return self.nodes[node].centre.new_zeros(b - a, self.program.sizes[node])
        if node in self.direct:
            return torch.stack([(m @ self._rows(p, a, b).T).T for p, m in self.direct[node]]).sum(0)
        rows = [self._rows(p, a, b) for p in parents]
        if layer is not None:
            return layer.linear(*rows)
        found = self.slopes[node][0] * rows[0]
        for k, more in zip(self.slopes[node][1:], rows[1:], strict=True):
            found = found.addcmul_(k, more)
        return found


def parallel(lines: Lines, inputs: list[Interval], unit: float) -> tuple[list[Tensor], Tensor, Tensor]:
    """One slope for both lines, and what lies below and above it; other lines lose what their slopes differ by."""
    zero = torch.zeros_like(inputs[0][0])
    below = zero if lines.lower_bias is None else lines.lower_bias
    above = zero if lines.upper_bias is None else lines.upper_bias
    slopes, size = [], below.abs() + above.abs()
    for low, high, (left, right) in zip(lines.lower_slope, lines.upper_slope, inputs, strict=True):
        k = (low + high) / 2
        far = torch.maximum(left.abs(), right.abs())
        below = below + torch.minimum((low - k) * left, (low - k) * right)
        above = above + torch.maximum((high - k) * left, (high - k) * right)
        slopes.append(k)
        size = size + (high - low).abs() * far
    # parallel lines differ by nothing, and nothing is rounded
    return slopes, below - 16 * unit * size, above + 16 * unit * size


def is_pointwise(program: Program, node: int) -> bool:
    """Whether every entry reads one entry at most: the node's rows need not be kept, and its radius needs no pass."""
    layer, parents = program.layers[node], program.parents[node]
    if layer is None or not parents:
        return len(parents) <= 1
    return isinstance(layer, ScaleLayer | SelectLayer | ConcatLayer)


def measured(program: Program, fans: list[bool]) -> frozenset[int]:
    """The nodes whose rows are worth a pass: several entries read one of theirs, or the interval is needed."""
    wanted = {program.graph.output, *program.before, *(i for i, several in enumerate(fans) if several)}
    for i in range(len(program.parents) - 1, -1, -1):
        if i in wanted and is_pointwise(program, i):
            wanted.update(program.parents[i])
    return frozenset(i for i in wanted if i and not is_pointwise(program, i))


def fan_outs(program: Program) -> list[bool]:
    """Whether some entry of a node is read by several entries after it."""
    edges = [0] * len(program.parents)
    fans = [False] * len(program.parents)
    for i, parents in enumerate(program.parents):
        for p in parents:
            edges[p] += 1
            fans[p] = fans[p] or edges[p] > 1 or _spreads(program.layers[i])
    return fans


def _spreads(layer: Layer | None) -> bool:
    if isinstance(layer, SparseLayer):
        return layer.fans
    if isinstance(layer, DenseLayer):
        return layer.size > 1
    if isinstance(layer, ConvLayer):
        return layer.overlaps()
    return isinstance(layer, SelectLayer) and layer.terms > 1


def last_readers(program: Program) -> list[int]:
    """The last node that reads each node."""
    last = list(range(len(program.parents)))
    for i, parents in enumerate(program.parents):
        for p in parents:
            last[p] = i
    return last
