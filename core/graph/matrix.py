"""Affine operators as explicit sparse matrices, for solvers that read rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from verifolio.graph.ops import Affine, Array, Concat, Conv, Dense, Index, Op, Scale, Select, Sparse, Sum


def linear_part(op: Op, inputs: tuple[int, ...]) -> tuple[sparse.csr_array, ...]:
    """One matrix (size, inputs_k) per parent, so that y = sum_k M_k x_k + bias; `inputs` are parent sizes."""
    if isinstance(op, Dense):
        return (sparse.csr_array(op.weight),)
    if isinstance(op, Sparse):
        return (op.weight,)
    if isinstance(op, Scale):
        return (sparse.csr_array(sparse.diags_array(op.weight)),)
    if isinstance(op, Select):
        keep = np.flatnonzero(op.index >= 0)
        entries = (np.ones(len(keep)), (keep, op.index[keep]))
        return (sparse.csr_array(entries, shape=(op.size, inputs[0])),)
    if isinstance(op, Sum):
        return tuple(sparse.csr_array(c * sparse.eye_array(op.size)) for c in op.coefficients)
    if isinstance(op, Concat):
        starts = np.cumsum([0, *inputs])
        return tuple(
            sparse.csr_array((np.ones(n), (np.arange(s, s + n), np.arange(n))), shape=(op.size, n))
            for s, n in zip(starts, inputs, strict=False)
        )
    if isinstance(op, Conv):
        return (conv_matrix(op),)
    raise TypeError(f"{type(op).__name__} is not linear")


def offset(op: Op) -> Array:
    """The constant part of an affine operator, one entry per output."""
    if isinstance(op, Conv):
        _, height, width = op.output_shape
        return np.repeat(op.bias, height * width)
    return op.bias if isinstance(op, Affine) else np.zeros(op.size)


def conv_matrix(op: Conv, weight: Array | None = None) -> sparse.csr_array:
    """The matrix of a convolution, built from index arithmetic (one block per kernel position)."""
    weight = op.weight if weight is None else weight
    coarse, fine = (op.input_shape, op.output_shape) if op.transposed else (op.output_shape, op.input_shape)
    kernel_h, kernel_w = weight.shape[2:]
    rows, columns, values = [], [], []
    for u in range(kernel_h):
        for v in range(kernel_w):
            # coarse pixel (i, j) touches fine pixel (i * stride + u * dilation - pad)
            at_h = np.arange(coarse[1]) * op.stride[0] + u * op.dilation[0] - op.pads[0]
            at_w = np.arange(coarse[2]) * op.stride[1] + v * op.dilation[1] - op.pads[1]
            ok_h = np.flatnonzero((at_h >= 0) & (at_h < fine[1]))
            ok_w = np.flatnonzero((at_w >= 0) & (at_w < fine[2]))
            c = (ok_h[:, None] * coarse[2] + ok_w[None]).ravel()
            f = (at_h[ok_h][:, None] * fine[2] + at_w[ok_w][None]).ravel()
            a, b, taps = _channel_pairs(op, weight[:, :, u, v], coarse[0])
            rows.append((a[:, None] * (coarse[1] * coarse[2]) + c[None]).ravel())
            columns.append((b[:, None] * (fine[1] * fine[2]) + f[None]).ravel())
            values.append(np.repeat(taps, len(c)))
    shape = (int(np.prod(coarse)), int(np.prod(fine)))
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    matrix = sparse.coo_array(entries, shape=shape)
    return sparse.csr_array(matrix.T if op.transposed else matrix)


def _channel_pairs(op: Conv, taps: Array, coarse_channels: int) -> tuple[Index, Index, Array]:
    """Coarse channels, fine channels and weights of one kernel position; the first axis is coarse."""
    per_group = coarse_channels // op.groups
    a, b = np.nonzero(taps)
    return a, (a // per_group) * taps.shape[1] + b, taps[a, b]
