"""Which entries of a node are a whole softmax, found by plain loops over dense matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verifolio.graph import Elementwise, Graph
from verifolio.graph.ops import Array
from verifolio.testing.reference.affine import Map


def simplex_groups(graph: Graph, maps: Mapping[int, Map]) -> dict[int, list[list[int]]]:
    """Per node the groups of entries 1 / (1 + sum_j exp(x_j - x_i)), one for every x_i of the same x."""
    found = {}
    for i, node in enumerate(graph.nodes):
        if not _is(graph, i, "reciprocal"):
            continue
        total = node.parents[0]
        power = graph.nodes[total].parents[0] if total in maps and graph.nodes[total].parents else 0
        gaps = graph.nodes[power].parents[0] if _is(graph, power, "exp") else 0
        if gaps in maps and len(maps[gaps].matrices) == 1:
            groups = _groups(maps[total], maps[gaps])
            if groups:
                found[i] = groups
    return found


def _is(graph: Graph, node: int, function: str) -> bool:
    op = graph.nodes[node].op
    return isinstance(op, Elementwise) and op.function == function


def _groups(total: Map, gaps: Map) -> list[list[int]]:
    exact = not (total.bias_error.any() or gaps.bias_error.any() or gaps.bias.any())
    exact = exact and not (total.matrix_errors[0].any() or gaps.matrix_errors[0].any())
    if not exact or (total.bias != 1).any():
        return []
    sums: dict[tuple[int, ...], dict[int, int]] = {}
    for r, row in enumerate(total.matrices[0]):
        pairs = [_difference(gaps.matrices[0][k]) for k in np.flatnonzero(row)]
        if any(p is None for p in pairs) or (row[row != 0] != 1).any():
            return []
        own, others = {p[1] for p in pairs if p}, [p[0] for p in pairs if p]
        if len(own) == 1 and len({*own, *others}) == len(pairs) + 1:
            sums.setdefault((*sorted({*own, *others}),), {})[own.pop()] = r
    return [[of[m] for m in members] for members, of in sums.items() if len(of) == len(members)]


def _difference(row: Array) -> tuple[int, int] | None:
    """(j, i) of x_j - x_i."""
    plus, minus = np.flatnonzero(row == 1), np.flatnonzero(row == -1)
    if np.count_nonzero(row) != 2 or len(plus) != 1 or len(minus) != 1:
        return None
    return int(plus[0]), int(minus[0])
