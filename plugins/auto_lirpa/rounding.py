"""How far float64 may have moved bounds that a backward pass computed without regard to rounding.

A row of coefficients A over node k is replaced by one over its inputs. With u the unit roundoff and
gamma_n = n u / (1 - n u), computing A W instead of A W exactly changes the row's value by at most
gamma_n |A| (|W| |h| + |b|) (Higham 2002, section 3.5), which is |A| times a vector that does not depend on A. All
slopes of ReLU's lines lie in [0, 1], so |A| over h is at most |A| |W| over the inputs, and what is lost below
node k is at most |A| loss_k with

    loss_k = noise_k + |W| loss_before                     affine
    loss_k = 2 loss_before + a few u |z|                   ReLU whose phase is open

The second loss_before of a ReLU pays for lines drawn through bounds that were themselves too narrow by as much. A
ReLU that is active whatever was lost passes its loss on, one that is inactive loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.graph import Constant, Conv, Dense, Graph, Node, Relu
from verifolio.graph.enclosure import TINY, UNIT, gamma, weight_slack
from verifolio.graph.matrix import linear_part, offset
from verifolio.graph.module import convolve
from verifolio.model.problem import Domain

Array = NDArray[np.float64]
Intervals = Mapping[int, tuple[Array, Array]]
MORE = 64  # terms beyond those of the sums: lines, constants, rows that meet; far more than any operator has
ROOM = 1.0 + 1e-9  # for this file's own rounding, which is some hundred units of 1e-16 at each step


class Losses:
    """`loss[i]` and `size[i]` of every node: what rounding may cost a unit row over it, and its largest |value|."""

    def __init__(self, graph: Graph, domain: Domain, found: Intervals) -> None:
        self.graph, self.found = graph, found
        self.largest = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
        self.loss: list[Array] = [4 * gamma(graph.input_size + MORE) * self.largest + TINY]
        self.size: list[Array] = [self.largest]
        for i, node in enumerate(graph.nodes[1:], 1):
            loss, size = self._node(i, node)
            self.loss.append((loss + 8 * UNIT * size) * ROOM + TINY)
            self.size.append(size * ROOM)

    def widened(self, i: int) -> tuple[Array, Array]:
        """The found bounds of a node, moved outward by what rounding may have cost."""
        low, high = self.found[i]
        loss = self.loss[i] * ROOM
        return np.nextafter(low - loss, -np.inf), np.nextafter(high + loss, np.inf)

    def margin(self, rows: Array, rhs: Array) -> Array:
        """What rounding may cost bounds of rows over the output, minus their right-hand sides."""
        out = self.graph.output
        absolute = np.abs(rows)
        terms = gamma(rows.shape[1] + self.graph.input_size + MORE)
        return (absolute @ self.loss[out] + terms * (absolute @ self.size[out] + np.abs(rhs))) * ROOM + TINY

    def _node(self, i: int, node: Node) -> tuple[Array, Array]:
        if isinstance(node.op, Relu):
            return self._relu(node.parents[0])
        if isinstance(node.op, Constant):
            error = np.zeros(node.op.size) if node.op.error is None else node.op.error
            return error + 0.0, np.abs(node.op.value) + error
        loss, size = self._affine(node)
        if i in self.found:
            low, high = self.found[i]
            size = np.minimum(size, np.maximum(np.abs(low), np.abs(high)) + loss)
        return loss, size

    def _relu(self, before: int) -> tuple[Array, Array]:
        loss, size = self.loss[before], self.size[before]
        if before not in self.found:
            return 2 * loss, size
        low, high = self.widened(before)
        passed = np.where(low >= 0, loss, 2 * loss + 8 * UNIT * size)
        return np.where(high <= 0, 0.0, passed), np.maximum(high, 0.0)

    def _affine(self, node: Node) -> tuple[Array, Array]:
        op, parents = node.op, node.parents
        sizes = tuple(len(self.size[p]) for p in parents)
        size, loss = np.abs(offset(op)), np.zeros(op.size)
        if isinstance(op, Dense):
            weight = np.abs(op.weight)
            size, loss = size + weight @ self.size[parents[0]], weight @ self.loss[parents[0]]
        elif isinstance(op, Conv):
            rows = torch.from_numpy(np.stack([self.size[parents[0]], self.loss[parents[0]]]))
            grown = convolve(op, rows, torch.tensor(np.abs(op.weight)), None).numpy()
            size, loss = size + grown[0], grown[1]
        else:
            for matrix, p in zip(linear_part(op, sizes), parents, strict=True):
                size, loss = size + abs(matrix) @ self.size[p], loss + abs(matrix) @ self.loss[p]
        n = sum(sizes) + op.size + MORE
        noise = gamma(n) * size + weight_slack(op, self.size[parents[0]])
        return (loss * (1 + gamma(n)) + noise) * ROOM, size * (1 + gamma(n))
