"""Affine operators as dense matrices, written out entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from verifolio.graph import Concat, Constant, Conv, Dense, Op, Scale, Select, Sparse, Sum
from verifolio.graph.ops import Array


@dataclass(frozen=True)
class Map:
    """y = sum_k matrices[k] x_k + bias; the exact entries lie within the errors of the stored ones."""

    matrices: list[Array]
    bias: Array
    matrix_errors: list[Array]
    bias_error: Array


def affine_map(op: Op, sizes: Sequence[int]) -> Map:
    """The map of an affine operator whose parents have these sizes."""
    matrices = _matrices(op, sizes)
    errors = [np.zeros_like(m) for m in matrices]
    stored = getattr(op, "weight_error", None)
    if stored is not None:
        errors = [_weights(op, stored)]
    bias, bias_error = np.zeros(op.size), np.zeros(op.size)
    if isinstance(op, Constant):
        bias, bias_error = op.value, bias_error if op.error is None else op.error
    elif isinstance(op, Dense | Sparse | Scale | Conv):
        bias = _per_output(op, op.bias)
        bias_error = bias_error if op.bias_error is None else _per_output(op, op.bias_error)
    return Map(matrices, bias, errors, bias_error)


def _matrices(op: Op, sizes: Sequence[int]) -> list[Array]:
    if isinstance(op, Constant):
        return []
    if isinstance(op, Dense | Sparse | Scale | Conv):
        return [_weights(op, op.weight)]
    matrices = [np.zeros((op.size, n)) for n in sizes]
    if isinstance(op, Select):
        for i, source in enumerate(op.index):
            if source >= 0:
                matrices[0][i, source] = 1
    elif isinstance(op, Sum):
        for matrix, coefficient in zip(matrices, op.coefficients, strict=True):
            for i in range(op.size):
                matrix[i, i] = coefficient
    elif isinstance(op, Concat):
        start = 0
        for matrix in matrices:
            for i in range(matrix.shape[1]):
                matrix[start + i, i] = 1
            start += matrix.shape[1]
    else:
        raise TypeError(f"{type(op).__name__} is not affine")
    return matrices


def _weights(op: Op, weight: Any) -> Array:
    """Weights, or bounds on their errors, as a matrix (outputs, inputs)."""
    if isinstance(op, Conv):
        return _conv(op, weight)
    if isinstance(op, Scale):
        return np.diag(weight)
    return np.asarray(weight.toarray() if isinstance(op, Sparse) else weight)


def _per_output(op: Op, value: Array) -> Array:
    if isinstance(op, Conv):
        return np.repeat(value, op.output_shape[1] * op.output_shape[2])
    return value


def _conv(op: Conv, weight: Array) -> Array:
    """A window lies on a grid of positions; a transposed convolution writes where the other reads."""
    if op.transposed:
        grid, plane = op.input_shape, op.output_shape
    else:
        grid, plane = op.output_shape, op.input_shape
    matrix = np.zeros((int(np.prod(grid)), int(np.prod(plane))))
    per_group = grid[0] // op.groups
    for a, y, x in product(range(grid[0]), range(grid[1]), range(grid[2])):
        at = (a * grid[1] + y) * grid[2] + x
        for b, u, v in product(range(weight.shape[1]), range(weight.shape[2]), range(weight.shape[3])):
            channel = a // per_group * weight.shape[1] + b
            row = y * op.stride[0] + u * op.dilation[0] - op.pads[0]
            column = x * op.stride[1] + v * op.dilation[1] - op.pads[1]
            if 0 <= row < plane[1] and 0 <= column < plane[2]:
                matrix[at, (channel * plane[1] + row) * plane[2] + column] += weight[a, b, u, v]
    return matrix.T if op.transposed else matrix
