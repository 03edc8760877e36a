"""The activation pattern at a point: the affine map it makes of the network, and the region it holds on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset
from verifolio.graph.module import GraphModule

Array = NDArray[np.float64]
TIE = 1e-12


@dataclass(frozen=True, eq=False)
class Pattern:
    """On {x : sides @ x <= limits} the network is x -> matrix @ x + constant."""

    matrix: Array
    constant: Array
    sides: Array
    limits: Array


def pattern_at(graph: Graph, x: Array, lean: Array | None = None) -> Pattern:
    """Compose the affine maps of the pattern at x, so that no equalities are left for the solver.

    A neuron at 0 lies on the border of several regions (max-pooling over a plain background makes thousands
    of them); `lean` is the direction in which to look for the one that is meant.
    """
    lean = np.zeros(len(x)) if lean is None else lean
    maps: list[tuple[Array, Array]] = [(np.eye(len(x)), np.zeros(len(x)))]
    sides, limits = [], []
    for node in graph.nodes[1:]:
        parents = [maps[p] for p in node.parents]
        if isinstance(node.op, Constant):
            maps.append((np.zeros((node.op.size, len(x))), node.op.value))
        elif isinstance(node.op, Relu):
            matrix, constant = parents[0]
            before = matrix @ x + constant
            on = _active(before, matrix @ lean)
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


def _active(before: Array, change: Array) -> NDArray[np.bool_]:
    """Whether a neuron is active at x, or, where it is at 0, becomes so along the direction."""
    return np.where(np.abs(before) <= TIE, change >= 0, before > 0)


class Slopes:
    """The affine map of the outputs alone, row by row by a backward pass: far cheaper than the whole pattern."""

    def __init__(self, graph: Graph, x: Array, lean: Array | None = None) -> None:
        module = GraphModule(graph, torch.float64)
        self.x = torch.from_numpy(x.copy()).requires_grad_(True)
        aside = self.x + (0.0 if lean is None else torch.from_numpy(lean))
        held: list[Tensor] = [torch.stack([self.x, aside])]
        for step, node in list(zip(module.steps, graph.nodes, strict=True))[1:]:
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
