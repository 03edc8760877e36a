"""Lower bounds by weak duality, in integers.

A value of node n is counted in units of 2^-scale[n]; a row of coefficients has an exponent of its own. Whatever the
multipliers d on the inputs z of the functions f are, a row over their outputs is

    a . f(z) = (a . f(z) - d . z) + d . z,    d . z = (d W) . h + d . b,    and so on back to the inputs x

The least of each a f(z) - d z over [l, u] is known. A coefficient in [c, c + w] becomes c and costs w max(0, -l).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verifolio_check import curves
from verifolio_check.integers import (
    SMALLEST,
    Ints,
    Invalid,
    ceil_of,
    floor_of,
    floor_shift,
    largest,
    magnitude,
    outward,
    within,
)
from verifolio_check.network import Network
from verifolio_check.vnnlib import Region, Row

INPUT_BITS, BIAS_BITS, ROW_BITS = 30, 30, 22
GUARD = 6  # bits of a total beyond those of the value that it bounds
ELEMENTS = 1 << 15  # numbers per array of one pass: several arrays fit into a core's cache
Index = NDArray[np.intp]
Ends = dict[int, Ints]  # by node
Start = dict[
    int, tuple[Ints, Ints]
]  # by node: coefficients (rows, size) 2^-ROW_BITS, how much they may be more


@dataclass
class Domains:
    """Parts of a region: intervals (count, size) of the box, which is node 0, and of the inputs of functions.

    `node` is the place of each in a tree, `goal` the number of what is to be proved there. `lines` of functions are
    kept once they are known.
    """

    low: Ends
    high: Ends
    node: Index
    goal: Index
    lines: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)

    def pick(self, at: Index | NDArray[np.bool_]) -> Domains:
        low, high = ({z: e[at] for z, e in ends.items()} for ends in (self.low, self.high))
        return Domains(low, high, self.node[at], self.goal[at])

    def join(self, other: Domains) -> Domains:
        low = {z: np.concatenate([e, other.low[z]]) for z, e in self.low.items()}
        high = {z: np.concatenate([e, other.high[z]]) for z, e in self.high.items()}
        node, goal = np.concatenate([self.node, other.node]), np.concatenate([self.goal, other.goal])
        return Domains(low, high, node, goal)

    def full(self) -> NDArray[np.bool_]:
        """Whether there may be a point in each."""
        return np.asarray(np.all([(self.low[z] <= self.high[z]).all(1) for z in self.low], 0))


class Model:
    """A network over one region: units and intervals of all nodes, node by node."""

    def __init__(self, network: Network, region: Region, bits: int) -> None:
        self.network, self.bits = network, bits
        self.scale: list[int] = []
        self.low: list[Ints] = []
        self.high: list[Ints] = []
        self.room: list[int] = []  # bits that a coefficient may have
        self.bias: dict[int, tuple[Ints, int]] = {}  # ends, and their exponent
        nodes = [network.nodes[n] for n in network.curves]
        self.before = sorted({node.parent for node in nodes})
        self.kinked, self.smooth = (
            {node.parent for node in nodes if node.function == f} for f in (curves.RELU, curves.SIGMOID)
        )
        top = max(abs(v) for v in (*region.lower, *region.upper))
        size = top.numerator.bit_length() - top.denominator.bit_length() + 1 if top else 0
        if abs(size) > -SMALLEST:
            raise Invalid("an input bound beyond 2^300 or below 2^-300")
        scale = INPUT_BITS - size
        low = np.array([floor_of(v, scale) for v in region.lower], np.int64)
        self._append(scale, low, np.array([ceil_of(v, scale) for v in region.upper], np.int64))

    def _append(self, scale: int, low: Ints, high: Ints) -> None:
        room = min(ROW_BITS + 1, 58 - ((largest(low, high) + 1) * len(low)).bit_length())
        if room < 8:
            raise Invalid("intervals of too many bits")
        if len(self.scale) in self.smooth and scale < curves.STEP:
            raise Invalid("arguments of sigmoids in coarser units than the steps of their table")
        self.scale.append(scale)
        self.low.append(low)
        self.high.append(high)
        self.room.append(room)

    def advance(self, last: int) -> None:
        """Intervals of the nodes up to `last`, each from those before it; inputs of functions by the default rule."""
        for n in range(len(self.scale), last + 1):
            node, z = self.network.nodes[n], self.network.nodes[n].parent
            if node.function:
                ends = curves.image(node.function, self.low[z], self.high[z], self.scale[z])
                self._append(self.scale[z], *ends)
                self.room[n] = min(self.room[n], self.room[z])
            else:
                self._advance_map(n)
            if n in self.before:
                whole = self.whole()
                self.narrow(whole, n)
                self.low[n], self.high[n] = whole.low[n][0], whole.high[n][0]

    def _advance_map(self, n: int) -> None:
        node = self.network.nodes[n]
        images = []  # ends, and their exponent
        for p, linear in node.terms:
            r = max(((largest(self.low[p], self.high[p]) + 1) * linear.mass).bit_length() - 58, 0)
            image = linear.image(self.low[p] >> r, -(-self.high[p] >> r))
            images.append((*image, linear.exponent + self.scale[p] - r))
        bias = np.zeros((2, node.size)) if node.bias is None else node.bias
        sizes = [largest(low, high).bit_length() - unit for low, high, unit in images]
        most = max(*sizes, magnitude(bias), 0 if n in self.smooth else SMALLEST)
        scale = self.bits - most - len(sizes).bit_length()
        low, high = outward(bias, scale)
        for a, b, unit in images:
            low, high = low + floor_shift(a, unit - scale), high - floor_shift(-b, unit - scale)
        self._append(scale, low, high)
        if node.bias is not None:
            finer = min(BIAS_BITS, 61 - ROW_BITS - node.size.bit_length()) - magnitude(bias)
            self.bias[n] = outward(bias, finer), finer

    def whole(self, count: int = 1) -> Domains:
        """The whole region, so many times, with the intervals so far."""
        known = [0, *(z for z in self.before if z < len(self.scale))]
        low, high = ({z: np.repeat(e[z][None], count, 0) for z in known} for e in (self.low, self.high))
        return Domains(low, high, np.zeros(count, np.intp), np.arange(count))

    def open(self, last: int) -> list[tuple[int, Index]]:
        """Inputs of ReLUs that have both signs, up to a node, in order: (node, neurons)."""
        nodes = [z for z in self.before if z <= last and z in self.kinked]
        found = [(z, np.flatnonzero((self.low[z] < 0) & (self.high[z] > 0))) for z in nodes]
        return [(z, at) for z, at in found if len(at)]

    def narrow(self, domains: Domains, z: int) -> None:
        """The default rule: narrower intervals of a node's neurons, of those of both signs if it is a ReLU's."""
        step = max(1, ELEMENTS // max(node.size for node in self.network.nodes[: z + 1]))
        low, high = domains.low[z], domains.high[z]
        for sign, ends, better in ((1, low, np.maximum), (-1, high, np.minimum)):
            places = np.nonzero((low < 0) & (high > 0) if z in self.kinked else low < high)
            for k in range(0, len(places[0]), step):
                at, neuron = (p[k : k + step] for p in places)
                sweep = Sweep(self, domains, at, self.scale[z] + GUARD)
                better.at(ends, (at, neuron), sign * (sweep.run(self.unit(z, neuron, sign)) >> GUARD))
        domains.lines.pop(z, None)

    def unit(self, z: int, neuron: Index, sign: int) -> Start:
        """Rows that are a neuron's value each, or its negative."""
        value = np.zeros((len(neuron), self.network.nodes[z].size), np.int64)
        value[np.arange(len(neuron)), neuron] = sign << ROW_BITS
        return {z: (value, np.zeros(len(neuron), np.int64))}

    def row(self, row: Row) -> tuple[Start, int]:
        """Where a row starts, and its limit rounded up in units of 2^-GUARD of the outputs', times a power of two."""
        size = max((abs(c) for _, c in (*row.inputs, *row.outputs)), default=1)
        shift = size.denominator.bit_length() - size.numerator.bit_length()
        start: Start = {}
        for node, part in ((self.network.output, row.outputs), (0, row.inputs)):
            value, width = np.zeros((1, self.network.nodes[node].size), np.int64), np.zeros(1, np.int64)
            for i, c in part:
                value[0, i] = floor_of(c, shift + ROW_BITS)
                width |= int(value[0, i]) != ceil_of(c, shift + ROW_BITS)
            start[node] = value, width
        limit = ceil_of(row.limit, shift + self.scale[self.network.output] + GUARD)
        within(2 * abs(limit))
        return start, limit


