"""Whole numbers: exact products of integer matrices, and reals rounded to integers downward and upward.

Every array holds int64. Whoever multiplies or adds states a bound on the result first (`within`), so nothing wraps.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
EXACT = 2**53  # float64 holds every integer up to here, so sums that stay below are exact in any order
ROOM = 2**62  # what int64 arrays may reach


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


def magnitude(*values: Floats) -> int:
    """The least e with |value| <= 2^e everywhere, and -300 at least."""
    return max(-300, *(int(np.frexp(np.abs(v).max(initial=0.0))[1]) for v in values))


def floor_of(value: Fraction, exponent: int) -> int:
    """floor(value 2^exponent) of a rational."""
    return int((value * Fraction(2) ** exponent).__floor__())


def ceil_of(value: Fraction, exponent: int) -> int:
    return -floor_of(-value, exponent)


def around(value: Fraction) -> tuple[float, float]:
    """Two doubles with a rational between them, equal if it is a double."""
    try:
        near = float(value)  # correctly rounded
    except OverflowError as error:
        raise Unreadable("a number too large") from error
    low = near if Fraction(near) <= value else float(np.nextafter(near, -np.inf))
    high = near if Fraction(near) >= value else float(np.nextafter(near, np.inf))
    return low, high
