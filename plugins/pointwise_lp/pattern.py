"""The activation pattern at a point: the affine map it makes of the network, and the region it holds on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pattern:
    """On {x : sides @ x <= limits} the network is x -> matrix @ x + constant."""

    matrix: Array
    constant: Array
    sides: Array
    limits: Array


def pattern_at(graph: Graph, x: Array) -> Pattern:
    """Compose the affine maps of the pattern at x, so that no equalities are left for the solver."""
    maps: list[tuple[Array, Array]] = [(np.eye(len(x)), np.zeros(len(x)))]
    sides, limits = [], []
    for node in graph.nodes[1:]:
        parents = [maps[p] for p in node.parents]
        if isinstance(node.op, Constant):
            maps.append((np.zeros((node.op.size, len(x))), node.op.value))
        elif isinstance(node.op, Relu):
            matrix, constant = parents[0]
            on = matrix @ x + constant >= 0
            sign = np.where(on, -1.0, 1.0)
            # active: -(pre) <= 0, inactive: pre <= 0
            sides.append(sign[:, None] * matrix)
            limits.append(-sign * constant)
            maps.append((matrix * on[:, None], constant * on))
        else:
            matrices = linear_part(node.op, tuple(len(c) for _, c in parents))
            matrix, constant = np.zeros((node.op.size, len(x))), offset(node.op).copy()
            for m, (a, b) in zip(matrices, parents, strict=True):
                matrix += m @ a
                constant += m @ b
            maps.append((matrix, constant))
    matrix, constant = maps[graph.output]
    flat = np.concatenate(sides) if sides else np.zeros((0, len(x)))
    return Pattern(matrix, constant, flat, np.concatenate([np.zeros(0), *limits]))
