"""Affine expressions over the columns of a model, with a bound on the rounding error made on the way.

Composing maps in float64 rounds. An expression therefore says: the exact value differs from
matrix @ v + constant by at most `error`, for every v within the columns' bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from verifolio.encode.model import Array, Index, widen
from verifolio.graph.enclosure import TINY, UNIT, gamma


@dataclass(frozen=True, eq=False)
class Expression:
    """Some values, one per row: |exact - (matrix @ v + constant)| <= error."""

    matrix: sparse.csr_array
    constant: Array
    error: Array

    @property
    def size(self) -> int:
        return len(self.constant)

    def take(self, rows: Index) -> Expression:
        return Expression(sparse.csr_array(self.matrix[rows]), self.constant[rows], self.error[rows])

    def widen(self, columns: int) -> Expression:
        return Expression(widen(self.matrix, columns), self.constant, self.error)

    def evaluate(self, v: Array) -> Array:
        return np.asarray(self.matrix @ v[: self.matrix.shape[1]]) + self.constant

    def interval(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Outward rounded bounds of the exact values while v stays within its bounds."""
        columns = self.matrix.shape[1]
        positive, negative = self.matrix.maximum(0), self.matrix.minimum(0)
        for part in (positive, negative):
            part.eliminate_zeros()
        low = positive @ lower[:columns] + negative @ upper[:columns] + self.constant
        high = positive @ upper[:columns] + negative @ lower[:columns] + self.constant
        magnitude = np.maximum(np.abs(lower), np.abs(upper))[:columns]
        terms = longest_row(self.matrix) + 2
        reserve = gamma(terms) * (abs(self.matrix) @ magnitude + np.abs(self.constant)) + TINY
        reserve = (reserve + self.error) * (1 + 8 * UNIT)
        least, most = low - reserve, high + reserve
        # inf - inf: a sum overflowed, and nothing is known
        return down(np.where(np.isnan(least), -np.inf, least)), up(np.where(np.isnan(most), np.inf, most))


def columns_expression(index: Index, columns: int) -> Expression:
    """The columns themselves as an exact expression."""
    size = len(index)
    matrix = sparse.csr_array((np.ones(size), (np.arange(size), index)), shape=(size, columns))
    return Expression(matrix, np.zeros(size), np.zeros(size))


def constant_expression(value: Array, error: Array | None, columns: int) -> Expression:
    size = len(value)
    return Expression(
        sparse.csr_array((size, columns)), value.copy(), np.zeros(size) if error is None else error.copy()
    )


def combine(
    matrices: Sequence[sparse.csr_array], bias: Array, parts: Sequence[Expression], magnitude: Array
) -> Expression:
    """sum of matrix_k @ part_k + bias, where |v| <= magnitude; exact where nothing had to be rounded."""
    columns = len(magnitude)
    size = len(bias)
    total = sparse.csr_array((size, columns))
    constant, error, absolute, terms = bias.copy(), np.zeros(size), np.abs(bias), 1
    for matrix, part in zip(matrices, parts, strict=True):
        part = part.widen(columns)
        total = total + matrix @ part.matrix
        constant = constant + matrix @ part.constant
        size_k = abs(part.matrix) @ magnitude + np.abs(part.constant)
        absolute = absolute + abs(matrix) @ size_k
        error = error + abs(matrix) @ part.error
        terms += longest_row(matrix) + longest_row(part.matrix)
    total = sparse.csr_array(total)
    total.eliminate_zeros()
    rounding = np.zeros(size) if _exact(parts) else 2 * gamma(terms) * absolute + TINY
    return Expression(total, constant, error * (1 + gamma(terms)) + rounding)


def _exact(parts: Sequence[Expression]) -> bool:
    """Whether the parts only pick columns, no column twice, so that products of matrices are exact."""
    picked: list[Index] = []
    for part in parts:
        if longest_row(part.matrix) > 1 or bool((part.matrix.data != 1).any()) or bool(part.constant.any()):
            return False
        picked.append(part.matrix.indices.astype(np.int64))
    columns = np.concatenate([np.zeros(0, np.int64), *picked])
    return len(np.unique(columns)) == len(columns)


def longest_row(matrix: sparse.csr_array) -> int:
    return int(np.diff(matrix.indptr).max(initial=0))


def up(value: Array) -> Array:
    return np.asarray(np.nextafter(value, np.inf))


def down(value: Array) -> Array:
    return np.asarray(np.nextafter(value, -np.inf))
