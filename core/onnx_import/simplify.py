"""Exact simplifications of a finished graph: a bias added after an affine map moves into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verifolio.graph.graph import Graph, GraphBuilder, Node
from verifolio.graph.ops import Affine, Array, Conv, Dense, Scale, Sparse


def simplify(graph: Graph) -> Graph:
    """Merge each pure shift into the affine node before it, where that node has no other reader."""
    readers = [0] * len(graph.nodes)
    for node in graph.nodes:
        for parent in node.parents:
            readers[parent] += 1
    builder = GraphBuilder(graph.input_size)
    place = {0: 0}
    for i, node in enumerate(graph.nodes[1:], start=1):
        parents = tuple(place[p] for p in node.parents)
        merged = None
        if isinstance(node.op, Scale) and readers[node.parents[0]] == 1 and node.parents[0] != graph.output:
            merged = _merge(builder.nodes[parents[0]], node.op)
        if merged is None:
            place[i] = builder.add(node.op, *parents, name=node.name)
        else:
            builder.nodes[parents[0]] = merged
            place[i] = parents[0]
    return builder.finish(place[graph.output])


def _merge(node: Node, shift: Scale) -> Node | None:
    """The node with the shift in its bias, or None where the sum would be rounded."""
    op = node.op
    if not isinstance(op, Dense | Sparse | Conv | Scale) or not _is_shift(shift):
        return None
    added: Array | None = shift.bias
    if isinstance(op, Conv):
        added = _per_channel(op, shift.bias)
    bias = None if added is None else exact_sum(op.bias, added)
    return None if bias is None else replace(node, op=_with_bias(op, bias))


def _with_bias(op: Affine, bias: Array) -> Affine:
    return replace(op, bias=bias)


def _is_shift(op: Scale) -> bool:
    return op.weight_error is None and op.bias_error is None and bool((op.weight == 1.0).all())


def _per_channel(op: Conv, shift: Array) -> Array | None:
    grid = shift.reshape(op.output_shape[0], -1)
    return grid[:, 0].copy() if bool((grid == grid[:, :1]).all()) else None


def exact_sum(a: Array, b: Array) -> Array | None:
    """a + b where no entry is rounded, else None (Knuth's TwoSum gives the rounding)."""
    total = a + b
    part = total - a
    rest = (a - (total - part)) + (b - part)
    return None if bool(np.any(rest != 0)) else total
