"""Which entries of every node some rows over the output depend on: nothing else needs bounds."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from verifolio.graph import Op, Sparse
from verifolio.plugins.crown.propagate.layers import (
    ConvLayer,
    DenseLayer,
    Layer,
    ScaleLayer,
    SparseLayer,
    csr,
)
from verifolio.plugins.crown.propagate.program import Program


@torch.no_grad()
def cone(program: Program, rows: Tensor) -> dict[int, Tensor]:
    """Masks (size,) of the nodes on which rows (goals, rows, outputs) depend.

    A weight counts if it, or what it may be off by, is not nought.
    """
    space = program.space
    start = (rows != 0).flatten(0, 1).any(0).to(space.dtype)
    flow, found = {program.graph.output: start[None, None]}, {}
    for i in range(program.graph.output, -1, -1):
        if i not in flow:
            continue
        seen = flow.pop(i) > 0
        found[i] = seen[0, 0]
        layer, ones = program.layers[i], seen.to(space.dtype)
        parts = [ones] * len(program.parents[i])
        if layer is not None:
            parts = _pattern(layer, program.graph.nodes[i].op).backward(ones)[0]
        for parent, part in zip(program.parents[i], parts, strict=True):
            flow[parent] = flow[parent] + part.abs() if parent in flow else part.abs()
    return found


def _pattern(layer: Layer, op: Op) -> Layer:
    """The layer with a one for every weight that counts: nothing cancels and nothing is too small."""
    other = copy(layer)
    if isinstance(other, SparseLayer) and isinstance(op, Sparse):
        size = abs(op.weight.copy())  # taking absolute values may sort a matrix in place
        size = size if op.weight_error is None else size + op.weight_error
        size.eliminate_zeros()
        matrix = size.T.tocsr()
        pointers, columns = (torch.as_tensor(a.astype("int64")) for a in (matrix.indptr, matrix.indices))
        ones = torch.ones(matrix.nnz, dtype=layer.space.dtype)
        other.transposed = csr(pointers, columns, ones, matrix.shape).to(layer.space.device)
    elif isinstance(other, DenseLayer | ConvLayer | ScaleLayer):
        counts = other.weight != 0
        if other.weight_error is not None:
            counts = counts | (other.weight_error != 0)
        other.weight = counts.to(layer.space.dtype)
    return other
