"""How far single precision may move the values of a graph: the graph with random roundings in every step.

A stochastic estimate (Vignes' CESTAC): each value is perturbed by a random relative error, and the distance of
such a run shows where cancellation or steep functions make rounding matter. A second run has the opposite errors: a
value just beyond a bend or a limit shows nothing in one direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.evaluator import evaluator
from verifolio.graph.graph import Graph
from verifolio.graph.ops import (
    Affine,
    Array,
    Concat,
    Conv,
    Dense,
    Elementwise,
    Index,
    Op,
    Relu,
    Select,
    Sparse,
    Step,
    Sum,
    Whole,
)

UNIT = 2.0**-22  # four of float32's largest relative rounding errors: an operator may round a few times
# Differences of up to this many roundings are rounding; a wrong import differs by far more.
ROUNDINGS = 128.0
# ONNX Runtime approximates these with an absolute error, also where they are close to zero
_FLOORED = ("sigmoid", "tanh", "erf", "sin", "cos", "softplus")
_POOL = 1 << 16  # random factors that are drawn once and used in turn
WHOLE = 2.0**24  # smaller whole numbers, and their sums, are exact in single precision


@cache
def _pool() -> Array:
    random = np.random.default_rng(0)
    return np.asarray((0.5 + random.random(_POOL)) * random.choice([-1.0, 1.0], _POOL) * UNIT)


class _Noise:
    """Numbers of random sign between 0.5 and 1.5, drawn once and read in a circle."""

    def __init__(self) -> None:
        self.pool, self.at = _pool(), 0

    def like(self, value: Array) -> Array:
        self.at = (self.at + 7919) % (_POOL // 2)
        width = value.shape[1]
        row = (
            self.pool[self.at : self.at + width]
            if width <= _POOL // 2
            else np.tile(self.pool, -(-width // _POOL))
        )
        return row[:width]

    def shake(self, value: Array, count: int, floor: float | Array = 0.0) -> Array:
        """The first `count` rows as they are, as many with roundings, as many with the opposite ones.

        Whole numbers are not rounded.
        """
        clean, *runs = np.split(value, (count, 2 * count))
        row, made = self.like(value), [clean]
        for sign, run in zip((1.0, -1.0), runs, strict=True):
            whole = (run == np.round(run)) & (np.abs(run) < WHOLE) & (run == clean)
            made.append(np.where(whole, run, run + sign * row * (run + floor)))
        return np.concatenate(made)


@dataclass(frozen=True, eq=False)
class Values:
    """The value of every node at the points, as it is (points, size) and with roundings (2, points, size)."""

    graph: Graph
    clean: list[Array]
    rounded: list[Array]

    def doubtful(self, node: int) -> NDArray[np.bool_]:
        """Where rounding may take a step's argument across a jump (points, size)."""
        op, parent = self.graph.nodes[node].op, self.graph.nodes[node].parents[0]
        value = self.clean[parent]
        if not isinstance(op, Step | Whole):
            return np.zeros(value.shape, bool)
        import torch

        from verifolio.graph.steps import jumps

        spread = np.abs(self.rounded[parent] - value).max(0)
        gap = jumps(op, torch.from_numpy(value)).numpy()
        return np.asarray(
            (gap <= ROUNDINGS * spread) & (spread > 0) | (self.clean[node] != self.rounded[node]).any(0)
        )

    def at(self, node: int, index: Index) -> tuple[Array, Array]:
        """Entries of a node, and how far rounding may move them; index -1 is the number zero."""
        picks = np.maximum(index, 0)
        value = self.clean[node][:, picks]
        spread = np.abs(self.rounded[node][:, :, picks] - value).max(0)
        if isinstance(self.graph.nodes[node].op, Relu):
            before, widest = self.at(self.graph.nodes[node].parents[0], picks)
            # a ReLU whose input may have either sign moves as its input does
            undecided = np.abs(before) <= ROUNDINGS * widest
            spread = np.maximum(spread, np.where(undecided, widest, 0.0))
        return np.where(index < 0, 0.0, value), np.where(index < 0, 0.0, spread)


def evaluate(graph: Graph, points: Array) -> Values:
    """Every node at the points, once exactly (in double precision) and twice with random roundings."""
    count, noise = len(points), _Noise()
    compute = evaluator(graph)
    values: list[Array] = [np.tile(points, (3, 1))]
    with np.errstate(all="ignore"):
        for i, node in list(enumerate(graph.nodes))[1:]:
            inputs = [values[p] for p in node.parents]
            if isinstance(node.op, Affine | Sum):
                inputs = [noise.shake(t, count) for t in inputs]
            out = np.broadcast_to(compute.layer(i, *inputs), (3 * count, node.op.size))
            moved = isinstance(node.op, Select | Concat)
            values.append(out if moved else noise.shake(out, count, _floor(node.op)))
    return Values(graph, [v[:count] for v in values], [v[count:].reshape(2, count, -1) for v in values])


def exact_values(graph: Graph, points: Array) -> list[Array]:
    """Every node at the points, in double precision."""
    compute, values = evaluator(graph), [points]
    with np.errstate(all="ignore"):
        for i, node in list(enumerate(graph.nodes))[1:]:
            out = compute.layer(i, *(values[p] for p in node.parents))
            values.append(out if len(out) == len(points) else np.repeat(out, len(points), axis=0))
    return values


def _floor(op: Op) -> float | Array:
    """The absolute size of what an operator rounds, beyond its value."""
    if isinstance(op, Elementwise):
        return 1.0 if op.function in _FLOORED else 0.0
    error = getattr(op, "bias_error", None)
    if error is None:
        return 0.0
    if isinstance(op, Conv):
        error = np.repeat(error, math.prod(op.output_shape[1:]))
    # the numbers whose sum was rounded, in double precision, to the bias
    return np.asarray(error * 2.0**53)


def work(graph: Graph) -> int:
    """About how many multiplications one evaluation takes."""
    return sum(
        _work(node.op) + 20 * node.op.size for node in graph.nodes
    )  # 20: each value is moved and shaken


def _work(op: Op) -> int:
    if isinstance(op, Dense):
        return op.weight.size
    if isinstance(op, Sparse):
        return 20 * int(op.weight.nnz)
    if isinstance(op, Conv):
        grid = op.input_shape if op.transposed else op.output_shape
        return op.weight.size * math.prod(grid[1:])
    return 0
