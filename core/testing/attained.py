"""What a network attains at a point: an interval for every node, in integer arithmetic, for tests alone.

This judges other code, so it shares as little with it as it can: affine maps, ReLU and products are computed in
integers times a power of two, smooth functions by mpmath at both ends of an interval. Nothing is estimated; a
network without smooth functions and without rounded constants gets exact values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Constant, Conv, Elementwise, Graph, Op, Product, Relu, Step, Whole
from verifolio.graph.exact import jump
from verifolio.graph.matrix import conv_matrix, linear_part, offset
from verifolio.vnnlib.rows import LinearRow

Array = NDArray[np.float64]
Integers = NDArray[np.object_]
BITS = 256  # what mpmath computes with
KEPT = 4096  # bits behind the point beyond which intervals are widened: far more than any exact sum needs
SLACK = 16  # units in mpmath's last place that its functions may be off; they promise about one


@dataclass(frozen=True, eq=False)
class Intervals:
    """A vector of intervals: `low` and `high` are integers, the numbers are those times 2**-exponent."""

    low: Integers
    high: Integers
    exponent: int

    @cached_property
    def lower(self) -> list[Fraction]:
        return [Fraction(int(v), 1 << self.exponent) for v in self.low]

    @cached_property
    def upper(self) -> list[Fraction]:
        return self.lower if self.exact else [Fraction(int(v), 1 << self.exponent) for v in self.high]

    @cached_property
    def nearest(self) -> Array:
        """The upper ends as doubles, where a rough idea is enough."""
        return np.array([_double(v) for v in self.upper])

    @cached_property
    def exact(self) -> bool:
        return bool((self.low == self.high).all())


class Undefined(ArithmeticError):
    """A function is not defined on some number of the interval that reaches it."""


def attained(graph: Graph, x: Array) -> list[Intervals]:
    """The intervals that hold every node's value at the double point x."""
    values = [_exactly(np.asarray(x, np.float64))]
    for node in graph.nodes[1:]:
        values.append(_shortened(_apply(node.op, [values[p] for p in node.parents])))
    return values


def row_value(row: LinearRow, x: Array, outputs: Intervals) -> tuple[Fraction, Fraction]:
    """The interval of the left-hand side of a row over inputs and outputs."""
    low, high = outputs.lower, outputs.upper
    least = most = Fraction(0)
    for column, coefficient in row.terms:
        if column < len(x):
            first = second = Fraction(float(x[column])) * coefficient
        else:
            first, second = (ends[column - len(x)] * coefficient for ends in (low, high))
        least, most = least + min(first, second), most + max(first, second)
    return least, most


def double_above(value: Fraction) -> float:
    """The least double that is not below a number."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _double(value: Fraction) -> float:
    """About the number; infinite beyond the doubles."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _exactly(values: Array) -> Intervals:
    whole, exponent = _integers(values)
    return Intervals(whole, whole, exponent)


def _integers(values: Array) -> tuple[Integers, int]:
    """Doubles as integers over one power of two."""
    mantissa, power = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    power = power.astype(np.int64) - 53
    least = int(power[mantissa != 0].min(initial=0))
    return whole * np.left_shift(1, np.where(mantissa != 0, power - least, 0).astype(object)), -least


def _shortened(value: Intervals) -> Intervals:
    surplus = value.exponent - KEPT
    if surplus <= 0:
        return value
    return Intervals(value.low >> surplus, -((-value.high) >> surplus), KEPT)


def _apply(op: Op, parents: list[Intervals]) -> Intervals:
    if isinstance(op, Constant):
        return _widened(_exactly(op.value), op.error)
    if isinstance(op, Relu):
        (x,) = parents
        return Intervals(np.maximum(x.low, 0), np.maximum(x.high, 0), x.exponent)
    if isinstance(op, Product):
        return _product(*parents)
    if isinstance(op, Elementwise):
        return _function(op, parents[0])
    if isinstance(op, Step | Whole):
        return _jumps(op, parents[0])
    return _affine(op, parents)


def _jumps(op: Step | Whole, x: Intervals) -> Intervals:
    """The least and the greatest value of a step on an interval: at its ends and on both sides of what is inside."""
    lows, highs = [], []
    for least, most in zip(x.lower, x.upper, strict=True):
        if isinstance(op, Whole):
            values = [jump(op, least), jump(op, most)]
        else:
            inside = [k for k, b in enumerate(op.breakpoints) if least <= Fraction(float(b)) <= most]
            beside = [float(v) for k in inside for v in (op.levels[k], op.levels[k + 1])]
            # a jump at an end is only met from inside
            beside = beside if least < most else []
            values = [jump(op, least), jump(op, most), *(float(op.at[k]) for k in inside), *beside]
        lows.append(min(values))
        highs.append(max(values))
    low, high = _exactly(np.array(lows)), _exactly(np.array(highs))
    return _add(low, _span(low, high))


def _span(low: Intervals, high: Intervals) -> Intervals:
    """[0, high - low]."""
    width = _add(high, Intervals(-low.high, -low.low, low.exponent))
    return Intervals(width.low * 0, width.high, width.exponent)


def _widened(value: Intervals, error: Array | None) -> Intervals:
    if error is None:
        return value
    radius = _exactly(error)
    return _add(value, Intervals(-radius.high, radius.high, radius.exponent))


