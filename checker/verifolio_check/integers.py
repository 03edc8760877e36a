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


def largest(a: Ints) -> int:
    """The largest magnitude."""
    return max(int(a.max(initial=0)), -int(a.min(initial=0)))


class Matrix:
    """An integer matrix (rows, columns) that others are multiplied with, exactly."""

    def __init__(self, value: Ints) -> None:
        self.value = value.astype(np.float64)  # exact: `scaled` keeps entries below 2^53
        # no sum of terms |value| of one column is larger
        self.mass = max((int(np.abs(c).sum(dtype=np.int64)) for c in value.T), default=0)

    def times(self, left: Ints) -> Ints:
        """left (any, rows) @ value, exact."""
        size = largest(left)
        within(size * self.mass)
        if size * self.mass < EXACT:
            return (left.astype(np.float64) @ self.value).astype(np.int64)
        if self.mass << 9 >= EXACT:
            raise Invalid("its weights and multipliers have too many bits")
        # in parts of so few bits that each product is exact; the last one carries the sign
        bits = (EXACT // max(self.mass, 1)).bit_length() - 1
        total, shift = np.zeros((len(left), self.value.shape[1]), np.int64), 0
        while size >> shift:
            last = size >> shift < 1 << bits
            part = left >> shift if last else (left >> shift) & ((1 << bits) - 1)
            total += (part.astype(np.float64) @ self.value).astype(np.int64) << shift
            shift += bits
            if last:
                break
        return total


def scaled(value: Floats, exponent: int, up: bool = False) -> Ints:
    """floor(value 2^exponent), or its ceiling; refused where float64 cannot hold value 2^exponent exactly."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        moved = np.ldexp(value, exponent)
        exact = np.isfinite(moved) & (np.ldexp(moved, -exponent) == value)
    if not exact.all():
        raise Unreadable("numbers of too different magnitudes, or not finite")
    rounded = np.ceil(moved) if up else np.floor(moved)
    if (np.abs(rounded) >= EXACT).any():
        raise Invalid("its numbers grow beyond 53 bits")
    return rounded.astype(np.int64)


def magnitude(value: Floats) -> int:
    """The least e with |value| <= 2^e everywhere, and -300 at least."""
    return max(int(np.frexp(np.abs(value).max(initial=0.0))[1]), -300)


def floor_of(value: Fraction, exponent: int) -> int:
    """floor(value 2^exponent) of a rational."""
    return int((value * Fraction(2) ** exponent).__floor__())


def ceil_of(value: Fraction, exponent: int) -> int:
    return -floor_of(-value, exponent)


def around(value: Fraction) -> tuple[float, float]:
    """Two doubles with a rational between them."""
    if value == 0:
        return 0.0, 0.0
    # 60 bits, then down to 53 by the correctly rounded conversion of Python, moved outward if it is not exact
    near = float(value)
    if not np.isfinite(near):
        raise Unreadable("a number too large")
    low = near if Fraction(near) <= value else float(np.nextafter(near, -np.inf))
    high = near if Fraction(near) >= value else float(np.nextafter(near, np.inf))
    return low, high
