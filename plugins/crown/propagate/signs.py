"""Which values cannot be negative, whatever the input: by the signs of weights alone, without rounding.

Bounds miss nought by what rounding is charged. A value that a ReLU has made and another one passes on, as where a
ReLU was split in two layers, would count as unstable for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Dense, Graph, Op, Relu, Select, Sum
from verifolio.graph.graph import is_exact

Mask = NDArray[np.bool_]
Signs = tuple[Mask, Mask]  # of a node's entries: those that are never negative, those of them that are nought


def never_negative(graph: Graph) -> dict[int, NDArray[np.int64]]:
    """The entries of affine nodes after a ReLU that are never negative, where there are some."""
    found: dict[int, NDArray[np.int64]] = {}
    signs: list[Signs] = []
    for i, node in enumerate(graph.nodes):
        mine = _signs(node.op, [signs[p] for p in node.parents]) if is_exact(node.op) else _unknown(node.op)
        signs.append(mine)
        if isinstance(node.op, Dense) and mine[0].any():
            found[i] = np.flatnonzero(mine[0])
    return found


def _unknown(op: Op) -> Signs:
    return np.zeros(op.size, bool), np.zeros(op.size, bool)


@singledispatch
def _signs(op: Op, parents: Sequence[Signs]) -> Signs:
    return _unknown(op)


@_signs.register
def _(op: Relu, parents: Sequence[Signs]) -> Signs:
    return np.ones(op.size, bool), parents[0][1]


@_signs.register
def _(op: Select, parents: Sequence[Signs]) -> Signs:
    known, nought = parents[0]
    filled = op.index < 0  # nought is put there
    return filled | known[op.index], filled | nought[op.index]


@_signs.register
def _(op: Sum, parents: Sequence[Signs]) -> Signs:
    known, nought = np.ones(op.size, bool), np.ones(op.size, bool)
    for factor, (mine, zero) in zip(op.coefficients, parents, strict=True):
        known &= zero | mine if factor >= 0 else zero
        nought &= zero
    return known, nought


@_signs.register
def _(op: Dense, parents: Sequence[Signs]) -> Signs:
    known, _ = parents[0]
    rows = np.flatnonzero(op.bias >= 0) if known.any() else np.zeros(0, np.int64)
    part = op.weight[rows]
    fine = (part[:, known] >= 0).all(1) & (part[:, ~known] == 0).all(1)
    mask = np.zeros(op.size, bool)
    mask[rows[fine]] = True
    return mask, np.zeros(op.size, bool)
