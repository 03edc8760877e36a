"""How a random network uses operators that move, pick, repeat or make numbers without computing with them."""

from __future__ import annotations

import numpy as np

from verifolio.testing.draft import Draft


def concat(d: Draft, x: str) -> str:
    x = d.flat(x)
    return d.add("Concat", x, d.dense(x, 5), d.draw(1, 2), axis=1)


def split(d: Draft, x: str) -> str:
    x = d.flat(x)
    n = d.size(x)
    if n < 2:
        return x
    first, second = d.split("Split", x, d.integers(n // 2, n - n // 2), outputs=2, axis=1)
    return d.add("Concat", d.add("Relu", second), first, axis=1)


def slice_of(d: Draft, x: str) -> str:
    x = d.flat(x)
    start = int(d.rng.integers(0, max(1, d.size(x) // 3)))
    return d.add("Slice", x, d.integers(start), d.integers(d.size(x)), d.integers(1), d.integers(1))


def gather(d: Draft, x: str) -> str:
    x = d.flat(x)
    return d.add("Gather", x, d.constant(d.rng.integers(0, d.size(x), d.size(x)), np.int64), axis=1)


def pad(d: Draft, x: str) -> str:
    x = d.image(x)
    return d.add("Pad", x, d.integers(0, 0, 1, 0, 0, 0, 0, 1), d.constant(0.25))


def tile(d: Draft, x: str) -> str:
    x = d.dense(x, min(d.size(x), 10))
    return d.add("Tile", x, d.integers(1, 2))


def expand(d: Draft, x: str) -> str:
    x = d.add("Reshape", d.dense(x, 6), d.integers(1, 6, 1))
    return d.flat(d.add("Expand", x, d.integers(1, 6, 2)))


def where(d: Draft, x: str) -> str:
    x = d.flat(x)
    mask = d.constant(d.rng.random((1, d.size(x))) < 0.5, np.bool_)
    return d.add("Where", mask, x, d.add("Neg", x))


def mod(d: Draft, x: str) -> str:
    x = d.flat(x)
    index = d.add("Mod", d.constant(d.rng.integers(0, 99, d.size(x)), np.int64), d.integers(d.size(x)))
    return d.add("Gather", x, index, axis=1)


def range_of(d: Draft, x: str) -> str:
    x = d.flat(x)
    numbers = [d.constant(v, np.int64) for v in (d.size(x) - 1, -1, -1)]
    index = d.add("Range", *numbers)
    d.shapes[index] = (d.size(x),)
    return d.add("Gather", x, index, axis=1)


def shape_of(d: Draft, x: str) -> str:
    shape = d.shapes[x]
    again = d.add("Reshape", d.flat(x), d.add("Shape", x))
    d.shapes[again] = shape
    return again


def size_of(d: Draft, x: str) -> str:
    """Divided by the number of its entries."""
    count = d.add("Cast", d.add("Size", x), to=1)
    return d.add("Mul", d.add("Div", x, count), d.constant(float(d.size(x))))


def constant(d: Draft, x: str) -> str:
    return d.add("Add", x, d.add("Constant", value_float=0.375))


def constant_of_shape(d: Draft, x: str) -> str:
    x = d.flat(x)
    zeros = d.add("ConstantOfShape", d.integers(*d.shapes[x]))
    d.shapes[zeros] = d.shapes[x]
    return d.add("Add", x, zeros)


def transpose(d: Draft, x: str) -> str:
    return d.add("Transpose", d.image(x), perm=[0, 3, 1, 2])


def squeeze(d: Draft, x: str) -> str:
    x = d.flat(x)
    return d.add("Unsqueeze", d.add("Squeeze", x, d.integers(0)), d.integers(0))


def flatten(d: Draft, x: str) -> str:
    return d.add("Flatten", d.image(x), axis=1)


def reshape(d: Draft, x: str) -> str:
    return d.add("Reshape", x, d.integers(1, -1))


def cast(d: Draft, x: str) -> str:
    return d.add("Cast", d.add("Cast", x, to=11), to=1)


def upsample(d: Draft, x: str) -> str:
    return d.add("Upsample", d.image(x), d.constant([1.0, 1.0, 1.0, 2.0]), mode="nearest")


def dropout(d: Draft, x: str) -> str:
    return d.add("Dropout", x)
