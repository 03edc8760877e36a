"""A rigorous value of a graph at one point: a float64 value and a bound on its distance to the exact one.

Running error analysis: with gamma_n = n u / (1 - n u), a sum of n products computed in any order differs
from the exact one by at most gamma_n times the sum of absolute values (Higham 2002, section 3.1).
"""

from __future__ import annotations

import math

import numpy as np

from verifolio.graph.graph import Graph, Node
from verifolio.graph.matrix import conv_matrix, linear_part, offset
from verifolio.graph.ops import (
    Affine,
    Array,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Op,
    Product,
    Relu,
    Step,
    Whole,
)

UNIT = 2.0**-53  # half the distance from 1 to the next double: the largest relative rounding error
TINY = 1e-300  # above every error that underflow makes, and far below every value that matters
Enclosed = tuple[Array, Array]


def gamma(terms: int) -> float:
    """Relative error of a sum of `terms` products in float64, with room for the analysis's own rounding."""
    return 1.01 * (terms + 2) * UNIT / (1 - (terms + 2) * UNIT)


def enclose(graph: Graph, x: Array) -> Enclosed:
    """Value and error radius of the output at the float64 point `x`, which is taken as exact."""
    return enclose_all(graph, x)[graph.output]


def enclose_all(graph: Graph, x: Array) -> list[Enclosed]:
    """The same of every node."""
    known: list[Enclosed] = [(np.asarray(x, np.float64), np.zeros(len(x)))]
    with np.errstate(all="ignore"):  # an overflow becomes an infinite radius
        for node in graph.nodes[1:]:
            known.append(_admit_overflow(*_enclose_node(node, [known[p] for p in node.parents])))
    return known


def _admit_overflow(value: Array, radius: Array) -> Enclosed:
    """A radius that says so where the value or the radius left the range of numbers."""
    return value, np.where(np.isfinite(value) & np.isfinite(radius), radius, math.inf)


def _enclose_node(node: Node, inputs: list[Enclosed]) -> Enclosed:
    op = node.op
    if isinstance(op, Constant):
        return op.value, np.zeros(op.size) if op.error is None else op.error
    if isinstance(op, Relu):
        (v, e) = inputs[0]
        return np.maximum(v, 0), np.where(v + e <= 0, 0.0, e)
    if isinstance(op, Product):
        (a, da), (b, db) = inputs
        value = a * b
        return value, (np.abs(a) * db + np.abs(b) * da + da * db + np.abs(value) * UNIT) * (
            1 + 8 * UNIT
        ) + TINY
    if isinstance(op, Elementwise):
        return _enclose_function(op, *inputs[0])
    if isinstance(op, Step | Whole):
        return _enclose_step(op, *inputs[0])
    return _enclose_affine(op, inputs)


def _enclose_function(op: Elementwise, v: Array, e: Array) -> Enclosed:
    """Error = (largest slope on [v - e, v + e]) * e + the library's own error; slopes by sampling ends.

    The interval is tiny and the functions smooth, so twice the larger end slope plus a curvature reserve
    bounds the slope in between; points at the edge of a domain get an infinite radius.
    """
    import torch

    from verifolio.graph.functions import FUNCTIONS

    f = FUNCTIONS[op.function]
    low, high = torch.from_numpy(v - e), torch.from_numpy(v + e)
    value = f.value(torch.from_numpy(v), op.parameter).numpy()
    slope = np.maximum(
        np.abs(f.derivative(low, op.parameter).numpy()), np.abs(f.derivative(high, op.parameter).numpy())
    )
    own = (np.abs(value) + TINY) * (2 * f.ulps * UNIT)
    radius = np.where(e > 0, (2 * slope + e) * e + own, own)
    outside = ((v - e) <= f.domain[0]) | ((v + e) >= f.domain[1])
    return value, np.where(outside & (e > 0), math.inf, radius)


