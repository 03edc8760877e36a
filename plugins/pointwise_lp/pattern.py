"""The activation pattern at a point (Bastani et al. 2016): the affine map that it makes, and where it holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.graph import Constant, Graph, Relu, Select, Sum
from verifolio.graph.matrix import linear_part, offset
from verifolio.graph.module import GraphModule

Array = NDArray[np.float64]
TIE = 1e-12  # a neuron's input below this is rounding: some thousand units of 1e-16 around values of one
Affine = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Pattern:
    """On {x : sides @ x <= limits} the network is x -> matrix @ x + constant."""

    matrix: Array
    constant: Array
    sides: Array
    limits: Array


def pattern_at(graph: Graph, x: Array, direction: Array | None = None) -> Pattern:
    """Compose the affine maps of the pattern at x, so that no equalities are left for the solver.

    A neuron at 0 lies on the border of several regions (max-pooling over a plain background makes thousands
    of them); `direction` is the direction in which to look for the one that is meant.
    """
    direction = np.zeros(len(x)) if direction is None else direction
    maps: list[Affine] = [(np.eye(len(x)), np.zeros(len(x)))]
    active: dict[int, NDArray[np.bool_]] = {}
    for number, node in list(enumerate(graph.nodes))[1:]:
        parents = [maps[p] for p in node.parents]
        if isinstance(node.op, Constant):
            maps.append((np.zeros((node.op.size, len(x))), node.op.value))
        elif isinstance(node.op, Relu):
            matrix, constant = parents[0]
            before = matrix @ x + constant
            active[number] = on = _active(before, matrix @ direction)
            maps.append((matrix * on[:, None], constant * on))
        else:
            matrices = linear_part(node.op, tuple(len(c) for _, c in parents))
            matrix, constant = np.zeros((node.op.size, len(x))), offset(node.op).copy()
            for m, (a, b) in zip(matrices, parents, strict=True):
                matrix += m @ a
                constant += m @ b
            maps.append((matrix, constant))
    blocks = [_rows(graph, maps, active, number) for number in active]
    matrix, constant = maps[graph.output]
    flat = np.concatenate([np.zeros((0, len(x))), *(sides for sides, _ in blocks)])
    return Pattern(matrix, constant, flat, np.concatenate([np.zeros(0), *(limits for _, limits in blocks)]))


def _rows(
    graph: Graph, maps: list[Affine], active: dict[int, NDArray[np.bool_]], number: int
) -> tuple[Array, Array]:
    """What keeps the neurons of one node in their states: -(pre) <= 0 where active, pre <= 0 elsewhere.

    In a maximum of maxima only the largest entry has to be the largest: how the others compare does not matter, so
    their rows are left out, and each is smaller than the largest instead.
    """
    matrix, constant = maps[graph.nodes[number].parents[0]]
    sign = np.where(active[number], -1.0, 1.0)
    sides, limits = sign[:, None] * matrix, -sign * constant
    above = maximum_above(graph, number)
    if above is None:
        return sides, limits
    larger, smaller = above.compare(active[above.relu])
    idle = np.zeros(len(limits), np.bool_)
    idle[smaller] = True
    idle[larger] = False
    below, beyond = smaller[idle[smaller]], larger[idle[smaller]]
    # the smaller one is a + relu(p); a row above says so of its branch, and the other branch must be smaller as well
    branch = np.where(active[number][below], 0.0, 1.0)
    first, total = maps[above.first], maps[above.total]
    more = first[0][below] + branch[:, None] * matrix[below] - total[0][beyond]
    rest = total[1][beyond] - first[1][below] - branch * constant[below]
    return np.concatenate([sides[~idle], more]), np.concatenate([limits[~idle], rest])


def _active(before: Array, change: Array) -> NDArray[np.bool_]:
    """Whether a neuron is active at x, or, where it is at 0, becomes so along the direction."""
    return np.where(np.abs(before) <= TIE, change >= 0, before > 0)


@dataclass(frozen=True, eq=False)
class NestedMaximum:
    """max(total[left], total[right]) by `relu`, where total = first + relu(p) is a maximum itself."""

    first: int
    total: int
    relu: int
    left: NDArray[np.intp]
    right: NDArray[np.intp]

    def compare(self, active: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The larger and the smaller entries; left + relu(right - left) is active where the right one is larger."""
        return np.where(active, self.right, self.left), np.where(active, self.left, self.right)


