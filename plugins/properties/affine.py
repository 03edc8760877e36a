"""How far a piecewise linear network is affine around a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import Constant, Graph, Op, Relu
from verifolio.graph.enclosure import TINY, Enclosed, enclose_all, gamma, weight_slack
from verifolio.graph.matrix import linear_part
from verifolio.graph.ops import Affine, Concat, Select, Sum
from verifolio.onnx_import.network import Network

Array = NDArray[np.float64]
SAFETY = 1 - 1e-6  # covers the rounding of the quotient that the radius is
MAX_NUMBERS = 50_000_000  # of one Jacobian: 400 MB


@dataclass(frozen=True)
class _Slopes:
    """A node's Jacobian (size, inputs), and what the sum of a row's absolute values may be off by (size,)."""

    rows: Array
    error: Array

    def steepness(self) -> Array:
        """At least the sum of the absolute values of every exact row."""
        return np.asarray((np.abs(self.rows).sum(1) + self.error) * (1 + gamma(self.rows.shape[1] + 1)))


def affine_pieces(networks: Sequence[Network], x: Array) -> list[tuple[float, Array]]:
    """The affine radius of each network and its Jacobian, as `affine_piece` has them."""
    return [affine_piece(n.graph, x) for n in networks]


def affine_piece(graph: Graph, x: Array) -> tuple[float, Array]:
    """The affine radius and the Jacobian (outputs, inputs) on that piece; (0, nothing) if there is none.

    Within the radius, in the maximum norm, no ReLU changes its state. It is the least |a| / ||da/dx||_1 over all
    neurons, with a the input of the ReLU at x, less what rounding may have changed in either. Graphs with smooth
    operators have no such radius.
    """
    width = max(node.op.size for node in graph.nodes)
    if width * graph.input_size > MAX_NUMBERS or not _piecewise(graph):
        return 0.0, np.zeros((0, graph.input_size))
    values, n = enclose_all(graph, x), graph.input_size
    slopes = [_Slopes(np.eye(n), np.zeros(n))]
    radius = np.inf
    for node in graph.nodes[1:]:
        parents = [slopes[p] for p in node.parents]
        if isinstance(node.op, Relu):
            radius = min(radius, _distance(values[node.parents[0]], parents[0]))
            active = values[node.parents[0]][0] > 0
            slopes.append(_Slopes(parents[0].rows * active[:, None], parents[0].error * active))
        elif isinstance(node.op, Constant):
            slopes.append(_Slopes(np.zeros((node.op.size, n)), np.zeros(node.op.size)))
        else:
            slopes.append(_mapped(node.op, parents))
    found = float(radius * SAFETY) if np.isfinite(radius) else float(np.inf)
    return found, slopes[graph.output].rows


def _piecewise(graph: Graph) -> bool:
    return all(isinstance(n.op, Relu | Constant | Affine | Select | Sum | Concat) for n in graph.nodes[1:])


def _mapped(op: Op, parents: Sequence[_Slopes]) -> _Slopes:
    """Behind an affine operator. A row that reads nothing but zeros is exactly nought."""
    rows = np.zeros((op.size, parents[0].rows.shape[1]))
    error, size, read, terms = np.zeros(op.size), np.zeros(op.size), np.zeros(op.size), 1
    matrices = linear_part(op, tuple(len(p.error) for p in parents))
    for matrix, parent in zip(matrices, parents, strict=True):
        absolute, steep = abs(matrix), parent.steepness()
        rows = rows + _times(matrix, parent.rows)
        error = error + absolute @ parent.error
        size = size + absolute @ steep
        pattern = sparse.csr_array(
            (absolute.data != 0, absolute.indices, absolute.indptr), shape=absolute.shape
        )
        read = read + pattern @ (steep > 0).astype(np.float64)
        terms += int(np.diff(matrix.indptr).max(initial=0))
    rounded = (error * (1 + gamma(terms)) + gamma(terms) * size + TINY) * (read > 0)
    if isinstance(op, Affine):
        unbiased = replace(op, bias_error=None)  # type: ignore[call-arg]
        rounded += weight_slack(unbiased, parents[0].steepness())
    return _Slopes(rows, rounded)


def _times(matrix: sparse.csr_array, value: Array) -> Array:
    return np.asarray(matrix @ value, np.float64)


def _distance(value: Enclosed, slopes: _Slopes) -> float:
    """The distance of the nearest kink; a neuron that does not move has none."""
    steep = slopes.steepness()
    clear = np.maximum(np.abs(value[0]) - value[1], 0.0)
    moving = ~(steep == 0)  # NaN counts as moving
    if not moving.any():
        return float(np.inf)
    return float(np.nan_to_num(clear[moving] / steep[moving], nan=0.0).min())
