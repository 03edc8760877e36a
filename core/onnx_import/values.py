"""What a tensor is during import: known numbers with an error bound, or a view of a graph node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.ops import Array, Index

Shape = tuple[int, ...]


class Refused(Exception):
    """An operator, or a use of it, that a Graph cannot represent; the reason is the message."""


class Malformed(Exception):
    """A node or tensor that contradicts the ONNX specification or our limits: expected, got."""

    def __init__(self, expected: str, got: str) -> None:
        self.expected, self.got = expected, got
        super().__init__(f"expected {expected}, got {got}")


@dataclass(frozen=True, eq=False)
class Known:
    """A folded tensor: integers, bools or float64 values; `error` bounds |exact - value| (None: exact).

    `wide` marks numbers of ONNX type double, which a cast to float rounds. `single` bounds how far the value that
    single precision computes lies from the exact one (None: it is the same); only steps ask for it.
    """

    value: NDArray[Any]
    error: Array | None = None
    wide: bool = False
    single: Array | None = None

    @property
    def shape(self) -> Shape:
        return self.value.shape

    @property
    def is_float(self) -> bool:
        return self.value.dtype.kind == "f"

    def reshaped(self, shape: Shape) -> Known:
        return self.moved(lambda a: a.reshape(shape))

    def broadcast(self, shape: Shape) -> Known:
        return self.moved(lambda a: np.broadcast_to(a, shape))

    def moved(self, move: Any) -> Known:
        """Apply a function that only moves entries around."""
        error, single = (None if e is None else move(e) for e in (self.error, self.single))
        return Known(move(self.value), error, self.wide, single)


@dataclass(frozen=True, eq=False)
class View:
    """A tensor of variables: entry i is entry index[i] of graph node `node`, or 0 where the index is -1.

    All data movement (reshape, transpose, slice, pad with zeros, expand) is an operation on `index` alone. `whole`
    marks tensors of an integer type or bool.
    """

    node: int
    index: Index
    whole: bool = False

    @property
    def shape(self) -> Shape:
        return self.index.shape

    @property
    def size(self) -> int:
        return self.index.size

    def reshaped(self, shape: Shape) -> View:
        return View(self.node, self.index.reshape(shape), self.whole)

    def moved(self, move: Any) -> View:
        """Apply a function that only moves entries around."""
        return View(self.node, move(self.index), self.whole)


Value = Known | View


def joined(value: NDArray[Any], error: Array | None, *parts: Known) -> Known:
    """Numbers picked from several constants; what single precision loses is that of the worst of all."""
    singles = [float(p.single.max(initial=0.0)) for p in parts if p.single is not None]
    single = np.full(value.shape, max(singles)) if singles else None
    return Known(value, error, any(p.wide for p in parts), single)


def known(value: Any, error: Array | None = None) -> Known:
    """A float64 constant; an error of zeros counts as exact."""
    if error is not None and not error.any():
        error = None
    return Known(np.asarray(value, np.float64), error)
