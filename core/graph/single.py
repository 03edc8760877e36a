"""How far single precision may drift from exact arithmetic at every node of a graph, over boxes of inputs.

A running error analysis (Higham 2002, section 3.1): a sum of n products in single precision, in whatever order and
fused or not, differs from the exact one by at most gamma_n = n u / (1 - n u) times the sum of absolute values. Sums
of multiples of one power of two that stay below 2^23 of them are exact. A step's value is taken as it is: what
single precision computes and what exact arithmetic computes are compared for the same values of all steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from verifolio.graph.graph import Graph, Node
from verifolio.graph.matrix import offset
from verifolio.graph.module import convolve
from verifolio.graph.ops import (
    Affine,
    Array,
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Step,
    Sum,
    Whole,
)
from verifolio.graph.steps import RULES, Table

# the unit roundoff of float32, and its smallest positive number
UNIT, SMALLEST = 2.0**-24, 2.0**-149
LARGEST = 1e38  # beyond it single precision overflows
FOLDED = 16  # roundings of a weight that was folded, and of what is fused around a sum
EXACT = 2.0**23  # a sum below so many units is exact, also with another such term fused into it
FINE = 2.0**-60  # units below it are of no use
DOUBLE = 2.0**-52  # twice the unit roundoff of float64, in which the analysis itself is computed


@dataclass
class Span:
    """Of every entry, over each box: exact values lie in [low, high], those of single precision within `drift` of
    the exact ones (batch, size).

    `unit` (size): a power of two of which every exact value is a multiple; 0: not known. `bulk`: the sum of absolute
    values of the `terms` that were added up, which may be added up again in another order by a fused operator.
    """

    low: Array
    high: Array
    drift: Array
    unit: Array
    bulk: Array
    terms: int = 0

    @property
    def size(self) -> Array:
        """A bound on what single precision computes, in absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high)) + self.drift

    @property
    def reached(self) -> tuple[Array, Array]:
        """An interval that holds what single precision computes."""
        return self.low - self.drift, self.high + self.drift


def spans(graph: Graph, lower: Array, upper: Array, exact: bool = False) -> Iterator[Span]:
    """The span of every node in order; boxes are (batch, inputs). `exact`: of exact arithmetic alone."""
    known: list[Span] = []
    with np.errstate(all="ignore"):
        for i, node in enumerate(graph.nodes):
            inputs = [known[p] for p in node.parents]
            span = _of_input(lower, upper) if i == 0 else _admit(_of_node(node, inputs))
            if exact:
                span.drift = np.zeros_like(span.drift)
            known.append(span)
            yield span


def gamma(terms: int) -> float:
    """Relative error of a sum of `terms` products, and of what is folded into it or fused with it."""
    n = terms + FOLDED
    return n * UNIT / (1 - n * UNIT) if n * UNIT < 0.5 else math.inf


