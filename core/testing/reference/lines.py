"""Lines that enclose a nonlinear operator: the slopes are given, the intercepts are found by looking everywhere.

Any slope has a best intercept below f, the minimum of f(x) - slope x over the interval. For ReLU and products it is
attained at an end, a kink or a corner. For a smooth f a fine grid is searched: with |f''| <= M, a function differs
from its chord over a cell of width h by at most M h^2 / 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import special

from verifolio.graph import Elementwise, Op, Product, Relu
from verifolio.graph.ops import Array

Interval = tuple[Array, Array]
MONOTONE = ("sigmoid", "tanh", "erf", "softplus", "exp", "log", "sqrt", "reciprocal")
CELLS = 512  # the curvature between grid points is bounded, so that the error falls with their square
ROUNDING = 1e-13  # relative, of a few operations and a library function in float64; its unit is 1.1e-16


@dataclass(frozen=True)
class Lines:
    """sum_k below[k] x_k + floor <= f(x) <= sum_k above[k] x_k + ceiling.

    `doubt`: the best intercepts are at most this much closer to f.
    """

    below: tuple[Array, ...]
    above: tuple[Array, ...]
    floor: Array
    ceiling: Array
    doubt: Array


def enclosing_lines(
    op: Op, inputs: Sequence[Interval], below: Sequence[Array], above: Sequence[Array]
) -> Lines:
    """The best lines of these slopes on these intervals."""
    floor, doubt = _least(op, inputs, below, 1.0)
    minus_ceiling, more = _least(op, inputs, above, -1.0)
    return Lines(tuple(below), tuple(above), floor, -minus_ceiling, np.maximum(doubt, more))


def value_interval(op: Op, inputs: Sequence[Interval], inner: bool = False) -> Interval:
    """The values of the operator, from the intercepts of level lines; `inner`: values that it surely takes."""
    if isinstance(op, Relu):
        return np.maximum(inputs[0][0], 0), np.maximum(inputs[0][1], 0)
    if isinstance(op, Elementwise) and op.function in MONOTONE:
        return _between_ends(op, inputs[0], inner)
    level = [np.zeros_like(low) for low, _ in inputs]
    lines = enclosing_lines(op, inputs, level, level)
    doubt = lines.doubt if inner else np.zeros_like(lines.doubt)
    return lines.floor + doubt, lines.ceiling - doubt


def _between_ends(op: Elementwise, interval: Interval, inner: bool) -> Interval:
    """The values of a monotone function lie between those at the ends."""
    ends = np.stack([evaluate(op, x) for x in interval])
    slack = (-1 if inner else 1) * (ROUNDING * np.abs(ends).max(0) + 1e-300)
    defined = _defined(op, *interval)
    low, high = ends.min(0) - slack, ends.max(0) + slack
    return np.where(defined, low, -math.inf), np.where(defined, high, math.inf)


def default_slopes(op: Op, inputs: Sequence[Interval]) -> tuple[list[Array], list[Array]]:
    """Slopes below and above: CROWN's choice for ReLU, the middle ones for products, chords for others."""
    low, high = inputs[0]
    if isinstance(op, Relu):
        unstable = (low < 0) & (high > 0)
        stable = (low >= 0).astype(float)
        chord = np.divide(high, high - low, out=np.ones_like(low), where=unstable)
        below = np.where(unstable, (high > -low).astype(float), stable)
        return [below], [np.where(unstable, chord, stable)]
    if isinstance(op, Product):
        slopes = [(inputs[1][0] + inputs[1][1]) / 2, (low + high) / 2]
        return slopes, slopes
    ends = [evaluate(op, x) for x in (low, high)]
    flat = high - low <= 1e-9 * (1 + np.abs(low))
    chord = np.divide(ends[1] - ends[0], high - low, out=np.zeros_like(low), where=~flat)
    chord = np.where(np.isfinite(chord), chord, 0.0)
    return [chord], [chord]


