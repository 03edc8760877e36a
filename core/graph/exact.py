"""The exact value of a small piecewise polynomial graph at a point, in integer arithmetic.

Every double is an integer times a power of two, so a graph of affine maps, ReLUs and products maps such points to
such points: all entries of a vector share one exponent, and nothing is ever rounded.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from math import floor, trunc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Concat, Constant, Elementwise, Graph, Op, Product, Relu, Select, Step, Sum, Whole
from verifolio.graph.graph import is_exact
from verifolio.graph.matrix import linear_part, offset

Array = NDArray[np.float64]
Integers = NDArray[np.object_]
Dyadic = tuple[Integers, int]  # integers and the exponent e: value = integer * 2**-e
MAX_PRODUCTS = 400_000  # of long integers, one by one in Python: a limit on time
MAX_BENT_PRODUCTS = 8  # nodes that multiply variables: each may double the digits
MAX_POWER = 16  # each power multiplies the number of digits


def evaluable(graph: Graph) -> bool:
    """Whether the graph is piecewise polynomial, small, and stored without error terms."""
    products = [n.op for n in graph.nodes if isinstance(n.op, Product) or _is_power(n.op)]
    bent = len(graph.relus) + len(graph.steps) + len(products)
    if bent < len(graph.nonlinear) or not all(is_exact(node.op) for node in graph.nodes):
        return False
    if len(products) > MAX_BENT_PRODUCTS:
        return False
    return sum(_products(graph, i) for i in range(1, len(graph.nodes))) <= MAX_PRODUCTS


def evaluate(graph: Graph, x: Array) -> list[Fraction]:
    """The output at x, exactly; the graph must be `evaluable`."""
    values: list[Dyadic] = []
    for i, node in enumerate(graph.nodes):
        start = i == 0
        values.append(
            _integers(np.asarray(x, np.float64)) if start else _apply(node.op, values, node.parents)
        )
    integers, exponent = values[graph.output]
    return [Fraction(int(v), 1 << exponent) for v in integers]


def _is_power(op: Op) -> bool:
    return isinstance(op, Elementwise) and op.function == "pow" and op.parameter in range(2, MAX_POWER + 1)


def _products(graph: Graph, i: int) -> int:
    """An upper estimate of the multiplications node i costs."""
    op = graph.nodes[i].op
    if isinstance(op, (Relu, Select, Sum, Concat, Constant, Step, Whole)):
        return op.size
    weight: Any = getattr(op, "weight", None)
    if weight is None:
        return op.size
    if hasattr(op, "output_shape"):
        return int(op.size * np.prod(weight.shape[1:]))
    return int(weight.size)


def _integers(values: Array) -> Dyadic:
    """Doubles as integers over one power of two."""
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    powers = exponent.astype(np.int64) - 53
    lowest = int(powers[whole != 0].min(initial=0))
    shifted = [int(w) << int(p - lowest) if w else 0 for w, p in zip(whole, powers, strict=True)]
    return np.array(shifted, dtype=object), -lowest


def _apply(op: Op, values: list[Dyadic], parents: tuple[int, ...]) -> Dyadic:
    inputs = [values[p] for p in parents]
    if isinstance(op, Constant):
        return _integers(op.value)
    if isinstance(op, Relu):
        integers, exponent = inputs[0]
        return np.array([max(v, 0) for v in integers], dtype=object), exponent
    if isinstance(op, Step | Whole):
        integers, exponent = inputs[0]
        return _integers(np.array([jump(op, Fraction(int(v), 1 << exponent)) for v in integers]))
    if isinstance(op, Product):
        (left, one), (right, other) = inputs
        return left * right, one + other
    if isinstance(op, Elementwise):
        integers, exponent = inputs[0]
        power = int(op.parameter)
        return np.array([int(v) ** power for v in integers], dtype=object), exponent * power
    total = _integers(offset(op))
    for matrix, (integers, exponent) in zip(
        linear_part(op, tuple(len(v) for v, _ in inputs)), inputs, strict=True
    ):
        total = _add(total, _multiply(matrix, integers, exponent))
    return total


def jump(op: Step | Whole, x: Fraction) -> float:
    """The value of a step function or a rounding at x."""
    if isinstance(op, Whole):
        rounded = floor(x) if op.rule == "floor" else trunc(x) if op.rule == "trunc" else round(x)
        return float(rounded)
    points = [Fraction(float(b)) for b in op.breakpoints]
    below = bisect_left(points, x)
    hit = below < len(points) and points[below] == x
    return float(op.at[below] if hit else op.levels[below])


def _multiply(matrix: Any, integers: Integers, exponent: int) -> Dyadic:
    weights, weight_exponent = _integers(matrix.data)
    products = weights * integers[matrix.indices]
    sums = [sum(products[a:b]) for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]
    return np.array(sums, dtype=object), weight_exponent + exponent


def _add(a: Dyadic, b: Dyadic) -> Dyadic:
    exponent = max(a[1], b[1])
    left = a[0] * (1 << (exponent - a[1]))
    right = b[0] * (1 << (exponent - b[1]))
    return left + right, exponent
