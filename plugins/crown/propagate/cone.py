"""Which entries of every node some rows over the output depend on: nothing else needs bounds."""

from __future__ import annotations

import warnings
from copy import copy

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.layers import ConvLayer, DenseLayer, Layer, ScaleLayer, SparseLayer
from verifolio.plugins.crown.propagate.program import Program


@torch.no_grad()
def cone(program: Program, rows: Tensor) -> dict[int, Tensor]:
    """Masks (size,) of the nodes on which rows (goals, rows, outputs) depend, by which weights are not nought."""
    space = program.space
    start = (rows != 0).flatten(0, 1).any(0).to(space.dtype)
    flow, found = {program.graph.output: start[None, None]}, {}
    for i in range(program.graph.output, -1, -1):
        if i not in flow:
            continue
        seen = flow.pop(i) > 0
        found[i] = seen[0, 0]
        layer, ones = program.layers[i], seen.to(space.dtype)
        parts = [ones] * len(program.parents[i]) if layer is None else _pattern(layer).backward(ones)[0]
        for parent, part in zip(program.parents[i], parts, strict=True):
            flow[parent] = flow[parent] + part.abs() if parent in flow else part.abs()
    return found


def _pattern(layer: Layer) -> Layer:
    """The layer with a one for every weight that is not nought: nothing cancels and nothing is too small."""
    other = copy(layer)
    if isinstance(other, SparseLayer):
        values = (layer.transposed.values() != 0).to(layer.space.dtype)  # type: ignore[attr-defined]
        old = other.transposed
        with warnings.catch_warnings():  # as where the layer makes its matrices
            warnings.simplefilter("ignore", UserWarning)
            other.transposed = torch.sparse_csr_tensor(
                old.crow_indices(), old.col_indices(), values, size=old.shape, dtype=values.dtype
            )
    elif isinstance(other, DenseLayer | ConvLayer | ScaleLayer):
        other.weight = (other.weight != 0).to(layer.space.dtype)
    return other