def _least(op: Op, inputs: Sequence[Interval], slopes: Sequence[Array], sign: float) -> tuple[Array, Array]:
    """A lower bound of sign (f - slopes . x) on the intervals, and how far below the minimum it may lie."""
    points, gap = _points(op, inputs)
    value = evaluate(op, *points)
    terms = [s * x for s, x in zip(slopes, points, strict=True)]
    with np.errstate(invalid="ignore"):
        least = (sign * (value - sum(terms))).min(0)
        rounding = ROUNDING * (np.abs(value) + sum(np.abs(t) for t in terms)).max(0) + 1e-300
        found = least - gap - rounding
    return np.where(np.isnan(found), -math.inf, found), gap + 2 * rounding


def _points(op: Op, inputs: Sequence[Interval]) -> tuple[tuple[Array, ...], Array]:
    """Where the extreme values of f minus a line may lie (points, size), and by how much they may be missed."""
    low, high = inputs[0]
    none = np.zeros_like(low)
    if isinstance(op, Relu):
        return (np.stack([low, high, np.clip(none, low, high)]),), none
    if isinstance(op, Product):
        corners = list(product(inputs[0], inputs[1]))
        return (np.stack([x for x, _ in corners]), np.stack([y for _, y in corners])), none
    if not isinstance(op, Elementwise):
        raise TypeError(f"{type(op).__name__} is not nonlinear")
    grid = np.stack([*(low + (high - low) * (k / CELLS) for k in range(CELLS)), high])
    with np.errstate(all="ignore"):
        gap = CURVATURE[op.function](low, high, op.parameter) * ((high - low) / CELLS) ** 2 / 8
    return (grid,), np.where(_defined(op, low, high), gap, math.inf)


def _defined(op: Elementwise, low: Array, high: Array) -> NDArray[np.bool_]:
    if op.function in ("log", "reciprocal"):
        return low > 0
    if op.function == "sqrt":
        return low >= 0
    return np.isfinite(low) & np.isfinite(high)


def evaluate(op: Op, *inputs: Array) -> Array:
    """The nonlinear operator itself."""
    if isinstance(op, Relu):
        return np.maximum(inputs[0], 0)
    if isinstance(op, Product):
        return inputs[0] * inputs[1]
    if not isinstance(op, Elementwise):
        raise TypeError(f"{type(op).__name__} is not nonlinear")
    with np.errstate(all="ignore"):
        return np.asarray(VALUE[op.function](inputs[0], op.parameter))


VALUE: dict[str, Callable[[Array, float], Array]] = {
    "sigmoid": lambda x, p: special.expit(x),
    "tanh": lambda x, p: np.tanh(x),
    "exp": lambda x, p: np.exp(x),
    "log": lambda x, p: np.log(x),
    "sqrt": lambda x, p: np.sqrt(x),
    "reciprocal": lambda x, p: 1 / x,
    "pow": lambda x, p: x**p,
    "sin": lambda x, p: np.sin(x),
    "cos": lambda x, p: np.cos(x),
    "erf": lambda x, p: special.erf(x),
    "softplus": lambda x, p: np.logaddexp(x, 0.0),
}


def _one(bound: float) -> Callable[[Array, Array, float], Array]:
    return lambda low, high, p: np.full_like(low, bound)


# the largest |f''| on an interval; constants are the largest anywhere, rounded up
CURVATURE: dict[str, Callable[[Array, Array, float], Array]] = {
    "sigmoid": _one(0.0963),
    "tanh": _one(0.77),
    "erf": _one(0.968),
    "softplus": _one(0.25),
    "sin": _one(1.0),
    "cos": _one(1.0),
    "exp": lambda low, high, p: np.exp(high),
    "log": lambda low, high, p: 1 / low**2,
    "sqrt": lambda low, high, p: 0.25 / low**1.5,
    "reciprocal": lambda low, high, p: 2 / low**3,
    "pow": lambda low, high, p: abs(p * (p - 1)) * np.maximum(np.abs(low), np.abs(high)) ** (p - 2),
}
