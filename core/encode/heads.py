"""Graph heads: small exact graphs put on top of a network so that a plainer problem says the same.

Heads add affine maps with the coefficients as given and ReLUs, nothing else, so a head is exact in real
arithmetic: max(a, b) = a + relu(b - a), min(a, b) = a - relu(a - b), |v| = relu(v) + relu(-v).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import sparse

from verifolio.errors import InputError
from verifolio.graph import Concat, Graph, GraphBuilder, Relu, Scale, Select, Sparse, Sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from verifolio.model.problem import Ball
    from verifolio.vnnlib import Rows

    Array = NDArray[np.float64]

Groups = list[list[int]]


def joint_head(graphs: Sequence[Graph]) -> Graph:
    """Several graphs that read one shared input; the outputs are concatenated in order."""
    sizes = sorted({g.input_size for g in graphs})
    if len(sizes) != 1:
        raise InputError("joint head", "networks of one input size", f"sizes {sizes}", "resize the inputs")
    builder = GraphBuilder(sizes[0])
    outputs = [builder.extend(graph, 0) for graph in graphs]
    if len(outputs) == 1:
        return builder.finish(outputs[0])
    return builder.finish(builder.add(Concat(sum(g.output_size for g in graphs)), *outputs))


def identity_head(graph: Graph) -> Graph:
    """Outputs (y, x): the inputs appended to the outputs, so that mixed rows become output rows."""
    builder = GraphBuilder(graph.input_size)
    output = builder.extend(graph, 0)
    return builder.finish(builder.add(Concat(graph.output_size + graph.input_size), output, 0))


def sum_head(graphs: Sequence[Graph]) -> Graph:
    """The sum of several networks' outputs; as argmax and signs go, their average, but nothing is rounded."""
    joint = joint_head(graphs)
    size = graphs[0].output_size
    if any(g.output_size != size for g in graphs):
        got = str(sorted({g.output_size for g in graphs}))
        raise InputError("sum head", "networks of one output size", f"sizes {got}", "compare like with like")
    builder = GraphBuilder(joint.input_size)
    output = builder.extend(joint, 0)
    weight = sparse.csr_array(np.tile(np.eye(size), (1, len(graphs))))
    return builder.finish(builder.add(Sparse(size, np.zeros(size), weight), output))


def clamp_head(graph: Graph, lower: Array | float, upper: Array | float) -> Graph:
    """Every output v replaced by lower + relu(v - lower) - relu(v - upper), with lower <= upper."""
    size = graph.output_size
    low = np.broadcast_to(np.asarray(lower, np.float64), (size,)).copy()
    high = np.broadcast_to(np.asarray(upper, np.float64), (size,)).copy()
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError("clamp head", "finite bounds, lower <= upper", f"[{lower}, {upper}]", "order them")
    builder = GraphBuilder(graph.input_size)
    output = builder.extend(graph, 0)
    one = np.ones(size)
    above_low = builder.add(Relu(size), builder.add(Scale(size, -low, one), output))
    above_high = builder.add(Relu(size), builder.add(Scale(size, -high, one), output))
    clipped = builder.add(Sum(size, (1.0, -1.0)), above_low, above_high)
    return builder.finish(builder.add(Scale(size, low, one), clipped))


def norm_head(graph: Graph, ball: Ball) -> Graph:
    """Outputs (y, r) with r = ||x - centre|| in the ball's norm (1 or infinity); the radius is not used."""
    builder = GraphBuilder(graph.input_size)
    output = builder.extend(graph, 0)
    distance = _norm(builder, ball)
    return builder.finish(builder.add(Concat(graph.output_size + 1), output, distance))


def _norm(builder: GraphBuilder, ball: Ball) -> int:
    if ball.norm not in (1, math.inf):
        raise InputError("norm head", "norm 1 or infinity", str(ball.norm), "an L2 ball is not linear")
    size = len(ball.centre)
    one = np.ones(size)
    over = builder.add(Relu(size), builder.add(Scale(size, -ball.centre, one), 0))
    under = builder.add(Relu(size), builder.add(Scale(size, ball.centre, -one), 0))
    if ball.norm == 1:
        both = builder.add(Concat(2 * size), over, under)
        weight = sparse.csr_array(np.ones((1, 2 * size)))
        return builder.add(Sparse(1, np.zeros(1), weight), both)
    absolute = builder.add(Sum(size, (1.0, 1.0)), over, under)
    return extreme(builder, absolute, [list(range(size))], 1.0)


