"""Checks a counterexample in exact arithmetic: the point lies in the input set and satisfies the condition."""

from __future__ import annotations

import re
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio_check import curves
from verifolio_check.integers import Floats, Invalid, Linear, Unreadable
from verifolio_check.network import Network, Node
from verifolio_check.vnnlib import Region, Row, number

VALUE = re.compile(r"\(\s*(X_\d{1,9})\s+([^\s()]+)\s*\)")
Objects = NDArray[Any]  # of Python's integers, which have as many bits as they need
Values = tuple[Objects, Objects, int]  # ends of intervals times a denominator; mostly both are the same


def check_witness(network: Network, regions: list[Region], text: str) -> None:
    """Returns if the point `((X_0 value) ...)` is a counterexample; outputs that it states are not read."""
    stated, names = VALUE.findall(text), [f"X_{i}" for i in range(network.nodes[0].size)]
    found = dict(stated)
    if set(found) != set(names) or len(stated) != len(names):
        raise Unreadable(f"witness: expected one value for each of X_0 to {names[-1]}")
    x = [number(found[name]) for name in names]
    low, high = outputs(network, x)
    inside = [r for r in regions if all(a <= v <= b for a, v, b in zip(r.lower, x, r.upper, strict=True))]
    if not inside:
        raise Invalid("the point is not in the input set")
    if not any(all(holds(row, x, low, high) for row in rows) for r in inside for rows in r.disjuncts):
        raise Invalid("the point does not satisfy the condition in exact arithmetic")


def holds(row: Row, x: list[Fraction], low: list[Fraction], high: list[Fraction]) -> bool:
    worst = sum((c * (high if c > 0 else low)[i] for i, c in row.outputs), Fraction(0))
    worst += sum(c * x[i] for i, c in row.inputs)
    return worst < row.limit or (worst == row.limit and not row.strict)


def outputs(network: Network, x: list[Fraction]) -> tuple[list[Fraction], list[Fraction]]:
    """Intervals of the outputs at a point; single values where the network has ReLUs and exact weights alone."""
    unit = lcm(*(v.denominator for v in x))
    start = np.array([int(v * unit) for v in x], object)
    held: list[Values] = [(start, start, unit)]
    for node in network.nodes[1:]:
        held.append(curve(node, *held[node.parent]) if node.function else affine(node, held))
    *ends, unit = held[network.output]
    low, high = ([Fraction(v, unit) for v in end.tolist()] for end in ends)
    return low, high


def curve(node: Node, low: Objects, high: Objects, unit: int) -> Values:
    if node.function == curves.RELU:
        return np.maximum(low, 0), np.maximum(high, 0), unit
    far = 1 << curves.BITS + 8  # beyond 2^8 a sigmoid is 0 or 1 for this purpose
    ends = (low << curves.BITS) // unit, -((-high << curves.BITS) // unit)
    start, end = (np.clip(e, -far, far).astype(np.int64) for e in ends)
    below, above = curves.image(node.function, start, end, curves.BITS)
    return below.astype(object), above.astype(object), 1 << curves.BITS


def affine(node: Node, held: list[Values]) -> Values:
    parts = [image(linear, *held[parent]) for parent, linear in node.terms]
    parts += [] if node.bias is None else [(*whole(node.bias)[0], whole(node.bias)[1])]
    unit = lcm(*(part[2] for part in parts))
    low, high = (sum(part[k] * (unit // part[2]) for part in parts) for k in (0, 1))
    return np.asarray(low, object), np.asarray(high, object), unit


def image(linear: Linear, low: Objects, high: Objects, unit: int) -> Values:
    """A linear map of intervals: exact where the weights are and the intervals are points."""
    (weight, top), finer = whole(linear.ends)

    def apply(v: Objects, w: Objects) -> Objects:
        return np.asarray((np.append(v, 0)[linear.index] @ w).swapaxes(1, 2).ravel())

    if (low == high).all():
        ends = (apply(low, weight),) * 2
    else:
        up, down = np.maximum(weight, 0), np.minimum(weight, 0)
        ends = apply(low, up) + apply(high, down), apply(high, up) + apply(low, down)
    if (weight != top).any():  # weights may be more by that
        spread = apply(np.maximum(abs(low), abs(high)), top - weight)
        ends = ends[0] - spread, ends[1] + spread
    return ends[0], ends[1], unit * finer


def whole(ends: Floats) -> tuple[Objects, int]:
    """Doubles as integers over a power of two, exactly."""
    mantissa, power = np.frexp(ends)
    finest = max(0, int((53 - power[mantissa != 0]).max(initial=0)))
    shifts = np.maximum(power + finest - 53, 0).astype(object)
    return np.ldexp(mantissa, 53).astype(np.int64).astype(object) << shifts, 1 << finest
