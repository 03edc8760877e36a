"""Rows over a graph whose last layer multiplies, as polynomials over a zonotope, by plain loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verifolio.graph import Constant, Elementwise, Graph, Product, Relu
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain
from verifolio.testing.reference.affine import affine_map


@dataclass
class Polynomial:
    """c + g t + t' Q t of numbers t in [-1, 1]; Q need not be symmetric."""

    c: float
    g: Array
    q: Array

    def least(self) -> float:
        """A lower bound that treats every term by itself."""
        both = (self.q + self.q.T) / 2
        sides = np.abs(both).sum() - np.abs(np.diag(both)).sum()
        return float(self.c - np.abs(self.g).sum() - sides + np.minimum(np.diag(both), 0).sum())


def quadratic_rows(graph: Graph, domain: Domain, outputs: Array, inputs: Array) -> list[Polynomial]:
    """Rows over outputs and inputs, as polynomials of one t per input and one per ReLU (0 where it is stable)."""
    count = graph.input_size + sum(graph.nodes[i].op.size for i in graph.relus)
    values = [_inputs(domain, count)]
    for node in graph.nodes[1:]:
        parents = [values[p] for p in node.parents]
        if isinstance(node.op, Relu):
            first = graph.input_size + sum(graph.nodes[i].op.size for i in graph.relus if i < len(values))
            values.append(_relu(parents[0], first))
        elif isinstance(node.op, Product | Elementwise):
            left, right = parents * 2 if isinstance(node.op, Elementwise) else parents
            values.append([_product(a, b) for a, b in zip(left, right, strict=True)])
        else:
            sizes = [graph.nodes[p].op.size for p in node.parents]
            made = affine_map(node.op, sizes)
            matrices = [] if isinstance(node.op, Constant) else made.matrices
            values.append([_affine(matrices, parents, i, b, count) for i, b in enumerate(made.bias)])
    both = [values[graph.output], values[0]]
    return [_affine([outputs, inputs], both, r, 0.0, count) for r in range(len(outputs))]


def _inputs(domain: Domain, count: int) -> list[Polynomial]:
    found = []
    for i, (low, high) in enumerate(zip(domain.lower, domain.upper, strict=True)):
        g = np.zeros(count)
        g[i] = (high - low) / 2
        found.append(Polynomial((low + high) / 2, g, np.zeros((count, count))))
    return found


def _relu(parts: list[Polynomial], first: int) -> list[Polynomial]:
    """Between slope z and slope (z - low), the chord: half way, and a t for the rest."""
    found = []
    for k, z in enumerate(parts):
        reach = float(np.abs(z.g).sum())
        low, high = z.c - reach, z.c + reach
        slope = 1.0 if low >= 0 else 0.0 if high <= 0 else high / (high - low)
        half = -slope * min(low, 0.0) / 2
        g = slope * z.g
        g[first + k] += half
        found.append(Polynomial(slope * z.c + half, g, slope * z.q))
    return found


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    if a.q.any() or b.q.any():
        raise ValueError("a product of products is no polynomial of degree two")
    return Polynomial(a.c * b.c, a.c * b.g + b.c * a.g, np.outer(a.g, b.g))


def _affine(
    matrices: list[Array], parents: list[list[Polynomial]], row: int, bias: float, count: int
) -> Polynomial:
    total = Polynomial(float(bias), np.zeros(count), np.zeros((count, count)))
    for matrix, values in zip(matrices, parents, strict=True):
        for weight, value in zip(matrix[row], values, strict=True):
            if weight:
                total = Polynomial(
                    total.c + weight * value.c, total.g + weight * value.g, total.q + weight * value.q
                )
    return total
