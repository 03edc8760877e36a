"""How a random network uses operators that choose, count or quantise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verifolio.testing.draft import Draft

Layer = Callable[[Draft, str], str]


def extremal(op: str) -> Layer:
    """The place of the largest or smallest of a few, added to all."""

    def layer(d: Draft, x: str) -> str:
        place = d.add(op, d.dense(x, 5), axis=1, keepdims=1)
        return d.add("Add", d.flat(x), d.add("Cast", place, to=1))

    return layer


def scatter(d: Draft, x: str) -> str:
    """A nought written over one of a few neurons, which another layer points at."""
    place = d.add("ArgMax", d.dense(x, 4), axis=1, keepdims=1)
    at = d.add("Concat", d.constant([[0]], np.int64), place, axis=1)
    mask = d.add("ScatterND", d.constant(np.ones((1, 4))), at, d.constant([0.0]))
    return d.add("Mul", d.dense(x, 4), mask)


def _stored(d: Draft, *shape: int) -> str:
    return d.constant(d.rng.integers(-60, 60, shape), np.int8)


def _quantised(d: Draft, x: str, scale: float = 0.03125) -> tuple[str, str, str]:
    """A quantised tensor with its scale and zero point."""
    step, zero = d.constant(scale), d.constant(int(d.rng.integers(90, 160)), np.uint8)
    return d.add("QuantizeLinear", x, step, zero), step, zero


def quantize(d: Draft, x: str) -> str:
    value, step, zero = _quantised(d, x, float(d.rng.choice([0.03125, 0.05])))
    return d.add("DequantizeLinear", value, step, zero)


def _kernel(d: Draft, x: str) -> str:
    """Two windows that fit into an image."""
    channels, *extent = d.shapes[x][1:]
    return _stored(d, 2, channels, *(min(2, n) for n in extent))


def whole_product(op: str) -> Layer:
    """A product or a convolution of integers, back to floats."""

    def layer(d: Draft, x: str) -> str:
        conv = op == "ConvInteger"
        x = d.image(x) if conv else d.flat(x)
        value, _, zero = _quantised(d, x)
        weight = _kernel(d, x) if conv else _stored(d, d.size(x), 6)
        total = d.add(op, value, weight, zero, d.constant(0, np.int8))
        return d.add("Mul", d.add("Cast", total, to=1), d.constant(2.0**-9))

    return layer


def quantised_product(op: str) -> Layer:
    """A quantised product or convolution between a quantisation and its inverse."""

    def layer(d: Draft, x: str) -> str:
        conv = op == "QLinearConv"
        x = d.image(x) if conv else d.flat(x)
        weight = _kernel(d, x) if conv else _stored(d, d.size(x), 6)
        fine, none = d.constant(0.015625), d.constant(0, np.int8)
        out, middle = d.constant(0.0625), d.constant(128, np.uint8)
        total = d.add(op, *_quantised(d, x), weight, fine, none, out, middle)
        return d.add("DequantizeLinear", total, out, middle)

    return layer


def masked(op: str, operands: int, dtype: type) -> Layer:
    """A logical operator on constants, or a comparison with one, whose result chooses between two variables."""

    def layer(d: Draft, x: str) -> str:
        x = d.flat(x)
        stored = [d.constant(d.rng.integers(0, 2, (1, d.size(x))), dtype) for _ in range(operands)]
        if dtype is np.float32 and d.rng.random() < 0.5:
            stored[0] = x
        return d.add("Where", d.add(op, *stored), x, d.dense(x, d.size(x)))

    return layer


def rounded(op: str) -> Layer:
    """A rounding of a constant, which is then added, or of a variable."""

    def layer(d: Draft, x: str) -> str:
        if d.rng.random() < 0.5:
            return d.add("Add", x, d.add(op, d.per_channel(x)))
        return d.add(op, d.dense(x, min(d.size(x), 12), 2.0))

    return layer
