"""Exact numbers and their directed roundings to doubles."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

Exact: TypeAlias = Decimal | Fraction
MAX_DOUBLE = Fraction(float(np.finfo(np.float64).max))
MAX_LENGTH = 6100  # digits of a number, and its exponent: keeps exact arithmetic on hostile text cheap
_WIDE = Context(prec=100_000)  # more digits than any number here, so that nothing is rounded
_NUMBER = re.compile(r"[-+]?+(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE]([-+]?+\d{1,9}))?+", re.ASCII)


def read_number(text: str) -> Decimal | None:
    """The exact value of a decimal text; None where it is no number, or too long or large to use."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    exponent = match.group(1)
    if exponent is None and len(text) < 300:  # too short to leave the range of doubles
        return Decimal(text)
    if len(text) > MAX_LENGTH or abs(int(exponent or 0)) > MAX_LENGTH:
        return None
    value = Decimal(text)
    return value if abs(value) <= MAX_DOUBLE else None


def round_up(value: Fraction) -> float:
    """The smallest double not below the value."""
    nearest = value.numerator / value.denominator
    numerator, denominator = nearest.as_integer_ratio()
    if numerator * value.denominator >= value.numerator * denominator:
        return nearest
    return math.nextafter(nearest, math.inf)


class ExactNumbers(Sequence[Fraction]):
    """Exact numbers, made into fractions only when asked, with both roundings to doubles at hand.

    For a double d and a number e: d >= e iff d >= above(e), and d <= e iff d <= below(e).
    """

    __slots__ = ("_values", "above", "below")
    _values: Sequence[Exact | float] | NDArray[np.float64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]

    def __init__(self, values: Sequence[Exact | float] | NDArray[np.float64]) -> None:
        self._values = values
        if isinstance(values, np.ndarray):
            self.below = self.above = frozen(values)
            return
        nearest = [float(value) for value in values]
        self.below = np.array(nearest, dtype=np.float64)
        self.above = self.below.copy()
        for position, (value, double) in enumerate(zip(values, nearest, strict=True)):
            if value < double:
                self.below[position] = math.nextafter(double, -math.inf)
            elif value > double:
                self.above[position] = math.nextafter(double, math.inf)
        frozen(self.below)
        frozen(self.above)

    def split(self, size: int) -> list[ExactNumbers]:
        """Consecutive pieces of one size, sharing the arrays."""
        pieces = []
        for start in range(0, len(self._values), size):
            piece = ExactNumbers.__new__(ExactNumbers)
            part = slice(start, start + size)
            piece._values, piece.below, piece.above = self._values[part], self.below[part], self.above[part]
            pieces.append(piece)
        return pieces

    def pick(self, index: NDArray[np.int64]) -> ExactNumbers:
        """These numbers in another order."""
        piece = ExactNumbers.__new__(ExactNumbers)
        values = self._values
        piece._values = (
            values[index] if isinstance(values, np.ndarray) else [values[i] for i in index.tolist()]
        )
        piece.below, piece.above = frozen(self.below[index]), frozen(self.above[index])
        return piece

    def at_most(self, other: ExactNumbers) -> bool:
        """Whether every number is <= the one of `other` at the same place, exactly."""
        if self is other:
            return True
        if bool((self.below > other.above).any()):
            return False
        doubtful = np.flatnonzero(self.above > other.below).tolist()
        return all(_at_most(self._values[i], other._values[i]) for i in doubtful)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Fraction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Fraction, ...]: ...
    def __getitem__(self, index: int | slice) -> Fraction | tuple[Fraction, ...]:
        if isinstance(index, slice):
            return tuple(Fraction(value) for value in self._values[index])
        return Fraction(self._values[index])

    def written(self, index: int) -> str | None:
        """The number as decimal text, digits as in the file it came from; None where no decimal is exact."""
        return decimal_text(self._values[index])


def exact_numbers(values: Sequence[Fraction]) -> ExactNumbers:
    """Numbers with their roundings at hand."""
    return values if isinstance(values, ExactNumbers) else ExactNumbers(values)


def _at_most(a: Exact | float, b: Exact | float) -> bool:
    """a <= b; decimals and doubles compare exactly and fast, but not with fractions."""
    if isinstance(a, Fraction) or isinstance(b, Fraction):
        return Fraction(a) <= Fraction(b)
    return bool(a <= b)


def frozen(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same array, from now on read-only."""
    array.setflags(write=False)
    return array


def decimal_text(value: Exact | float) -> str | None:
    """Exact positional decimal text with a point; None for a fraction such as 1/3."""
    if isinstance(value, Fraction):
        return _fraction_text(value)
    text = format(Decimal(value), "f")
    return text if "." in text else text + ".0"


def _fraction_text(value: Fraction) -> str | None:
    twos = (value.denominator & -value.denominator).bit_length() - 1
    fives, rest = 0, value.denominator >> twos
    while rest % 5 == 0:
        rest //= 5
        fives += 1
    if rest != 1:
        return None
    places = max(twos, fives, 1)
    digits = Decimal(value.numerator * (10**places // value.denominator))
    return format(digits.scaleb(-places, _WIDE), "f")