def grid(values: Array) -> Array:
    """The largest power of two that divides each number; infinity for zero."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    trailing = np.log2(np.maximum(whole & -whole, 1))
    return np.where(whole == 0, np.inf, 2.0 ** (exponent - 53.0 + trailing))


def _of_input(lower: Array, upper: Array) -> Span:
    fixed = (lower == upper).all(0)
    unit = np.where(fixed, grid(lower).min(0), 0.0)
    size = np.maximum(np.abs(lower), np.abs(upper))
    return Span(lower, upper, np.zeros_like(lower), unit, size)


def _admit(span: Span) -> Span:
    """Nothing is known where single precision may overflow, or where a number is none."""
    lost = ~(span.size < LARGEST)
    low, high, drift = (
        np.where(lost, v, s) for v, s in ((-np.inf, span.low), (np.inf, span.high), (np.inf, span.drift))
    )
    return Span(low, high, drift, span.unit, np.where(lost, np.inf, span.bulk), span.terms)


def _of_node(node: Node, inputs: list[Span]) -> Span:
    op = node.op
    if isinstance(op, Constant):
        return _of_constant(op)
    if isinstance(op, Relu):
        return _of_relu(inputs[0])
    if isinstance(op, Product):
        return _of_product(*inputs)
    if isinstance(op, Elementwise):
        return _of_function(op, inputs[0])
    if isinstance(op, Step | Whole):
        return _of_step(op, inputs[0])
    if isinstance(op, Select | Concat):
        return _moved(op, inputs)
    return _of_sum(op, inputs)


def _of_constant(op: Constant) -> Span:
    error = np.zeros(op.size) if op.error is None else op.error
    drift = error + (np.zeros(op.size) if op.single is None else op.single)
    unit = np.where(drift > 0, 0.0, grid(op.value))
    low, high = op.value - error, op.value + error
    return Span(low[None], high[None], drift[None], unit, np.abs(op.value)[None] + drift)


def _of_relu(x: Span) -> Span:
    drift = np.where(x.high + x.drift <= 0, 0.0, x.drift)
    low, high = np.maximum(x.low, 0), np.maximum(x.high, 0)
    return Span(low, high, drift, x.unit, np.maximum(np.abs(low), high) + drift)


def _of_product(a: Span, b: Span) -> Span:
    corners = np.stack(np.broadcast_arrays(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high))
    size = a.size * b.size
    slack = 4 * DOUBLE * size + SMALLEST
    unit = a.unit * b.unit
    exact = (a.drift == 0) & (b.drift == 0) & _exact(unit, size)
    drift = a.size * b.drift + b.size * a.drift + gamma(2) * size + SMALLEST
    drift = np.where(exact, 0.0, drift)
    return Span(corners.min(0) - slack, corners.max(0) + slack, drift, unit, size)


def _exact(unit: Array, size: Array) -> Array:
    return np.asarray((unit >= FINE) & (size <= EXACT * unit))


def _of_function(op: Elementwise, x: Span) -> Span:
    """Functions that IEEE arithmetic rounds correctly, and powers; nobody knows how others are approximated."""
    low, high = x.reached
    anything = np.full_like(low, np.inf)
    nothing = np.zeros(op.size)
    if op.function == "pow" and op.parameter == int(op.parameter) and op.parameter >= 1:
        return _of_power(int(op.parameter), x)
    if op.function == "reciprocal":
        near = np.minimum(np.abs(low), np.abs(high)) * (1 - 8 * DOUBLE)
        fine = (low > 0) | (high < 0)
        drift = np.where(fine, x.drift / near**2 * (1 + 8 * DOUBLE) + gamma(1) / near + SMALLEST, anything)
        ends = np.stack([1 / x.low, 1 / x.high])
        slack = 4 * DOUBLE / near
        least, most = ends.min(0) - slack, ends.max(0) + slack
        return Span(
            np.where(fine, least, -anything), np.where(fine, most, anything), drift, nothing, 1 / near + drift
        )
    return Span(-anything, anything, anything, nothing, anything)


def _of_power(p: int, x: Span) -> Span:
    size = x.size**p * (1 + 8 * p * DOUBLE)
    ends = np.stack([x.low**p, x.high**p])
    crosses = (x.low < 0) & (x.high > 0) & (p % 2 == 0)
    least = np.where(crosses, 0.0, ends.min(0))
    slack = 4 * p * DOUBLE * size + SMALLEST
    drift = p * x.size ** (p - 1) * x.drift * (1 + 8 * p * DOUBLE) + gamma(p) * size + p * SMALLEST
    return Span(least - slack, ends.max(0) + slack, drift, np.zeros(len(x.unit)), size)


def _of_step(op: Step | Whole, x: Span) -> Span:
    low, high = (torch.from_numpy(np.ascontiguousarray(end)) for end in x.reached)
    if isinstance(op, Whole):
        least, most = (RULES[op.rule](end).numpy() for end in (low, high))
        outside = (low.numpy() < op.limits[0]) | (high.numpy() > op.limits[1])
        least, most = np.where(outside, -np.inf, least), np.where(outside, np.inf, most)
        unit, drift = 1.0, 0.0  # whole numbers as single precision has them
    else:
        least, most = (end.numpy() for end in Table(op, torch.float64).range(low, high))
        levels = np.concatenate([op.levels, op.at])
        drift = float(np.abs(levels - levels.astype(np.float32)).max())
        unit = 0.0 if drift else float(grid(levels).min())
    size = np.maximum(np.abs(least), np.abs(most)) + drift
    return Span(least, most, np.full_like(least, drift), np.full(op.size, unit), size)


def _moved(op: Select | Concat, inputs: list[Span]) -> Span:
    parts = [[s.low, s.high, s.drift, s.bulk] for s in inputs]
    if isinstance(op, Select):
        hole = op.index < 0
        moved = [np.where(hole, 0.0, part[:, op.index]) for part in parts[0]]
        unit = np.where(hole, np.inf, inputs[0].unit[op.index])
    else:
        batch = max(len(s.low) for s in inputs)
        moved = [
            np.concatenate([np.broadcast_to(p[k], (batch, p[k].shape[1])) for p in parts], 1)
            for k in range(4)
        ]
        unit = np.concatenate([s.unit for s in inputs])
    low, high, drift, bulk = moved
    return Span(low, high, drift, unit, bulk, max(s.terms for s in inputs))


def _of_sum(op: Op, inputs: list[Span]) -> Span:
    """Affine maps and sums: intervals by centre and radius, and the error bound of their sums."""
    bias, fused = offset(op), isinstance(op, Scale | Sum)
    centres = [(s.low + s.high) / 2 for s in inputs]
    radii = [(s.high - s.low) / 2 + 2 * DOUBLE * s.size for s in inputs]
    centre, radius = linear(op, centres) + bias, linear(op, radii, absolute=True)
    terms = fan_in(op, len(inputs)) + (sum(s.terms for s in inputs) if fused else 0)
    bulk = linear(op, [s.bulk if fused else s.size for s in inputs], absolute=True) + np.abs(bias)
    slack = (terms + 8) * DOUBLE * bulk + SMALLEST + _stored_error(op, inputs)
    carried = linear(op, [s.drift for s in inputs], absolute=True)
    single = getattr(op, "bias_single", None)
    unit = _unit(op, inputs)
    exact = (carried == 0) & _exact(unit, bulk) & (single is None or single == 0)
    exact &= not getattr(op, "folded", False)
    drift = carried * (1 + gamma(terms)) + gamma(terms) * bulk + (terms + 1) * SMALLEST
    drift = np.where(exact, 0.0, drift + (0.0 if single is None else single))
    drift = np.where(_unrounded(op) & ~exact, carried + _underflow(op), drift)
    if not _precise(op):
        drift = np.full_like(drift, np.inf)
    low, high = _on_grid(unit, bulk, centre - radius - slack, centre + radius + slack)
    return Span(low, high, drift, unit, bulk, terms)


def _stored_error(op: Op, inputs: list[Span]) -> Array:
    """How far the stored weights may take a sum from the exact one."""
    weight, bias = getattr(op, "weight_error", None), getattr(op, "bias_error", None)
    total = np.zeros((1, op.size))
    if weight is not None:
        total = linear(replace(op, weight=weight), [s.size for s in inputs], absolute=True)  # type: ignore[call-arg]
    if bias is not None:
        total = total + offset(replace(op, bias=bias))  # type: ignore[call-arg]
    return total * (1 + 2.0**-20)


def _on_grid(unit: Array, bulk: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends moved inward to multiples of the unit, where doubles hold these exactly."""
    held = (unit >= FINE) & np.isfinite(unit) & (bulk < 2.0**50 * unit)
    step = np.where(held, unit, 1.0)
    return np.where(held, np.ceil(low / step) * step, low), np.where(held, np.floor(high / step) * step, high)