def maximum_above(graph: Graph, number: int) -> NestedMaximum | None:
    """The maxima that a ReLU's values go into and nothing else, as pooling makes them."""
    users = graph_users(graph)
    total = _only(users, number)
    if total is None or not _is_maximum(graph, total, number):
        return None
    later = {n: _only(users, n) for n in users[total]}
    if graph.output == total or len(later) != 2:
        return None
    for difference, relu in later.items():
        (kept,) = later.keys() - {difference}
        end, chosen = later[kept], graph.nodes[kept].op
        if relu is None or end is None or _only(users, relu) != end or not isinstance(chosen, Select):
            continue
        if not isinstance(graph.nodes[relu].op, Relu) or not _is_maximum(graph, end, relu):
            continue
        right = _subtracted_from(graph, difference, chosen.index)
        if right is not None:
            return NestedMaximum(graph.nodes[total].parents[0], total, relu, chosen.index, right)
    return None


def graph_users(graph: Graph) -> list[list[int]]:
    """Who reads each node."""
    users: list[list[int]] = [[] for _ in graph.nodes]
    for number, node in enumerate(graph.nodes):
        for parent in dict.fromkeys(node.parents):
            users[parent].append(number)
    return users


def _only(users: list[list[int]], number: int) -> int | None:
    return users[number][0] if len(users[number]) == 1 else None


def _is_maximum(graph: Graph, total: int, relu: int) -> bool:
    """Whether `total` is something plus the ReLU."""
    node = graph.nodes[total]
    plain = isinstance(node.op, Sum) and tuple(node.op.coefficients) == (1.0, 1.0)
    return plain and node.parents[1] == relu and node.parents[0] != relu


def _subtracted_from(graph: Graph, number: int, left: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """The entries `right`, if the node computes total[right] - total[left] and nothing else."""
    node = graph.nodes[number]
    if len(node.parents) != 1 or isinstance(node.op, Relu | Constant) or offset(node.op).any():
        return None
    (matrix,) = linear_part(node.op, (graph.nodes[node.parents[0]].op.size,))
    if matrix.shape[0] != len(left) or (np.diff(matrix.indptr) != 2).any():
        return None
    columns, values = matrix.indices.reshape(-1, 2), matrix.data.reshape(-1, 2)
    if (np.abs(values) != 1).any() or values.sum(axis=1).any():
        return None
    plus, minus = columns[values == 1.0], columns[values == -1.0]
    return np.asarray(plus, np.intp) if np.array_equal(minus, left) else None


class Slopes:
    """The affine map of the outputs alone, row by row by a backward pass: far cheaper than the whole pattern."""

    def __init__(self, graph: Graph, x: Array, direction: Array | None = None) -> None:
        module = GraphModule(graph, torch.float64)
        self.x = torch.from_numpy(x.copy()).requires_grad_(True)
        aside = self.x + (0.0 if direction is None else torch.from_numpy(direction))
        held: list[Tensor] = [torch.stack([self.x, aside])]
        for step, node in list(zip(module.layers, graph.nodes, strict=True))[1:]:
            parents = [held[p] for p in node.parents]
            if isinstance(node.op, Relu):
                here, there = parents[0].detach().numpy()
                on = torch.from_numpy(_active(here, there - here))
                held.append(parents[0] * on)  # both rows go through the map of x
            else:
                held.append(step(*parents))
        self._outputs = held[graph.output].expand(2, -1)[0]
        self.outputs: Array = self._outputs.detach().numpy()

    def of(self, weights: Array) -> Array:
        """The slope of weights @ outputs."""
        if not self._outputs.requires_grad:
            return np.zeros(len(self.x))
        total = torch.from_numpy(weights) @ self._outputs
        (found,) = torch.autograd.grad(total, self.x, retain_graph=True, allow_unused=True)
        return np.zeros(len(self.x)) if found is None else np.asarray(found.numpy(), np.float64)
