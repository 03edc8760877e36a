"""Bounds that rows over inputs imply for inputs without their own, such as X_g = X_f."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verifolio.vnnlib.exact import MAX_DOUBLE, Exact
from verifolio.vnnlib.linear import MAX_BITS
from verifolio.vnnlib.rows import LinearRow

_PASSES = 64


def derive_bounds(rows: Sequence[LinearRow], lower: dict[int, Exact], upper: dict[int, Exact]) -> None:
    """Add what is implied; the set described stays the same because the rows stay, too."""
    for _ in range(_PASSES):
        found = False
        for row in rows:
            found |= _derive(row, lower, upper)
        if not found:
            return


def _derive(row: LinearRow, lower: dict[int, Exact], upper: dict[int, Exact]) -> bool:
    """c_k x_k <= rhs - (least value of the other terms), for each x_k that lacks this bound."""
    missing = [column for column, c in row.terms if column not in (upper if c > 0 else lower)]
    unknown = [column for column, c in row.terms if column not in (lower if c > 0 else upper)]
    if not missing or len(unknown) > 1:
        return False
    least = {
        column: c * Fraction((lower if c > 0 else upper)[column])
        for column, c in row.terms
        if column not in unknown
    }
    total = sum(least.values(), Fraction(0))
    coefficients = dict(row.terms)
    found = False
    for column in missing if not unknown else [column for column in missing if column in unknown]:
        value = (row.rhs - total + least.get(column, Fraction(0))) / coefficients[column]
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        if abs(value) <= MAX_DOUBLE and bits <= MAX_BITS:
            (upper if coefficients[column] > 0 else lower)[column] = value
            found = True
    return found
