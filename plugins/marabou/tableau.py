"""A problem as arrays: variables of all nodes in order, equations, ReLUs, and one disjunct's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset
from verifolio.model.problem import Problem
from verifolio.plugin.evidence import Bounds
from verifolio.vnnlib import Rows

Array = NDArray[np.float64]
EQUAL, AT_MOST = 0, 1  # kinds of rows in the file; `solve` reads the same numbers


class Tableau:
    """matrix v = scalars (or <=, by kind), v within bounds, v[after] = relu(v[before])."""

    def __init__(self, problem: Problem, bounds: Bounds | None) -> None:
        graph = problem.graph
        self.starts = np.cumsum([0, *(n.op.size for n in graph.nodes)])
        self.size, self.inputs = int(self.starts[-1]), graph.input_size
        self.outputs = self.starts[graph.output] + np.arange(graph.output_size)
        self.lower, self.upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        self.lower[: self.inputs], self.upper[: self.inputs] = problem.domain.lower, problem.domain.upper
        self.matrices: list[sparse.csr_array] = []
        self.scalars: list[Array] = []
        self.kinds: list[NDArray[np.int64]] = []
        self.relus: list[NDArray[np.int64]] = []
        self._add_nodes(graph)
        self._add_bounds(bounds)
        if problem.domain.rows is not None:
            self.add_rows(problem.domain.rows)

    def _add(self, matrix: sparse.csr_array, scalars: Array, kind: int) -> None:
        self.matrices.append(matrix)
        self.scalars.append(scalars)
        self.kinds.append(np.full(len(scalars), kind, np.int64))

    def _add_nodes(self, graph: Graph) -> None:
        for i, node in enumerate(graph.nodes[1:], 1):
            own = self.starts[i] + np.arange(node.op.size)
            if isinstance(node.op, Relu):
                before = self.starts[node.parents[0]] + np.arange(node.op.size)
                self.relus.append(np.stack([before, own], axis=1))
                self.lower[own] = 0.0
            elif isinstance(node.op, Constant):
                self.lower[own] = self.upper[own] = node.op.value
            else:
                self._add_affine(graph, i, own)

    def _add_affine(self, graph: Graph, i: int, own: NDArray[np.int64]) -> None:
        """sum of M_k parent_k - node = -offset."""
        node = graph.nodes[i]
        sizes = tuple(graph.nodes[p].op.size for p in node.parents)
        total = self._placed(-sparse.eye_array(len(own), format="csr"), own)
        for matrix, parent in zip(linear_part(node.op, sizes), node.parents, strict=True):
            total = total + self._placed(matrix, self.starts[parent] + np.arange(matrix.shape[1]))
        self._add(sparse.csr_array(total), -offset(node.op), EQUAL)

    def _placed(self, matrix: sparse.csr_array, columns: NDArray[np.int64]) -> sparse.csr_array:
        entries = sparse.coo_array(matrix)
        row, column = entries.coords
        moved = sparse.coo_array((entries.data, (row, columns[column])), shape=(matrix.shape[0], self.size))
        return sparse.csr_array(moved)

    def _add_bounds(self, bounds: Bounds | None) -> None:
        """What is known about neurons narrows the search from the start."""
        for node in [] if bounds is None else bounds.lower.keys() & bounds.upper.keys() - {0}:
            if bounds is not None:
                own = slice(int(self.starts[node]), int(self.starts[node + 1]))
                self.lower[own] = np.maximum(self.lower[own], bounds.lower[node])
                self.upper[own] = np.minimum(self.upper[own], bounds.upper[node])

    def add_rows(self, rows: Rows) -> None:
        """Rows over inputs and outputs, all at most their right-hand sides."""
        columns = np.concatenate([np.arange(self.inputs), self.outputs])
        entries = (rows.coefficient, (rows.row, columns[rows.column]))
        matrix = sparse.csr_array(sparse.coo_array(entries, shape=(rows.count, self.size)))
        self._add(matrix, np.asarray(rows.rhs, np.float64), AT_MOST)

    def save(self, path: Path, rows: Rows) -> None:
        """Everything and one disjunct's rows, as a file for the solving process."""
        kept = len(self.matrices)
        self.add_rows(rows)
        matrix = sparse.csr_array(sparse.vstack(self.matrices))
        nothing = np.zeros((0, 2), np.int64)
        np.savez(
            path,
            inputs=np.int64(self.inputs),
            outputs=self.outputs,
            lower=self.lower,
            upper=self.upper,
            data=matrix.data,
            indices=matrix.indices,
            indptr=matrix.indptr,
            scalars=np.concatenate(self.scalars),
            kinds=np.concatenate(self.kinds),
            relus=np.concatenate([nothing, *self.relus]),
        )
        del self.matrices[kept:], self.scalars[kept:], self.kinds[kept:]
