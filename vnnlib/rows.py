"""Sparse linear rows over inputs and outputs, exact where it counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.exact import MAX_DOUBLE, round_up


class LinearRow(NamedTuple):
    """sum of coefficient * column <= rhs (< where strict); terms sorted by column, no zeros."""

    terms: tuple[tuple[int, Fraction], ...]
    rhs: Fraction
    strict: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """A conjunction of rows  sum_k coefficient * variable <= rhs  (< where strict), as sorted COO triples.

    Columns are the inputs 0 .. n-1, then the outputs n .. n+m-1. Coefficients are exact; `rhs` is
    rounded up from `exact_rhs`, so each double row is implied by the exact one.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    coefficient: NDArray[np.float64]
    rhs: NDArray[np.float64]
    strict: NDArray[np.bool_]
    exact_rhs: tuple[Fraction, ...]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """As bytes: a query has many small conjunctions, and arrays of a few numbers are slow to pickle."""
        packed = (
            np.asarray(self.row, np.int64).tobytes(),
            np.asarray(self.column, np.int64).tobytes(),
            np.asarray(self.coefficient, np.float64).tobytes(),
            np.asarray(self.rhs, np.float64).tobytes(),
            np.asarray(self.strict, np.bool_).tobytes(),
        )
        return _unpacked, (*packed, self.exact_rhs)

    @property
    def count(self) -> int:
        """Number of rows; none means true."""
        return len(self.exact_rhs)

    def linear_rows(self) -> list[LinearRow]:
        """The rows one by one, in exact numbers."""
        terms: list[list[tuple[int, Fraction]]] = [[] for _ in range(self.count)]
        triples = zip(self.row.tolist(), self.column.tolist(), self.coefficient.tolist(), strict=True)
        for row, column, coefficient in triples:
            terms[row].append((column, Fraction(coefficient)))
        stricts = self.strict.tolist()
        return [
            LinearRow(tuple(term), rhs, strict)
            for term, rhs, strict in zip(terms, self.exact_rhs, stricts, strict=True)
        ]


def _unpacked(
    row: bytes, column: bytes, coefficient: bytes, rhs: bytes, strict: bytes, exact_rhs: tuple[Fraction, ...]
) -> Rows:
    return Rows(
        np.frombuffer(row, np.int64),
        np.frombuffer(column, np.int64),
        np.frombuffer(coefficient, np.float64),
        np.frombuffer(rhs, np.float64),
        np.frombuffer(strict, np.bool_),
        exact_rhs,
    )


def scaled_to_doubles(row: LinearRow) -> LinearRow | None:
    """The row times a positive number that makes every coefficient a double; None where none exists.

    Decimals such as 0.1 are no doubles, but 5 * 0.1 is. If the least integer factor is not enough,
    dividing the resulting numerators by their common divisor is the only other way to shorten them.
    """
    if all(_is_double(value) for _, value in row.terms):
        return row
    odd = [value.denominator >> _twos(value.denominator) for _, value in row.terms]
    for factor in (Fraction(math.lcm(*odd)), _coprime_factor([value for _, value in row.terms])):
        if all(_is_double(value * factor) for _, value in row.terms) and abs(row.rhs * factor) <= MAX_DOUBLE:
            terms = tuple((column, value * factor) for column, value in row.terms)
            return LinearRow(terms, row.rhs * factor, row.strict)
    return None


def pack_rows(rows: Iterable[LinearRow]) -> Rows:
    """Rows whose coefficients are doubles already, as arrays."""
    return pack_all([tuple(rows)])[0]


def pack_all(groups: Sequence[Sequence[LinearRow]]) -> list[Rows]:
    """Many conjunctions at once: slices of common arrays, because files hold thousands of small ones."""
    rows = [row for group in groups for row in group]
    terms = [term for row in rows for term in row.terms]
    sizes = [len(group) for group in groups]
    number = (
        np.concatenate([np.arange(size, dtype=np.int64) for size in sizes]) if rows else np.empty(0, np.int64)
    )
    arrays = (
        np.repeat(number, [len(row.terms) for row in rows]),
        np.array([column for column, _ in terms], dtype=np.int64),
        np.array([float(value) for _, value in terms], dtype=np.float64),
        np.array([round_up(row.rhs) for row in rows], dtype=np.float64),
        np.array([row.strict for row in rows], dtype=np.bool_),
    )
    for array in arrays:
        array.setflags(write=False)
    return _slices(groups, *arrays)


def _slices(
    groups: Sequence[Sequence[LinearRow]],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    coefficient: NDArray[np.float64],
    rhs: NDArray[np.float64],
    strict: NDArray[np.bool_],
) -> list[Rows]:
    result = []
    first_row = first_term = 0
    for group in groups:
        in_rows = slice(first_row, first_row + len(group))
        in_terms = slice(first_term, first_term + sum(len(one.terms) for one in group))
        first_row, first_term = in_rows.stop, in_terms.stop
        exact = tuple(one.rhs for one in group)
        result.append(
            Rows(row[in_terms], column[in_terms], coefficient[in_terms], rhs[in_rows], strict[in_rows], exact)
        )
    return result


TRUE = pack_rows(())


def make_rows(
    rows: Iterable[tuple[Mapping[int, float | Decimal | Fraction], float | Decimal | Fraction]],
    *,
    strict: bool = False,
) -> Rows:
    """Rows from Python numbers: each is ({column: coefficient}, rhs); a float means exactly its value."""
    result = []
    for terms, rhs in rows:
        try:
            exact = tuple(sorted((int(column), Fraction(value)) for column, value in terms.items() if value))
            row = scaled_to_doubles(LinearRow(exact, Fraction(rhs), strict))
        except (OverflowError, ValueError) as error:
            raise VnnlibError(
                "<rows>", 0, 0, "finite numbers", str(error), "check the coefficients"
            ) from error
        if row is None or abs(row.rhs) > MAX_DOUBLE:
            remedy = "round the coefficients to doubles"
            raise VnnlibError("<rows>", 0, 0, "coefficients that fit doubles", "too many digits", remedy)
        result.append(row)
    return pack_rows(result)


def _is_double(value: Fraction) -> bool:
    return abs(value) <= MAX_DOUBLE and Fraction(float(value)) == value


def _twos(number: int) -> int:
    return (number & -number).bit_length() - 1


def _coprime_factor(values: list[Fraction]) -> Fraction:
    """The factor that turns fractions into coprime integers."""
    return Fraction(math.lcm(*(v.denominator for v in values)), math.gcd(*(v.numerator for v in values)))
