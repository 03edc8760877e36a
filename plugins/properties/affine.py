"""How far a piecewise linear network is affine around a point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset
from verifolio.graph.ops import Affine, Concat, Select, Sum
from verifolio.onnx_import.network import Network

Array = NDArray[np.float64]
SAFETY = 1 - 1e-6  # covers the rounding of the quotient that the radius is
ROUNDING = 1e-12  # of a pre-activation relative to the numbers it was computed from
MAX_NUMBERS = 50_000_000  # of one Jacobian: 400 MB


def affine_pieces(networks: Sequence[Network], x: Array) -> list[tuple[float, Array]]:
    """The affine radius of each network and its Jacobian, as `affine_piece` has them."""
    return [affine_piece(n.graph, x) for n in networks]


def affine_piece(graph: Graph, x: Array) -> tuple[float, Array]:
    """The affine radius and the Jacobian (outputs, inputs) on that piece; (0, nothing) if there is none.

    Within the radius, in the maximum norm, no ReLU changes its state. It is the least |a| / ||da/dx||_1 over all
    neurons, with a the input of the ReLU at x, a little less for rounding. Graphs with smooth
    operators have no such radius.
    """
    width = max(node.op.size for node in graph.nodes)
    nothing = np.zeros((0, graph.input_size))
    if width * graph.input_size > MAX_NUMBERS:
        return 0.0, nothing
    values: list[Array] = [x]
    slopes: list[Array] = [np.eye(graph.input_size)]
    radius = np.inf
    for node in graph.nodes[1:]:
        op = node.op
        if isinstance(op, Relu):
            before, slope = values[node.parents[0]], slopes[node.parents[0]]
            radius = min(radius, _distance(before, slope, x))
            active = before > 0
            values.append(np.where(active, before, 0.0))
            slopes.append(slope * active[:, None])
        elif isinstance(op, Constant):
            values.append(op.value)
            slopes.append(np.zeros((op.size, graph.input_size)))
        elif isinstance(op, Affine | Select | Sum | Concat):
            sizes = tuple(len(values[p]) for p in node.parents)
            parts = list(zip(linear_part(op, sizes), node.parents, strict=True))
            values.append(sum((_times(m, values[p]) for m, p in parts), offset(op)))
            slopes.append(sum((_times(m, slopes[p]) for m, p in parts), np.zeros((op.size, len(x)))))
        else:
            return 0.0, nothing
    found = float(radius * SAFETY) if np.isfinite(radius) else float(np.inf)
    return found, slopes[graph.output]


def _times(matrix: sparse.csr_array, value: Array) -> Array:
    return np.asarray(matrix @ value, np.float64)


def _distance(before: Array, slope: Array, x: Array) -> float:
    """The distance of the nearest kink; a neuron that hardly moves is none."""
    steep = np.abs(slope).sum(axis=1)
    unsure = ROUNDING * (1 + np.abs(before) + steep * (1 + np.abs(x).max()))
    clear = np.maximum(np.abs(before) - unsure, 0.0)
    moving = steep > 0
    return float((clear[moving] / steep[moving]).min()) if moving.any() else float(np.inf)
