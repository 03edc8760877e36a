"""Lower bounds by weak duality, in integers.

A value of node n is counted in units of 2^-scale[n]; a row of coefficients has an exponent of its own. Whatever the
multipliers d on the inputs z of the ReLUs are, a row over their outputs is

    a . relu(z) = (a . relu(z) - d . z) + d . z,    d . z = (d W) . h + d . b,    and so on back to the inputs x

Each (a relu(z) - d z) is piecewise linear in z: over [l, u] it is least at l, at u or at 0. A coefficient that is
known to lie in [c, c + w] is replaced by c at the price of w max(0, -l), which is nothing where h >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verifolio_check.integers import (
    ROOM,
    Floats,
    Ints,
    Invalid,
    ceil_of,
    floor_of,
    largest,
    magnitude,
    scaled,
    within,
)
from verifolio_check.network import Network
from verifolio_check.vnnlib import Region, Row

INPUT_BITS, BIAS_BITS, SLOPE_BITS, ROW_BITS = 30, 30, 15, 22
GUARD = 6  # bits of a total beyond those of the value that it bounds
ELEMENTS = 1 << 15  # numbers per array of one pass: several arrays fit into a core's cache
ONE = 1 << SLOPE_BITS
Index = NDArray[np.intp]


def floor_shift(x: Ints, r: Ints | int) -> Ints:
    """floor(x / 2^r), where r has one entry per row of x or is a number, of any sign."""
    r = np.asarray(r, np.int64)
    if r.ndim and x.ndim == 2:
        r = r[:, None]
    if (r < 0).any():
        left = np.clip(-r, 0, 62)
        within(ROOM if (np.abs(x) >> (62 - left)).any() else 0)
        x = x << left
    return np.asarray(x >> np.clip(r, 0, 62))


@dataclass
class Rows:
    """Rows of coefficients (count, size) on a node: each lies in [value, value + width] 2^-exponent."""

    value: Ints
    width: Ints
    exponent: Ints

    def plus(self, other: Rows) -> Rows:
        """The sum, in the coarser unit of both."""
        exponent = np.minimum(self.exponent, other.exponent)
        a, b = (x.coarser(x.exponent - exponent) for x in (self, other))
        within(largest(a.value) + largest(b.value))
        return Rows(a.value + b.value, a.width + b.width, exponent)

    def coarser(self, r: Ints) -> Rows:
        """The same with 2^r times the unit."""
        width = -floor_shift(-self.width, r) + (r > 0)
        return Rows(floor_shift(self.value, r), width, self.exponent - r)


@dataclass
class State:
    """What holds on each of several domains: the box (count, inputs), intervals of ReLU inputs (count, size) by node.

    The intervals of node z are counted in units of 2^-scale[z], which every domain has for itself (count,).
    """

    lower: Ints
    upper: Ints
    low: dict[int, Ints]
    high: dict[int, Ints]
    scale: dict[int, Ints]
    lines: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)

    def pick(self, at: Index | NDArray[np.bool_]) -> State:
        low, high, scale = ({z: v[at] for z, v in held.items()} for held in (self.low, self.high, self.scale))
        return State(self.lower[at], self.upper[at], low, high, scale)

    def sharpen(self, z: int, bits: int) -> None:
        """Smaller units where the intervals have become so small that they fit into fewer bits."""
        reach = np.maximum(np.abs(self.low[z]), np.abs(self.high[z])).max(1)
        more = np.maximum(bits - np.frexp((reach + 1).astype(np.float64))[1], 0)
        self.low[z], self.high[z] = self.low[z] << more[:, None], self.high[z] << more[:, None]
        self.scale[z] = self.scale[z] + more

    def empty(self) -> NDArray[np.bool_]:
        """Domains in which no point is left."""
        out = (self.lower > self.upper).any(1)
        for z in self.low:
            out |= (self.low[z] > self.high[z]).any(1)
        return np.asarray(out)

    def slopes(self, z: int) -> tuple[Ints, Ints]:
        """The default slopes of lower and upper lines, in 2^-15."""
        if z not in self.lines:
            low, high = self.low[z], self.high[z]
            on, off = low >= 0, high <= 0
            upper = (np.maximum(high, 0) << SLOPE_BITS) // np.maximum(high - low, 1)
            upper = np.where(on, ONE, np.where(off, 0, upper))
            self.lines[z] = np.where(on | (~off & (high > -low)), ONE, 0), upper
        return self.lines[z]


@dataclass
class Choice:
    """Multipliers that a certificate states.

    `slopes[z]`: neurons, and the lower slopes (rows, neurons) that their lines take where they have both signs;
    `moves[z]`: (row, neuron, amount, exponent): amounts taken off d.
    """

    slopes: dict[int, tuple[Index, Ints]] = field(default_factory=dict)
    moves: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)


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
        self.relus = network.relus
        self.before_relu = sorted({network.nodes[n].parent for n in self.relus})
        top = max(abs(v) for v in (*region.lower, *region.upper))
        size = top.numerator.bit_length() - top.denominator.bit_length() + 1 if top else 0
        if abs(size) > 300:
            raise Invalid("an input bound beyond 2^300 or below 2^-300")
        scale = INPUT_BITS - size
        low = np.array([floor_of(v, scale) for v in region.lower], np.int64)
        high = np.array([ceil_of(v, scale) for v in region.upper], np.int64)
        self._keep(scale, low, high, None)

    def _keep(self, scale: int, low: Ints, high: Ints, bias: tuple[Ints, Ints, int] | None) -> None:
        reach = max(largest(low), largest(high)) + 1
        self.room.append(min(ROW_BITS, 59 - (reach * len(low)).bit_length()))
        if self.room[-1] < 8:
            raise Invalid("intervals of too many bits")
        self.scale.append(scale)
        self.low.append(low)
        self.high.append(high)
        self.bias.append(bias)
        self.below.append(int(np.maximum(-low, 0).sum()))

    def advance(self, last: int) -> None:
        """Intervals of the nodes up to `last`, each from those before it."""
        for n in range(len(self.scale), last + 1):
            node = self.network.nodes[n]
            if node.parent >= 0:
                low, high = (np.maximum(e[node.parent], 0) for e in (self.low, self.high))
                self._keep(self.scale[node.parent], low, high, None)
                self.room[n] = self.room[node.parent]  # whose interval reaches farther
            else:
                self._advance_affine(n)

    def _advance_affine(self, n: int) -> None:
        node = self.network.nodes[n]
        images, units = [], []
        for p, linear in node.terms:
            reach = max(largest(self.low[p]), largest(self.high[p])) + 1
            r = max((reach * (linear.size + linear.error) * linear.inputs).bit_length() - 60, 0)
            images.append(linear.image(self.low[p] >> r, -(-self.high[p] >> r)))
            units.append(linear.exponent + self.scale[p] - r)
        sizes = [
            max(largest(a), largest(b)).bit_length() - u for (a, b), u in zip(images, units, strict=True)
        ]
        zero = np.zeros(node.size)
        ends: tuple[Floats, Floats] = (
            (zero, zero) if node.low is None or node.high is None else (node.low, node.high)
        )
        own = max(magnitude(e) for e in ends)
        scale = self.bits - max(*sizes, own, -300) - len(sizes).bit_length()
        low, high = scaled(ends[0], scale), scaled(ends[1], scale, up=True)
        for (a, b), unit in zip(images, units, strict=True):
            low += floor_shift(a, unit - scale)
            high -= floor_shift(-b, unit - scale)
        finer = BIAS_BITS - own
        bias = scaled(ends[0], finer), scaled(ends[1], finer, up=True), finer
        self._keep(scale, low, high, None if node.low is None else bias)

    def state(self) -> State:
        """The whole region as one domain, with the intervals so far."""
        known = [z for z in self.before_relu if z < len(self.scale)]
        low, high = ({z: e[z][None].copy() for z in known} for e in (self.low, self.high))
        scale = {z: np.array([self.scale[z]]) for z in known}
        return State(self.low[0][None].copy(), self.high[0][None].copy(), low, high, scale)

    def keep(self, state: State, z: int) -> None:
        """Narrowed intervals of a node become the region's."""
        self.low[z], self.high[z], self.scale[z] = state.low[z][0], state.high[z][0], int(state.scale[z][0])
        self.below[z] = int(np.maximum(-self.low[z], 0).sum())

    def open(self, last: int) -> list[tuple[int, Index]]:
        """ReLU inputs of both signs up to a node, in order: (node, neurons)."""
        nodes = [z for z in self.before_relu if z <= last]
        found = [(z, np.flatnonzero((self.low[z] < 0) & (self.high[z] > 0))) for z in nodes]
        return [(z, at) for z, at in found if len(at)]

    def lower(
        self, state: State, at: Index, start: dict[int, Rows], unit: Ints | int, choice: Choice | None = None
    ) -> tuple[Ints, Rows]:
        """Lower bounds (rows,) of rows on domains `at` in units of 2^-unit, and the rows over the inputs."""
        rows, total = dict(start), np.zeros(len(at), np.int64)

        def grow(part: Ints, exponent: Ints) -> None:
            part = floor_shift(part, exponent - unit)
            within(largest(total) + largest(part))
            total[:] += part

        for n in range(max(rows), 0, -1):
            if n not in rows:
                continue
            row, node = rows.pop(n), self.network.nodes[n]
            within(largest(row.width) * self.below[n])
            grow(-row.width * self.below[n], row.exponent + self.scale[n])
            if node.parent >= 0:
                z = node.parent
                d, least = self._relu(z, state, at, row, choice)
                grow(least, row.exponent + state.scale[z][at])
                _add(rows, z, Rows(d, np.zeros_like(row.width), row.exponent))
                continue
            bias = self.bias[n]
            if bias is not None:
                within(2 * largest(row.value) * max(largest(b) for b in bias[:2]) * node.size)
                part = np.asarray(
                    np.maximum(row.value, 0) @ bias[0] + np.minimum(row.value, 0) @ bias[1], np.int64
                )
                grow(part, row.exponent + bias[2])
            self._affine(n, row, rows)
        last = rows.get(0)
        if last is None:
            last = Rows(np.zeros((len(at), self.network.nodes[0].size), np.int64), total * 0, total * 0)
        low, high = state.lower[at], state.upper[at]
        within(2 * largest(last.value) * max(largest(low), largest(high)) * low.shape[1])
        within(largest(last.width) * self.below[0])
        grow(-last.width * self.below[0], last.exponent + self.scale[0])
        least = np.minimum(last.value * low, last.value * high).sum(1)
        grow(least, last.exponent + self.scale[0])
        return total, last

    def _relu(self, z: int, state: State, at: Index, row: Rows, choice: Choice | None) -> tuple[Ints, Ints]:
        """Multipliers d on z, and the least of a relu(z) - d z."""
        a, low, high = row.value, state.low[z][at], state.high[z][at]
        below, above = (s[at] for s in state.slopes(z))
        if choice is not None and z in choice.slopes:
            neurons, slopes = choice.slopes[z]
            free = (low[:, neurons] < 0) & (high[:, neurons] > 0)
            below[:, neurons] = np.where(free, slopes, below[:, neurons])
        within(largest(a) << SLOPE_BITS)
        d = (a * np.where(a < 0, above, below)) >> SLOPE_BITS
        for k, neuron, amount, exponent in () if choice is None else choice.moves.get(z, ()):
            moved = int(floor_shift(np.array([amount]), exponent - int(row.exponent[k]))[0])
            within(abs(moved) + abs(int(d[k, neuron])))
            d[k, neuron] -= moved
        within(2 * (largest(a) + largest(d)) * max(largest(low), largest(high)) * a.shape[1])
        first = a * np.maximum(low, 0) - d * low
        second = a * np.maximum(high, 0) - d * high
        both = np.minimum(first, second)
        return d, np.where((low < 0) & (high > 0), np.minimum(both, 0), both).sum(1)

    def _affine(self, n: int, row: Rows, rows: dict[int, Rows]) -> None:
        """Take multipliers on an affine node to its parents, rounded to few bits."""
        d = row.value
        within(largest(d) * d.shape[1])
        up, down = np.maximum(d, 0).sum(1), np.minimum(d, 0).sum(1)
        for parent, linear in self.network.nodes[n].terms:
            raw = linear.pull(d)
            within(largest(raw) + (largest(up) + largest(down)) * linear.error)
            if linear.error:
                raw += (linear.error * down)[:, None]
            pulled = Rows(raw, linear.error * (up - down), row.exponent + linear.exponent)
            size = np.frexp(np.abs(raw).max(1, initial=0).astype(np.float64))[1].astype(np.int64)
            _add(rows, parent, pulled.coarser(np.maximum(size - self.room[parent], 0)))

    def bound_neurons(self, state: State, z: int) -> None:
        """Narrow the intervals of a node's neurons of both signs by the default multipliers."""
        state.sharpen(z, self.bits)
        step = max(1, ELEMENTS // max(node.size for node in self.network.nodes[: z + 1]))
        for sign in (1, -1):
            at, neuron = np.nonzero((state.low[z] < 0) & (state.high[z] > 0))
            for k in range(0, len(at), step):
                self.bound_ends(state, z, at[k : k + step], neuron[k : k + step], sign, None)

    def bound_ends(
        self, state: State, z: int, at: Index, neuron: Index, sign: int, choice: Choice | None
    ) -> None:
        """Narrow single ends (sign 1: the lower one) on domains `at`."""
        unit = np.zeros((len(at), self.network.nodes[z].size), np.int64)
        unit[np.arange(len(at)), neuron] = sign
        zero = np.zeros(len(at), np.int64)
        start = {z: Rows(unit, zero, zero)}
        bound = self.lower(state, at, start, state.scale[z][at] + GUARD, choice)[0] >> GUARD
        if sign > 0:
            np.maximum.at(state.low[z], (at, neuron), bound)
        else:
            np.minimum.at(state.high[z], (at, neuron), -bound)
        state.lines.pop(z, None)

    def refresh(self, state: State) -> None:
        """Narrow the intervals of all ReLU inputs of both signs, in order."""
        for z in self.before_relu:
            self.bound_neurons(state, z)

    def unit(self) -> int:
        """The exponent in which the rows of the condition are bounded."""
        return self.scale[self.network.output] + GUARD

    def row(self, row: Row) -> tuple[dict[int, Rows], int]:
        """A row where it starts, and its limit rounded up, both times a power of two."""
        size = max((abs(c) for _, c in (*row.inputs, *row.outputs)), default=1)
        shift = size.denominator.bit_length() - size.numerator.bit_length()
        start: dict[int, Rows] = {}
        for node, part in ((self.network.output, row.outputs), (0, row.inputs)):
            value, exact = np.zeros((1, self.network.nodes[node].size), np.int64), True
            for i, c in part:
                value[0, i] = floor_of(c, shift + ROW_BITS)
                exact &= int(value[0, i]) == ceil_of(c, shift + ROW_BITS)
            if part:
                start[node] = Rows(value, np.array([0 if exact else 1]), np.array([ROW_BITS]))
        limit = ceil_of(row.limit, shift + self.unit())
        within(abs(limit))
        return start, limit


def _add(rows: dict[int, Rows], n: int, part: Rows) -> None:
    rows[n] = rows[n].plus(part) if n in rows else part