def _unrounded(op: Op) -> Array:
    """Which entries are only scaled by powers of two, which rounds nothing that does not underflow."""
    if isinstance(op, Scale):
        mantissa = np.frexp(np.abs(op.weight))[0]
        powers = (mantissa == 0.5) | (mantissa == 0)
        return np.asarray(powers & (op.bias == 0) & (not op.folded))
    return np.full(
        op.size, isinstance(op, Sum) and len(op.coefficients) == 1 and abs(op.coefficients[0]) == 1
    )


def _underflow(op: Op) -> Array | float:
    """What is lost where a number is scaled below the smallest one."""
    return np.where(np.abs(op.weight) < 1, SMALLEST, 0.0) if isinstance(op, Scale) else 0.0


def _precise(op: Op) -> bool:
    """Whether the stored weights are as close to the exact ones as the error bound supposes."""
    for name in ("weight", "bias"):
        error, number = getattr(op, f"{name}_error", None), getattr(op, name, None)
        if error is None or number is None:
            continue
        if isinstance(op, Sparse) and name == "weight":
            error, number = error.data, number.data
        single = getattr(op, f"{name}_single", None)
        room = 2.0**-30 * np.abs(number) + (0.0 if single is None else single)
        if error.shape != number.shape or bool((error > room).any()):
            return False
    return True


