"""Counterexamples: a point of the input set whose exact outputs satisfy the condition."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from verifolio_check.integers import Floats, Invalid, Unreadable
from verifolio_check.linear import Linear, Product, Scale, Select
from verifolio_check.network import Network
from verifolio_check.vnnlib import Property, Row, number, parse, variable

MOST_PRODUCTS = 1 << 28


def check(network: Network, prop: Property, text: str) -> None:
    """Returns if the point that the text states is a counterexample."""
    x = point(text, prop.inputs)
    y = evaluate(network, x)
    for region in prop.regions:
        inside = all(a <= v <= b for a, v, b in zip(region.lower, x, region.upper, strict=True))
        if inside and any(all(holds(row, x, y) for row in rows) for rows in region.disjuncts):
            return
    raise Invalid("the point is outside the input set, or its exact outputs do not satisfy the condition")


def point(text: str, inputs: int) -> list[Fraction]:
    """The inputs of VNN-COMP's format, ((X_0 0.5) ... (Y_0 1.0) ...); the outputs are computed anew."""
    found: dict[int, Fraction] = {}
    for form in parse(text):
        for pair in form if isinstance(form, list) else []:
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
                raise Unreadable("counterexample: expected pairs (X_i value)")
            kind, place = variable(str(pair[0]))
            if kind == "X":
                found[place] = number(str(pair[1]))
    if sorted(found) != list(range(inputs)):
        raise Unreadable(f"counterexample: expected the {inputs} inputs")
    return [found[i] for i in range(inputs)]


def holds(row: Row, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
    total = sum((c * x[i] for i, c in row.inputs), Fraction(0)) + sum(
        (c * y[i] for i, c in row.outputs), Fraction(0)
    )
    return total < row.limit or (total == row.limit and not row.strict)


def evaluate(network: Network, x: Sequence[Fraction]) -> list[Fraction]:
    """The exact outputs; integers of any size over common denominators."""
    below = lcm(*(v.denominator for v in x))
    values: list[tuple[Any, int]] = [(np.array([int(v * below) for v in x], object), 0)]  # integers, exponent
    for node in network.nodes[1:]:
        if node.parent >= 0:
            inner, exponent = values[node.parent]
            values.append((np.maximum(inner, 0), exponent))
            continue
        parts = [apply(linear, *values[p]) for p, linear in node.terms]
        if node.low is not None:
            bias, exponent = whole(node.low, node.high)
            parts.append((bias * below, exponent))
        top = max(e for _, e in parts)
        values.append((sum(v * (1 << (top - e)) for v, e in parts), top))
    out, exponent = values[network.output]
    return [Fraction(int(v), below << exponent) for v in out]


def whole(low: Floats, high: Floats | None) -> tuple[Any, int]:
    """Exact constants as integers and an exponent."""
    if high is None or (low != high).any():
        raise Unreadable("network: a constant that is not dyadic; no exact value")
    pairs = [v.as_integer_ratio() for v in low.ravel().tolist()]
    exponent = max((d.bit_length() - 1 for _, d in pairs), default=0)
    return np.array([(n << exponent) // d for n, d in pairs], object).reshape(low.shape), exponent


def apply(linear: Linear, value: Any, exponent: int) -> tuple[Any, int]:
    if isinstance(linear, Select):
        return np.append(value, 0)[linear.index] * linear.sign, exponent
    if isinstance(linear, Scale):
        weight, more = whole(linear.low, linear.high)
        return value * weight, exponent + more
    if not isinstance(linear, Product) or linear.outputs * linear.entries > MOST_PRODUCTS:
        raise Unreadable("network: too large for an exact evaluation")
    weight, more = whole(linear.low, linear.high)
    parts = [linear.patches_of(value, g) @ weight[g] for g in range(linear.groups)]
    return np.concatenate([(p.T if linear.channels_first else p).ravel() for p in parts]), exponent + more