class Sweep:
    """Lower bounds of rows on domains `at`, in units of 2^-unit, found by going back from the rows to the inputs.

    A certificate may state `slopes[z]` (rows, neurons) of lines below ReLUs of both signs, where not -1, and
    `moves[z]`: what is taken off d, in 2^-ROW_BITS.
    """

    def __init__(self, model: Model, domains: Domains, at: Index, unit: int) -> None:
        self.model, self.domains, self.at, self.unit = model, domains, at, unit
        self.slopes: Ends = {}
        self.moves: Ends = {}
        self.rows: dict[int, tuple[Ints, Ints]] = {}  # coefficients by node, and their exponents
        self.total, self.size = np.zeros(len(at), np.int64), 0  # and what no total exceeds

    def run(self, start: Start) -> Ints:
        for n, (value, width) in start.items():
            if value.any() or width.any():  # coefficients that round to 0 count as well
                self.add(n, value, width, np.full(len(self.at), ROW_BITS))
        for n in range(max(start), 0, -1):
            if n in self.rows:
                (self.through_curve if self.model.network.nodes[n].function else self.through_map)(n)
        if 0 in self.rows:
            value, exponent = self.rows[0]
            ends = [value * e[0][self.at] for e in (self.domains.low, self.domains.high)]
            self.grow(np.minimum(*ends).sum(1), exponent + self.model.scale[0])
        return self.total

    def grow(self, part: Ints, exponent: Ints) -> None:
        """Add to the bounds, rounded down."""
        part = floor_shift(part, exponent - self.unit)
        self.size += largest(part)
        within(self.size)
        self.total += part

    def add(self, n: int, value: Ints, width: Ints, exponent: Ints) -> None:
        """Add coefficients in [value, value + width] 2^-exponent to those of node n, rounded down to few bits."""
        if n in self.rows:
            other, others = self.rows.pop(n)
            least = np.minimum(exponent, others)
            value, other = floor_shift(value, exponent - least), floor_shift(other, others - least)
            width = rounded(width, exponent - least) + (others > least)
            within(largest(value) + largest(other))
            value, exponent = value + other, least
        size = np.frexp(np.abs(value).max(1, initial=0).astype(np.float64))[1].astype(np.int64)
        r = np.maximum(size - self.model.room[n], 0)
        self.rows[n], width = (floor_shift(value, r), exponent - r), rounded(width, r)
        below = int(np.maximum(-self.model.low[n], 0).sum())
        within(largest(width) * below)
        self.grow(-width * below, exponent - r + self.model.scale[n])

    def through_curve(self, n: int) -> None:
        """Multipliers d on the input z of a function; the least of a f(z) - d z stays behind."""
        node, (a, exponent), domains = self.model.network.nodes[n], self.rows.pop(n), self.domains
        z, scale = node.parent, self.model.scale[node.parent]
        if z not in domains.lines:
            domains.lines[z] = curves.lines(node.function, domains.low[z], domains.high[z], scale)
        low, high, below, above = (e[self.at] for e in (domains.low[z], domains.high[z], *domains.lines[z]))
        if z in self.slopes:
            below = np.where((self.slopes[z] >= 0) & (low < 0) & (high > 0), self.slopes[z], below)
        d = (a * np.where(a < 0, above, below)) >> curves.SLOPE_BITS
        if z in self.moves:
            moves = floor_shift(self.moves[z], ROW_BITS - exponent)
            within(4 * (largest(moves) + largest(d)) * node.size)
            d -= moves
            within(4 * largest(np.abs(d).sum(1)) * (largest(low, high) + 1))
        self.grow(curves.least(node.function, a, d, low, high, scale).sum(1), exponent + scale)
        self.add(z, d, np.zeros(len(d), np.int64), exponent)

    def through_map(self, n: int) -> None:
        """Multipliers on an affine node become multipliers on its parents."""
        d, exponent = self.rows.pop(n)
        above, below = np.maximum(d, 0), np.minimum(d, 0)
        up, down = above.sum(1), below.sum(1)  # d has few bits, see `add`
        if n in self.model.bias:
            (low, high), unit = self.model.bias[n]
            within(2 * largest(up, down) * largest(low, high))
            self.grow((above * low + below * high).sum(1), exponent + unit)
        for parent, linear in self.model.network.nodes[n].terms:
            raw, spread = linear.pull(d), linear.error * (up - down)
            within(largest(raw) + 2 * linear.error * largest(up, down))
            self.add(parent, raw + (linear.error * down)[:, None], spread, exponent + linear.exponent)


def rounded(width: Ints, r: Ints) -> Ints:
    """The width of an interval whose ends were shifted right by r, the lower one rounded down."""
    return -floor_shift(-width, r) + (r > 0)
