"""A linear model with bounds, sparse rows and integrality, as every LP and MILP solver reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Model:
    """minimise cost . v  subject to  row_lower <= matrix v <= row_upper,  lower <= v <= upper.

    `matrix` is CSR (rows, columns); `integer` marks the columns that take whole numbers only.
    """

    matrix: sparse.csr_array
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array
    cost: Array
    integer: NDArray[np.bool_]

    @property
    def columns(self) -> int:
        return len(self.lower)

    @property
    def rows(self) -> int:
        return len(self.row_lower)

    def minimising(self, cost: Array) -> Model:
        return replace(self, cost=cost)

    def relaxed(self) -> Model:
        """The linear relaxation: the same without integrality."""
        return replace(self, integer=np.zeros(self.columns, np.bool_))

    def with_bounds(self, columns: Sequence[int], lower: Sequence[float], upper: Sequence[float]) -> Model:
        """The same with other bounds on some columns."""
        low, high = self.lower.copy(), self.upper.copy()
        low[list(columns)], high[list(columns)] = lower, upper
        return replace(self, lower=low, upper=high)


class ModelBuilder:
    """Collects columns and rows; `model` may be called any number of times on the way."""

    def __init__(self) -> None:
        self._lower: list[Array] = []
        self._upper: list[Array] = []
        self._integer: list[NDArray[np.bool_]] = []
        self._matrices: list[sparse.csr_array] = []
        self._row_lower: list[Array] = []
        self._row_upper: list[Array] = []
        self.columns = 0

    def fork(self) -> ModelBuilder:
        """A copy that grows on its own."""
        other = ModelBuilder()
        for name in ("_lower", "_upper", "_integer", "_matrices", "_row_lower", "_row_upper"):
            setattr(other, name, list(getattr(self, name)))
        other.columns = self.columns
        return other

    def add_columns(self, lower: Array, upper: Array, integer: bool = False) -> Index:
        """New columns with these bounds; returns their positions."""
        count = len(lower)
        self._lower.append(np.asarray(lower, np.float64))
        self._upper.append(np.asarray(upper, np.float64))
        self._integer.append(np.full(count, integer))
        self.columns += count
        return np.arange(self.columns - count, self.columns, dtype=np.int64)

    def add_rows(self, parts: Sequence[tuple[sparse.csr_array, Index]], lower: Array, upper: Array) -> None:
        """lower <= sum of matrix @ columns[index] <= upper; each matrix has one column per index entry."""
        if len(lower) == 0:
            return
        self._matrices.append(gather(parts, len(lower), self.columns))
        self._row_lower.append(np.asarray(lower, np.float64))
        self._row_upper.append(np.asarray(upper, np.float64))

    @property
    def lower(self) -> Array:
        return np.concatenate([np.zeros(0), *self._lower])

    @property
    def upper(self) -> Array:
        return np.concatenate([np.zeros(0), *self._upper])

    @property
    def magnitude(self) -> Array:
        """The largest absolute value each column can take."""
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    def model(self, cost: Array | None = None) -> Model:
        """Everything so far; a shorter cost vector is padded with zeros."""
        full = np.zeros(self.columns)
        if cost is not None:
            full[: len(cost)] = cost
        widened = [widen(m, self.columns) for m in self._matrices]
        matrix = sparse.vstack(widened) if widened else sparse.csr_array((0, self.columns))
        return Model(
            sparse.csr_array(matrix),
            np.concatenate([np.zeros(0), *self._row_lower]),
            np.concatenate([np.zeros(0), *self._row_upper]),
            self.lower,
            self.upper,
            full,
            np.concatenate([np.zeros(0, np.bool_), *self._integer]),
        )


def widen(matrix: sparse.csr_array, columns: int) -> sparse.csr_array:
    """The same rows with more (empty) columns."""
    return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], columns))


def gather(parts: Sequence[tuple[sparse.csr_array, Index]], rows: int, columns: int) -> sparse.csr_array:
    """The sum of all parts, column k of each moved to column index[k]."""
    counts = np.arange(rows)
    row = np.concatenate([np.repeat(counts, np.diff(matrix.indptr)) for matrix, _ in parts])
    column = np.concatenate([index[matrix.indices] for matrix, index in parts])
    data = np.concatenate([matrix.data for matrix, _ in parts])
    return sparse.csr_array((data, (row, column)), shape=(rows, columns))


def diagonal(values: Array) -> sparse.csr_array:
    count = len(values)
    parts = (np.asarray(values, np.float64), np.arange(count), np.arange(count + 1))
    return sparse.csr_array(parts, shape=(count, count))