def _enclose_step(op: Step | Whole, v: Array, e: Array) -> Enclosed:
    """The value at v, and the largest difference to a value on [v - e, v + e]."""
    import torch

    from verifolio.graph.steps import RULES, Table

    middle, low, high = (torch.from_numpy(np.ascontiguousarray(t)) for t in (v, v - e, v + e))
    if isinstance(op, Whole):
        value, least, most = (RULES[op.rule](t) for t in (middle, low, high))
        outside = (low < op.limits[0]) | (high > op.limits[1])
        most = torch.where(outside, torch.full_like(most, torch.inf), most)
    else:
        table = Table(op, torch.float64)
        value, (least, most) = table.value(middle), table.range(low, high)
    return value.numpy(), torch.maximum(most - value, value - least).numpy()


def _enclose_affine(op: Op, inputs: list[Enclosed]) -> Enclosed:
    if isinstance(op, Dense):
        value, magnitude, error, terms = _dense_terms(op, *inputs[0])
    elif isinstance(op, Conv):
        value, magnitude, error, terms = _conv_terms(op, *inputs[0])
    else:
        value, magnitude, error, terms = _sparse_terms(op, inputs)
    error = error * (1 + gamma(terms)) + gamma(terms) * magnitude + TINY
    return value, error + (weight_slack(op, np.abs(inputs[0][0]) + inputs[0][1]) if inputs else 0.0)


Terms = tuple[Array, Array, Array, int]


def _sparse_terms(op: Op, inputs: list[Enclosed]) -> Terms:
    """Value, sum of absolute terms, propagated error, and how many terms a sum has."""
    matrices = linear_part(op, tuple(len(v) for v, _ in inputs))
    bias = offset(op)
    value, magnitude, error, terms = bias.copy(), np.abs(bias), np.zeros(op.size), 1
    for matrix, (v, e) in zip(matrices, inputs, strict=True):
        absolute = abs(matrix)
        value += matrix @ v
        magnitude = magnitude + absolute @ np.abs(v)
        error = error + absolute @ e
        terms += int(np.diff(matrix.indptr).max(initial=0))
    return value, magnitude, error, terms


def _dense_terms(op: Dense, v: Array, e: Array) -> Terms:
    absolute = np.abs(op.weight)
    magnitude = absolute @ np.abs(v) + np.abs(op.bias)
    return op.weight @ v + op.bias, magnitude, absolute @ e, len(v) + 1


def _conv_terms(op: Conv, v: Array, e: Array) -> Terms:
    import torch

    from verifolio.graph.module import convolve

    weight, bias = torch.from_numpy(op.weight), torch.from_numpy(op.bias)
    rows = torch.from_numpy(np.stack([np.abs(v), e]))
    value = convolve(op, torch.from_numpy(v)[None], weight, bias)[0].numpy()
    magnitude, error = convolve(op, rows, weight.abs(), None).numpy()
    return value, magnitude + np.abs(offset(op)), error, int(np.prod(op.weight.shape[1:])) * _fan(op) + 1


def _fan(op: Conv) -> int:
    """By how much more inputs an output of a transposed convolution may read than the kernel's shape says."""
    return op.weight.shape[0] if op.transposed else 1


def weight_slack(op: Op, magnitude: Array) -> Array:
    """How far the exact operator may lie from the stored one on inputs with |x| <= magnitude."""
    slack = np.zeros(op.size)
    if not isinstance(op, Affine):
        return slack
    weight_error, bias_error = getattr(op, "weight_error", None), getattr(op, "bias_error", None)
    if weight_error is not None:
        if isinstance(op, Conv):
            weight_error = conv_matrix(op, weight_error)
        elif weight_error.ndim == 1:
            slack = slack + weight_error * magnitude + (0.0 if bias_error is None else bias_error)
            widened: Array = slack * (1 + gamma(2))
            return widened
        slack = slack + weight_error @ magnitude
    if bias_error is not None:
        if isinstance(op, Conv):
            bias_error = np.repeat(bias_error, op.output_shape[1] * op.output_shape[2])
        slack = slack + bias_error
    return slack * (1 + gamma(len(magnitude)))