def _unit(op: Op, inputs: list[Span]) -> Array:
    """Of what every sum is a multiple."""
    if isinstance(op, Sum):
        parts = [s.unit * grid(np.asarray(c)) for s, c in zip(inputs, op.coefficients, strict=True)]
        return np.asarray(np.minimum.reduce(parts))
    if isinstance(op, Affine) and any(
        getattr(op, f, None) is not None for f in ("weight_error", "bias_error")
    ):
        return np.zeros(op.size)
    if isinstance(op, Scale):
        first = np.where(op.weight == 0, np.inf, inputs[0].unit * grid(op.weight))
        return np.minimum(first, grid(op.bias))
    weight = op.weight.data if isinstance(op, Sparse) else getattr(op, "weight", np.ones(1))
    least = float(grid(np.asarray(weight)).min(initial=np.inf)) * float(inputs[0].unit.min(initial=np.inf))
    return np.full(op.size, min(least, float(grid(offset(op)).min(initial=np.inf))))


def linear(op: Op, inputs: list[Array], absolute: bool = False) -> Array:
    """The linear part of an affine operator on (batch, size) values; or that of its absolute values."""
    size = np.abs if absolute else np.asarray
    x = inputs[0]
    if isinstance(op, Dense):
        return np.asarray(x @ size(op.weight).T)
    if isinstance(op, Conv):
        out = convolve(op, torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(size(op.weight)), None)
        return np.asarray(out.numpy())
    if isinstance(op, Scale):
        return np.asarray(x * size(op.weight))
    if isinstance(op, Sparse):
        return np.asarray(((abs(op.weight) if absolute else op.weight) @ x.T).T)
    if isinstance(op, Sum):
        return sum((abs(c) if absolute else c) * v for c, v in zip(op.coefficients, inputs, strict=True))  # type: ignore[return-value]
    raise TypeError(f"{type(op).__name__} is not a sum")


def fan_in(op: Op, parents: int) -> int:
    """How many terms a sum has at most, with its bias."""
    if isinstance(op, Dense):
        return int(op.weight.shape[1]) + 1
    if isinstance(op, Sparse):
        return int(np.diff(op.weight.indptr).max(initial=0)) + 1
    if isinstance(op, Conv):
        return int(np.prod(op.weight.shape[1:])) * (op.weight.shape[0] if op.transposed else 1) + 1
    return parents + 1
