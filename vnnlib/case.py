"""A case: one input region and the output condition on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.exact import ExactNumbers, exact_numbers
from verifolio.vnnlib.rows import TRUE, Rows

_MAX32 = np.finfo(np.float32).max


@dataclass(frozen=True, eq=False)
class Case:
    """A box, rows that cut it, and a disjunction of conjunctions of rows that mention outputs.

    `lower` and `upper` are rounded outward from the exact bounds. `input_rows` are the rows over inputs
    alone that are no plain bounds; a strict bound appears there and as a closed bound. No disjunct
    means false; a disjunct without rows means true.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    exact_lower: Sequence[Fraction]
    exact_upper: Sequence[Fraction]
    input_rows: Rows
    disjuncts: tuple[Rows, ...]

    @cached_property
    def empty(self) -> bool:
        """Whether some lower bound exceeds its upper bound."""
        inner_lower, inner_upper = self.inner
        doubtful = np.flatnonzero(inner_lower > inner_upper)
        return any(self.exact_lower[i] > self.exact_upper[i] for i in doubtful.tolist())

    @cached_property
    def inner(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The box of doubles inside the exact bounds: a double lies in one iff it lies in the other."""
        return exact_numbers(self.exact_lower).above, exact_numbers(self.exact_upper).below

    @cached_property
    def inner_float32(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        """See `inward_float32`."""
        lower64, upper64 = self.inner
        lower, upper = _ceil32(lower64), -_ceil32(-upper64)
        mask = np.zeros(lower.shape, dtype=np.bool_)
        for i in np.flatnonzero(lower > upper).tolist():
            low, high = self.exact_lower[i], self.exact_upper[i]
            if low <= high:
                mask[i] = True
                lower[i] = upper[i] = _nearest32(low, high, below=upper[i], above=lower[i])
        for array in (lower, upper, mask):
            array.setflags(write=False)
        return lower, upper, mask


def inward_float32(case: Case) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
    """The float32 box inside the exact bounds: (lower, upper, mask).

    Where an interval contains no float32, both are the float32 nearest to it and the mask is True.
    """
    return case.inner_float32


def box_case(
    lower: ArrayLike | Sequence[Fraction | Decimal],
    upper: ArrayLike | Sequence[Fraction | Decimal],
    disjuncts: Sequence[Rows],
    input_rows: Rows | None = None,
) -> Case:
    """A case from arrays of floats, each taken as exactly its value, or from exact numbers."""
    return _case(_bounds(lower), _bounds(upper), input_rows or TRUE, tuple(disjuncts))


def case_of_exact(
    lower: ExactNumbers, upper: ExactNumbers, input_rows: Rows, disjuncts: tuple[Rows, ...]
) -> Case:
    """A case whose double bounds are the outward roundings of its exact ones."""
    return Case(lower.below, upper.above, lower, upper, input_rows, disjuncts)


def _case(lower: ExactNumbers, upper: ExactNumbers, input_rows: Rows, disjuncts: tuple[Rows, ...]) -> Case:
    if len(lower) != len(upper):
        raise VnnlibError(
            "<case>", 0, 0, f"{len(lower)} upper bounds", str(len(upper)), "give one pair per input"
        )
    return case_of_exact(lower, upper, input_rows, disjuncts)


def _bounds(values: ArrayLike | Sequence[Fraction | Decimal]) -> ExactNumbers:
    try:
        if isinstance(values, Sequence) and any(isinstance(value, Fraction | Decimal) for value in values):
            exact = [value if isinstance(value, Decimal) else Fraction(value) for value in values]
            numbers = ExactNumbers(exact)
        else:
            numbers = ExactNumbers(np.array(values, dtype=np.float64).reshape(-1))
    except (ArithmeticError, ValueError, TypeError) as error:
        raise VnnlibError("<case>", 0, 0, "finite bounds", str(error), "give one number per input") from error
    if not (np.isfinite(numbers.below).all() and np.isfinite(numbers.above).all()):
        raise VnnlibError("<case>", 0, 0, "finite bounds", "inf or nan", "every input needs both bounds")
    return numbers


def _ceil32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The smallest float32 not below each double, but never beyond the finite ones."""
    nearest = np.clip(values, -_MAX32, _MAX32).astype(np.float32)
    return np.where(nearest.astype(np.float64) < values, np.nextafter(nearest, _MAX32), nearest)


def _nearest32(low: Fraction, high: Fraction, *, below: np.float32, above: np.float32) -> np.float32:
    """Of the two float32 around an interval that contains none, the one with the smaller distance to it."""
    return below if low - Fraction(float(below)) <= Fraction(float(above)) - high else above