def margin_head(graph: Graph, groups: Sequence[Rows], form: Literal["dnf", "cnf"] = "dnf") -> Graph:
    """A single output g with: g <= 0 exactly where the condition holds.

    "dnf": the groups are disjuncts, g = min over groups of max over rows of (row - rhs). "cnf": the groups
    are clauses, g = max over groups of min over rows. Strict rows are read as non-strict ones, unless all
    rows are strict, when the condition is g < 0: see `margin_is_strict`. Reading a strict row as non-strict
    enlarges the condition, so a proof carries over; a witness is replayed on the original anyway.
    """
    if not groups or any(rows.count == 0 for rows in groups):
        raise InputError("margin head", "at least one row per group", "none", "the condition is constant")
    builder = GraphBuilder(graph.input_size)
    output = builder.extend(graph, 0)
    inputs, outputs = graph.input_size, graph.output_size
    source = output
    if any(bool((rows.column < inputs).any()) for rows in groups):
        source = builder.add(Concat(inputs + outputs), 0, output)
        shift = 0
    else:
        shift = inputs
    width = inputs + outputs - shift
    parts = [(_matrix(rows, shift, width), -rows.rhs) for rows in groups]
    weight = sparse.csr_array(sparse.vstack([m for m, _ in parts]))
    bias = np.concatenate([b for _, b in parts])
    margins = builder.add(Sparse(len(bias), bias, weight), source)
    starts = np.cumsum([0, *(rows.count for rows in groups)])
    members = [list(range(a, b)) for a, b in pairwise(starts)]
    inner = 1.0 if form == "dnf" else -1.0
    each = extreme(builder, margins, members, inner)
    return builder.finish(extreme(builder, each, [list(range(len(groups)))], -inner))


def margin_is_strict(groups: Sequence[Rows]) -> bool:
    """Whether the condition is g < 0 rather than g <= 0 for the output g of `margin_head`."""
    return all(bool(rows.strict.all()) for rows in groups)


def _matrix(rows: Rows, shift: int, width: int) -> sparse.csr_array:
    entries = (rows.coefficient, (rows.row, rows.column - shift))
    return sparse.csr_array(sparse.coo_array(entries, shape=(rows.count, width)))


def extreme(builder: GraphBuilder, node: int, groups: Groups, sign: float) -> int:
    """The maximum (sign +1) or minimum (-1) of every group of entries of `node`, pair by pair."""
    while any(len(g) > 1 for g in groups):
        left: list[int] = []
        right: list[int] = []
        carried: list[int] = []
        following: Groups = []
        pairs = sum(len(g) // 2 for g in groups)
        for g in groups:
            half = len(g) // 2
            places = list(range(len(left), len(left) + half))
            left += g[:half]
            right += g[half : 2 * half]
            if len(g) % 2:
                places.append(pairs + len(carried))
                carried.append(g[-1])
            following.append(places)
        node, groups = _round(builder, node, left, right, carried, sign), following
    return _select(builder, node, [g[0] for g in groups])


def _round(
    builder: GraphBuilder, node: int, left: list[int], right: list[int], carried: list[int], sign: float
) -> int:
    """Winners of left against right, followed by the entries that had no opponent."""
    size = len(left)
    first = _select(builder, node, left)
    second = _select(builder, node, right)
    ahead = builder.add(Relu(size), builder.add(Sum(size, (-sign, sign)), first, second))
    winners = builder.add(Sum(size, (1.0, sign)), first, ahead)
    if not carried:
        return winners
    return builder.add(Concat(size + len(carried)), winners, _select(builder, node, carried))


def _select(builder: GraphBuilder, node: int, index: list[int]) -> int:
    return builder.add(Select(len(index), np.asarray(index, np.int64)), node)
