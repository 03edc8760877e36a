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
    Ints,
    Invalid,
    ceil_of,
    floor_of,
    floor_shift,
    largest,
    magnitude,
    scaled,
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
]  # by node: coefficients (rows, size) 2^-ROW_BITS, and how much they may be more


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
        self.bias: list[tuple[Ints, Ints, int] | None] = []  # and its exponent
        self.below: list[int] = []  # the sum of max(0, -low)
        self.room: list[int] = []  # bits that a coefficient may have
        nodes = [network.nodes[n] for n in network.curves]
        self.before = sorted({node.parent for node in nodes})
        self.kinked, self.smooth = (
            {node.parent for node in nodes if node.function == f} for f in (curves.RELU, curves.SIGMOID)
        )
        top = max(abs(v) for v in (*region.lower, *region.upper))
        size = top.numerator.bit_length() - top.denominator.bit_length() + 1 if top else 0
        if abs(size) > 300:
            raise Invalid("an input bound beyond 2^300 or below 2^-300")
        scale = INPUT_BITS - size
        low = np.array([floor_of(v, scale) for v in region.lower], np.int64)
        self._keep(scale, low, np.array([ceil_of(v, scale) for v in region.upper], np.int64))

    def _keep(self, scale: int, low: Ints, high: Ints) -> None:
        room = min(ROW_BITS + 1, 58 - ((largest(low, high) + 1) * len(low)).bit_length())
        if room < 8:
            raise Invalid("intervals of too many bits")
        below = int(np.maximum(-low, 0).sum())
        values = (scale, low, high, None, below, room)
        for held, value in zip(
            (self.scale, self.low, self.high, self.bias, self.below, self.room), values, strict=True
        ):
            held.append(value)  # type: ignore[attr-defined]

    def advance(self, last: int) -> None:
        """Intervals of the nodes up to `last`, each from those before it; inputs of functions by the default rule."""
        for n in range(len(self.scale), last + 1):
            node, z = self.network.nodes[n], self.network.nodes[n].parent
            if node.function:
                self._keep(
                    self.scale[z], *curves.image(node.function, self.low[z], self.high[z], self.scale[z])
                )
                self.room[n] = min(self.room[n], self.room[z])
            else:
                self._advance_map(n)
            if n in self.before:
                whole = self.whole()
                self.narrow(whole, n)
                self.keep(n, whole.low[n][0], whole.high[n][0])

    def _advance_map(self, n: int) -> None:
        node = self.network.nodes[n]
        images, units = [], []
        for p, linear in node.terms:
            r = max(((largest(self.low[p], self.high[p]) + 1) * linear.mass).bit_length() - 58, 0)
            images.append(linear.image(self.low[p] >> r, -(-self.high[p] >> r)))
            units.append(linear.exponent + self.scale[p] - r)
        sizes = [largest(*ends).bit_length() - u for ends, u in zip(images, units, strict=True)]
        ends = [np.zeros(node.size) if e is None else e for e in (node.low, node.high)]
        own = magnitude(*ends)
        scale = self.bits - max(*sizes, own, 0 if n in self.smooth else -300) - len(sizes).bit_length()
        low, high = scaled(ends[0], scale), -scaled(-ends[1], scale)
        for (a, b), unit in zip(images, units, strict=True):
            low += floor_shift(a, unit - scale)
            high -= floor_shift(-b, unit - scale)
        self._keep(scale, low, high)
        if node.low is not None:
            finer = min(BIAS_BITS, 61 - ROW_BITS - node.size.bit_length()) - own
            self.bias[n] = scaled(ends[0], finer), -scaled(-ends[1], finer), finer

    def whole(self, count: int = 1) -> Domains:
        """The whole region, so many times, with the intervals so far."""
        known = [0, *(z for z in self.before if z < len(self.scale))]
        low, high = ({z: np.repeat(e[z][None], count, 0) for z in known} for e in (self.low, self.high))
        return Domains(low, high, np.zeros(count, np.intp), np.arange(count))

    def keep(self, z: int, low: Ints, high: Ints) -> None:
        """Narrower intervals of a node."""
        self.low[z], self.high[z], self.below[z] = low, high, int(np.maximum(-low, 0).sum())

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
                value = np.zeros((len(at), self.network.nodes[z].size), np.int64)
                value[np.arange(len(at)), neuron] = sign << ROW_BITS
                start = {z: (value, np.zeros(len(at), np.int64))}
                bound = Sweep(self, domains, at, self.scale[z] + GUARD).run(start) >> GUARD
                better.at(ends, (at, neuron), sign * bound)
        domains.lines.pop(z, None)

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

    slopes: Ends
    moves: Ends

    def __init__(self, model: Model, domains: Domains, at: Index, unit: int) -> None:
        self.model, self.at, self.unit, self.slopes, self.moves = model, at, unit, {}, {}
        self.domains, self.low, self.high = domains, domains.low, domains.high
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
            ends = [value * e[0][self.at] for e in (self.low, self.high)]
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
        within(largest(width) * self.model.below[n])
        self.grow(-width * self.model.below[n], exponent - r + self.model.scale[n])

    def through_curve(self, n: int) -> None:
        """Multipliers d on the input z of a function; the least of a f(z) - d z stays behind."""
        node, (a, exponent) = self.model.network.nodes[n], self.rows.pop(n)
        z = node.parent
        low, high, scale = self.low[z][self.at], self.high[z][self.at], self.model.scale[z]
        if z not in self.domains.lines:
            self.domains.lines[z] = curves.lines(node.function, self.low[z], self.high[z], scale)
        below, above = (line[self.at] for line in self.domains.lines[z])
        if z in self.slopes:
            below = np.where((self.slopes[z] >= 0) & (low < 0) & (high > 0), self.slopes[z], below)
        d = (a * (below + (a < 0) * (above - below))) >> curves.SLOPE_BITS
        if z in self.moves:
            moves = floor_shift(self.moves[z], ROW_BITS - exponent)
            within(4 * (largest(moves) + largest(d)) * node.size)
            d -= moves
            within(4 * largest(np.abs(d).sum(1)) * (largest(low, high) + 1))
        self.grow(curves.least(node.function, a, d, low, high, scale).sum(1), exponent + scale)
        self.add(z, d, np.zeros(len(d), np.int64), exponent)

    def through_map(self, n: int) -> None:
        """Multipliers on an affine node become multipliers on its parents."""
        bias, (d, exponent) = self.model.bias[n], self.rows.pop(n)
        above, below = np.maximum(d, 0), np.minimum(d, 0)
        up, down = above.sum(1), below.sum(1)  # d has few bits, see `add`
        if bias is not None:
            within(2 * largest(up, down) * largest(*bias[:2]))
            self.grow((above * bias[0] + below * bias[1]).sum(1), exponent + bias[2])
        for parent, linear in self.model.network.nodes[n].terms:
            raw = linear.pull(d)
            within(largest(raw) + 2 * linear.error * largest(up, down))
            self.add(
                parent,
                raw + (linear.error * down)[:, None],
                linear.error * (up - down),
                exponent + linear.exponent,
            )


def rounded(width: Ints, r: Ints) -> Ints:
    """The width of an interval whose ends were shifted right by r, the lower one rounded down."""
    return -floor_shift(-width, r) + (r > 0)