def _add(a: Intervals, b: Intervals) -> Intervals:
    exponent = max(a.exponent, b.exponent)
    left, right = 1 << (exponent - a.exponent), 1 << (exponent - b.exponent)
    return Intervals(a.low * left + b.low * right, a.high * left + b.high * right, exponent)


def _product(a: Intervals, b: Intervals) -> Intervals:
    ends = np.stack([a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high])
    return Intervals(ends.min(0), ends.max(0), a.exponent + b.exponent)


def _affine(op: Op, parents: list[Intervals]) -> Intervals:
    total = _exactly(offset(op))
    matrices = linear_part(op, tuple(len(p.low) for p in parents))
    for matrix, value in zip(matrices, parents, strict=True):
        total = _add(total, _times(matrix, value))
    return _with_errors(op, total, parents)


def _times(matrix: Any, value: Intervals) -> Intervals:
    """A sparse matrix times a vector of intervals: a negative weight reads the other end."""
    weights, exponent = _integers(matrix.data)
    ends = []
    for first, second in ((value.low, value.high), (value.high, value.low)):
        terms = weights * np.where(matrix.data >= 0, first[matrix.indices], second[matrix.indices])
        sums = [sum(terms[a:b]) for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]
        ends.append(np.array(sums, dtype=object))
        if value.exact:
            ends.append(ends[0])
            break
    return Intervals(ends[0], ends[1], exponent + value.exponent)


def _with_errors(op: Op, total: Intervals, parents: list[Intervals]) -> Intervals:
    """Widened by what the operator says its stored numbers may be off."""
    bias, weight = getattr(op, "bias_error", None), getattr(op, "weight_error", None)
    if bias is not None:
        wide = np.repeat(bias, op.size // len(bias)) if isinstance(op, Conv) else bias
        total = _widened(total, wide)
    if weight is None:
        return total
    from scipy import sparse

    x = parents[0]
    matrix: Any = conv_matrix(op, weight) if isinstance(op, Conv) else weight
    matrix = sparse.diags_array(matrix).tocsr() if matrix.ndim == 1 else sparse.csr_array(matrix)
    largest = np.maximum(abs(x.low), abs(x.high))
    reach = _times(matrix, Intervals(largest, largest, x.exponent))
    return _add(total, Intervals(-reach.high, reach.high, reach.exponent))


def _function(op: Elementwise, x: Intervals) -> Intervals:
    if op.function == "pow":
        return _power(x, round(op.parameter))
    with mpmath.workprec(BITS):
        pairs = [_between(op.function, a, b, x.exponent) for a, b in zip(x.low, x.high, strict=True)]
    exponent = max((-_exponent_of(v) for pair in pairs for v in pair), default=0)
    exponent = max(exponent, 0)
    low = np.array([_scaled(a, exponent) for a, _ in pairs], dtype=object)
    return Intervals(low, np.array([_scaled(b, exponent) for _, b in pairs], dtype=object), exponent)


def _power(x: Intervals, power: int) -> Intervals:
    ends = np.stack([x.low**power, x.high**power])
    low, high = ends.min(0), ends.max(0)
    if power % 2 == 0:
        low = np.where((x.low <= 0) & (x.high >= 0), 0, low)
    return Intervals(low, high, x.exponent * power)


def _between(name: str, low: int, high: int, exponent: int) -> tuple[Any, Any]:
    """The least and largest value of a function between two numbers, rounded outward."""
    if name in ("sin", "cos"):
        return _wave(name, low, high, exponent)
    if name in ("log", "sqrt", "reciprocal") and low <= 0:
        raise Undefined(f"{name} of a number that may not be positive")
    values = [_monotone(name, mpmath.ldexp(mpmath.mpf(int(end)), -exponent)) for end in {low, high}]
    unit = mpmath.ldexp(SLACK, -BITS)
    return min(v - abs(v) * unit for v in values), max(v + abs(v) * unit for v in values)


def _monotone(name: str, v: Any) -> Any:
    """A monotone function at a number."""
    if name == "sigmoid":
        return 1 / (1 + mpmath.exp(-v))
    if name == "softplus":
        return mpmath.log1p(mpmath.exp(v))
    if name == "reciprocal":
        return 1 / v
    return getattr(mpmath, name)(v)  # tanh, exp, log, sqrt, erf


def _wave(name: str, low: int, high: int, exponent: int) -> tuple[Any, Any]:
    """Sine and cosine turn; their slope is at most one, so the middle and the half width tell enough."""
    middle = mpmath.ldexp(mpmath.mpf(int(low + high)), -exponent - 1)
    reach = mpmath.ldexp(mpmath.mpf(int(high - low)), -exponent) + mpmath.ldexp(SLACK, -BITS)
    value = getattr(mpmath, name)(middle)
    return value - reach, value + reach


def _exponent_of(value: Any) -> int:
    return int(value.man_exp[1]) if value else 0


def _scaled(value: Any, exponent: int) -> int:
    if not mpmath.isfinite(value):
        raise Undefined("a function without a finite value")
    mantissa, power = value.man_exp  # without the sign
    return (int(mantissa) << int(power + exponent)) * (-1 if value < 0 else 1)
