"""Whole numbers: reals rounded outward, exact products of integer matrices, and linear maps of intervals.

Every array holds int64. Whoever multiplies or adds states a bound on the result first (`within`), so nothing wraps.
An array of `Ends` holds the lower and the upper ends of intervals along its first axis.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
EXACT = 2**53  # float64 holds every integer up to here, so sums that stay below are exact in any order
ROOM = 2**62  # what int64 arrays may reach
SMALLEST = -300  # exponents of smaller numbers are not told apart
WEIGHT_BITS, FINE_BITS = 24, 30  # of the largest weight of a map, and of one whose inputs may be negative
MOST_MASS = 38  # bits of a sum of weights: with those of a row that is below 62


class Unreadable(Exception):
    """A file that is no network, property or certificate, or that this checker does not read."""


class Invalid(Exception):
    """A step of a certificate that does not hold."""


def within(bound: int) -> None:
    """Refuse a step whose numbers may grow beyond int64."""
    if bound >= ROOM:
        raise Invalid("its numbers grow beyond 62 bits")


def largest(*arrays: Ints) -> int:
    """The largest magnitude."""
    return max(int(max(a.max(initial=0), -a.min(initial=0))) for a in arrays)


def magnitude(values: Floats) -> int:
    """The least e with |value| <= 2^e everywhere, or more."""
    return max(SMALLEST, int(np.frexp(np.abs(values).max(initial=0.0))[1]))


def floor_shift(x: Ints, r: Ints | int) -> Ints:
    """floor(x / 2^r), where r has one entry per row of x or is a number, of any sign."""
    r = np.asarray(r, np.int64).reshape((-1,) + (1,) * (x.ndim - 1))
    if (r < 0).any():
        left = np.minimum(np.maximum(-r, 0), 62)
        within(ROOM if (np.abs(x) >> (62 - left)).any() else 0)
        x = x << left
    return np.asarray(x >> np.minimum(np.maximum(r, 0), 62))


def scaled(value: Floats, exponent: int) -> Ints:
    """floor(value 2^exponent); refused where float64 cannot hold value 2^exponent exactly."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        moved = np.ldexp(value, exponent)
        exact = np.isfinite(moved) & (np.ldexp(moved, -exponent) == value)
    if not exact.all():
        raise Unreadable("numbers of too different magnitudes, or not finite")
    rounded = np.floor(moved)
    if (np.abs(rounded) >= EXACT).any():
        raise Invalid("its numbers grow beyond 53 bits")
    return rounded.astype(np.int64)


def outward(ends: Floats, exponent: int) -> Ints:
    """Ends times 2^exponent, the lower ones rounded down and the upper ones up."""
    return np.stack([scaled(ends[0], exponent), -scaled(-ends[1], exponent)])


def floor_of(value: Fraction, exponent: int) -> int:
    """floor(value 2^exponent) of a rational."""
    return int((value * Fraction(2) ** exponent).__floor__())


def ceil_of(value: Fraction, exponent: int) -> int:
    return -floor_of(-value, exponent)


def around(value: Fraction) -> tuple[float, float]:
    """Two doubles with a rational between them, equal if it is a double."""
    near = float(value)
    if Fraction(near) == value:
        return near, near
    return float(np.nextafter(near, -np.inf)), float(np.nextafter(near, np.inf))


def times(left: Ints, right: Floats, mass: int) -> Ints:
    """left @ right, exact; `right` holds integers, of which no column has more than `mass` in magnitudes."""
    size = largest(left)
    within(size * mass)
    if mass << 9 >= EXACT:
        raise Invalid("its weights have too many bits")
    bits, shift = (EXACT // max(mass, 1)).bit_length() - 1, 0
    total = np.zeros((), np.int64)
    while True:  # in parts of so few bits that each product is exact; the last one carries the sign
        last = size >> shift < 1 << bits
        part = left >> shift if last else (left >> shift) & ((1 << bits) - 1)
        total = total + ((part.astype(np.float64) @ right).astype(np.int64) << shift)
        if last:
            return total
        shift += bits


class Linear:
    """Patches of the inputs, each multiplied with a matrix: dense maps, convolutions, selections, factors.

    `index` (groups, patches, entries) says which inputs make a patch; -1 is zero. Weights (groups, entries, channels)
    lie between `ends`, and in [M, M + error] 2^-exponent. The outputs are in the order (groups, channels, patches).
    """

    def __init__(self, ends: Floats, inputs: int, index: Ints, fine: bool) -> None:
        self.ends, self.inputs, self.index = ends, inputs, index
        self.shape = ends.shape[1], ends.shape[3], index.shape[1]
        self.outputs = int(np.prod(self.shape))
        size, mass = magnitude(ends), max(magnitude(np.abs(ends[0]).sum(axis)) for axis in (1, 2))
        most = min(FINE_BITS, MOST_MASS - mass + size) if fine else WEIGHT_BITS
        self.exponent = max(most, WEIGHT_BITS) - size
        weight, top = outward(ends, self.exponent)
        self.weight = weight.astype(np.float64)
        ordered = np.sort(index, -1)  # an input that stands in a patch more than once has that many errors
        again = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
        self.error = (1 + int(again.sum(-1).max(initial=0))) * largest(top - weight)
        # no sum of magnitudes of weights over the entries, or over the channels, is larger; errors included
        sums = [(np.abs(weight) + self.error).sum(axis, np.int64) for axis in (1, 2)]
        self.mass = largest(*sums)
        flat = index.ravel()
        self.plain = flat.size == inputs and bool((flat == np.arange(inputs)).all())
        self.order = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]
        self.starts = np.flatnonzero(np.diff(flat[self.order], prepend=-1))
        self.repeats = int(np.diff(self.starts, append=len(self.order)).max(initial=0))

    def pull(self, d: Ints) -> Ints:
        """Multipliers (count, outputs) of the outputs as multipliers of the inputs, by the weights M."""
        groups, channels, patches = self.shape
        parts = d.reshape(len(d), groups, channels, patches).swapaxes(2, 3)
        moved = times(parts, self.weight.swapaxes(1, 2), self.mass).reshape(len(d), -1)
        if self.plain:
            return moved
        within(largest(moved) * self.repeats)
        total = np.zeros((len(d), self.inputs), np.int64)
        places = self.index.ravel()[self.order[self.starts]]
        total[:, places] = np.add.reduceat(moved[:, self.order], self.starts, axis=1)
        return total

    def image(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Intervals of the outputs in units of 2^-exponent times those of the inputs."""
        within(4 * (largest(low, high) + 1) * self.mass)
        middle, spread = (
            times(self.patches(v), w, self.mass).swapaxes(1, 2)
            for v, w in ((low + high, self.weight), (high - low, abs(self.weight)))
        )
        below, above = (
            self.error * self.patches(v).sum(2)[:, None] for v in (np.minimum(low, 0), np.maximum(high, 0))
        )
        return ((middle - spread >> 1) + below).ravel(), (-(-middle - spread >> 1) + above).ravel()

    def patches(self, value: Ints) -> Ints:
        return np.asarray(np.append(value, 0)[self.index])
