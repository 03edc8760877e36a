"""The operators a Graph may hold: affine maps, ReLU, smooth elementwise functions, products, steps.

Every value in a graph is a flat vector; an operator knows the size of its output. Reshapes therefore vanish
on import, and transposes, slices and pads become `Select`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy import sparse  # takes long to import, and the driver does without

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Op:
    """An operator with `size` outputs."""

    size: int


@dataclass(frozen=True, eq=False)
class Input(Op):
    """The flat input vector of the whole graph."""


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """A vector that depends on nothing; `error` bounds |exact - value| (None: exact).

    `single` bounds how far its value in single precision lies from the exact one (None: it is the same).
    """

    value: Array
    error: Array | None = None
    single: Array | None = None


@dataclass(frozen=True, eq=False)
class Affine(Op):
    """y = W x + b. `weight_error` and `bias_error` bound |exact - stored| entrywise (None: exact).

    `folded`: some number was computed from those of the file, so single precision may have rounded it on the way.
    """

    bias: Array


@dataclass(frozen=True, eq=False)
class Dense(Affine):
    """`weight` has shape (size, inputs)."""

    weight: Array
    weight_error: Array | None = None
    bias_error: Array | None = None
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Sparse(Affine):
    """A sum over few inputs each: pooling, reductions, contractions. `weight` is CSR (size, inputs)."""

    weight: sparse.csr_array
    weight_error: sparse.csr_array | None = None
    bias_error: Array | None = None
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Conv(Affine):
    """A 2-d convolution (or its transpose) on values laid out as (channels, height, width).

    `weight` is (out, in / groups, kh, kw), for a transposed one (in, out / groups, kh, kw); `bias` has one
    entry per output channel; `pads` are (top, left, bottom, right). `output_padding` only exists transposed.
    """

    weight: Array
    input_shape: tuple[int, int, int]
    output_shape: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    transposed: bool = False
    weight_error: Array | None = None
    bias_error: Array | None = None
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Scale(Affine):
    """y = weight * x + b, entry by entry; `bias_single` is to the bias what `Constant.single` is to a constant."""

    weight: Array
    weight_error: Array | None = None
    bias_error: Array | None = None
    bias_single: Array | None = None
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Select(Op):
    """y[i] = x[index[i]], and 0 where the index is -1."""

    index: Index


@dataclass(frozen=True, eq=False)
class Sum(Op):
    """y = sum of coefficient_k * parent_k; the coefficients are small integers, so nothing is rounded."""

    coefficients: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Concat(Op):
    """The parents one after another."""


@dataclass(frozen=True, eq=False)
class Relu(Op):
    """y = max(x, 0)."""


@dataclass(frozen=True, eq=False)
class Elementwise(Op):
    """y = f(x) with f named in `verifolio.graph.functions`; `parameter` is the exponent of `pow`."""

    function: str
    parameter: float = 0.0


@dataclass(frozen=True, eq=False)
class Product(Op):
    """y = a * b, entry by entry, of two parents."""


@dataclass(frozen=True, eq=False)
class Step(Op):
    """y = levels[k] where k of the sorted `breakpoints` lie below x, and y = at[k] where x is breakpoint k.

    `settled`: the argument is what single precision computes, see `verifolio.graph.settle`. A step that is not
    settled has a value, but no bounds apart from its least and its greatest level.
    """

    breakpoints: Array
    levels: Array
    at: Array
    settled: bool = False


@dataclass(frozen=True, eq=False)
class Whole(Op):
    """y is a whole number near x by `rule`: floor, trunc or round (halves to even), for x within `limits`.

    It has endlessly many levels; where x is known to lie in an interval, `settle` makes it a `Step`.
    """

    rule: str
    limits: tuple[float, float] = (-np.inf, np.inf)


NONLINEAR = (Relu, Elementwise, Product, Step, Whole)
STEPS = (Step, Whole)
