"""The affine operators of a graph as tensors: forward on intervals, backward on coefficient rows.

Shapes: values (batch, size); coefficient rows (batch or 1, rows, size).
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verifolio.graph import (
    Concat,
    Constant,
    Conv,
    Dense,
    Input,
    Op,
    Scale,
    Select,
    Sparse,
    Sum,
)
from verifolio.graph.module import convolve, convolve_adjoint


class Space:
    """The floating type and device of a run, and the unit roundoff that goes with the type."""

    def __init__(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.dtype, self.device = dtype, torch.device(device)
        self.unit = torch.finfo(dtype).eps / 2
        # what casting a float64 number below the normal ones to the type may take from it
        self.least = 0.0 if dtype == torch.float64 else torch.finfo(dtype).tiny * torch.finfo(dtype).eps

    def tensor(self, value: Any) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(value), dtype=self.dtype, device=self.device)

    def down(self, value: np.ndarray[Any, Any]) -> Tensor:
        """Cast float64 values, rounded towards minus infinity."""
        return self._directed(value, -torch.inf)

    def up(self, value: np.ndarray[Any, Any]) -> Tensor:
        """Cast float64 values, rounded towards plus infinity."""
        return self._directed(value, torch.inf)

    def _directed(self, value: np.ndarray[Any, Any], towards: float) -> Tensor:
        exact = torch.as_tensor(np.ascontiguousarray(value, np.float64), device=self.device)
        cast = exact.to(self.dtype)
        wrong = cast.double() > exact if towards < 0 else cast.double() < exact
        return torch.where(wrong, torch.nextafter(cast, torch.full_like(cast, towards)), cast)


def total(rows: Tensor, vector: Tensor) -> Tensor:
    """rows . vector, added up in float64: the sum may be far longer than those that `terms` speaks of."""
    return (rows.double() @ vector.double()).to(rows.dtype)


def csr(pointers: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix by rows."""
    with warnings.catch_warnings():  # torch calls this layout a beta; products are all that is used of it
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(pointers, columns, values, size=shape)


class Layer:
    """An affine operator.

    `terms` is the longest sum it computes in either direction, which sets its rounding error; the constants
    that rows pick up are added in float64 unless `terms` covers that sum too.
    """

    terms = 1
    weighted = False  # whether it multiplies by weights, so that its rounding error must be charged

    def __init__(self, op: Op, space: Space) -> None:
        self.size = op.size
        self.space = space

    def forward(self, *inputs: Tensor) -> Tensor:
        """The operator on values."""
        raise TypeError(f"{type(self).__name__} has no forward map")

    def linear(self, *inputs: Tensor) -> Tensor:
        """The operator without its constant."""
        return self.forward(*inputs)

    def spread(self, *radii: Tensor) -> Tensor:
        """|W| times the radii: how far the output moves when the inputs move this far."""
        return self.forward(*radii)

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Rows over the output as rows over each input, and the constant they pick up (batch, rows)."""
        raise TypeError(f"{type(self).__name__} has no backward map")

    def constant(self) -> Tensor | None:
        """|b|, one entry per output, or None."""
        return None

    def slack(self, magnitude: Tensor) -> Tensor | None:
        """How far the exact operator may lie from the stored one where |x| <= magnitude; None: nowhere."""
        return None


class DenseLayer(Layer):
    weighted = True

    def __init__(self, op: Dense, space: Space) -> None:
        super().__init__(op, space)
        self.weight, self.bias = space.tensor(op.weight), space.tensor(op.bias)
        self.absolute = self.weight.abs()
        self.terms = max(op.weight.shape)  # backward, the sums run over the outputs
        self.weight_error = None if op.weight_error is None else space.up(op.weight_error)
        self.bias_error = None if op.bias_error is None else space.up(op.bias_error)

    def forward(self, *inputs: Tensor) -> Tensor:
        (x,) = inputs
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def linear(self, *inputs: Tensor) -> Tensor:
        return inputs[0] @ self.weight.T

    def spread(self, *radii: Tensor) -> Tensor:
        (radius,) = radii
        return radius @ self.absolute.T

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        return [rows @ self.weight], rows @ self.bias

    def constant(self) -> Tensor | None:
        return self.bias.abs()

    def slack(self, magnitude: Tensor) -> Tensor | None:
        if self.weight_error is None:
            return self.bias_error
        spread = magnitude @ self.weight_error.T
        return spread if self.bias_error is None else spread + self.bias_error


class SparseLayer(Layer):
    """Both directions as sparse-dense products; the two matrices are kept in CSR form."""

    weighted = True

    def __init__(self, op: Sparse, space: Space) -> None:
        super().__init__(op, space)
        self.weight, self.transposed = self._csr(op.weight), self._csr(op.weight.T.tocsr())
        self.absolute = self._csr(abs(op.weight))
        self.bias = space.tensor(op.bias)
        columns = np.bincount(op.weight.indices, minlength=1)
        self.terms = int(max(np.diff(op.weight.indptr).max(initial=0), columns.max()))
        self.fans = bool(columns.max() > 1)  # whether some input is read by several outputs
        self.weight_error = None if op.weight_error is None else self._csr(op.weight_error)
        self.bias_error = None if op.bias_error is None else space.up(op.bias_error)

    def _csr(self, matrix: Any) -> Tensor:
        pointers, columns = (torch.as_tensor(a.astype(np.int64)) for a in (matrix.indptr, matrix.indices))
        # a copy: scipy sorts a matrix in place now and then, as in `abs`
        values = torch.tensor(matrix.data, dtype=self.space.dtype)
        return csr(pointers, columns, values, matrix.shape).to(self.space.device)

    def forward(self, *inputs: Tensor) -> Tensor:
        (x,) = inputs
        return (self.weight @ x.T).T + self.bias

    def linear(self, *inputs: Tensor) -> Tensor:
        return (self.weight @ inputs[0].T).T

    def spread(self, *radii: Tensor) -> Tensor:
        (radius,) = radii
        return (self.absolute @ radius.T).T

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        flat = (self.transposed @ rows.reshape(-1, self.size).T).T
        return [flat.reshape(*rows.shape[:2], -1)], total(rows, self.bias)

    def constant(self) -> Tensor | None:
        return self.bias.abs()

    def slack(self, magnitude: Tensor) -> Tensor | None:
        if self.weight_error is None:
            return self.bias_error
        spread = (self.weight_error @ magnitude.T).T
        return spread if self.bias_error is None else spread + self.bias_error


class ConvLayer(Layer):
    weighted = True

    def __init__(self, op: Conv, space: Space) -> None:
        super().__init__(op, space)
        self.op = op
        self.weight, self.bias = space.tensor(op.weight), space.tensor(op.bias)
        self.absolute = self.weight.abs()
        kernel = op.weight.shape[2] * op.weight.shape[3]
        reads = op.input_shape[0] // op.groups if op.transposed else op.weight.shape[1]
        feeds = op.weight.shape[1] if op.transposed else op.output_shape[0] // op.groups
        self.terms = max(reads, feeds) * kernel
        self.weight_error = None if op.weight_error is None else space.up(op.weight_error)
        self.bias_error = None if op.bias_error is None else space.up(op.bias_error)

    def forward(self, *inputs: Tensor) -> Tensor:
        (x,) = inputs
        with self._plain():
            return convolve(self.op, x, self.weight, self.bias)

    def linear(self, *inputs: Tensor) -> Tensor:
        with self._plain():
            return convolve(self.op, inputs[0], self.weight, None)

    def spread(self, *radii: Tensor) -> Tensor:
        (radius,) = radii
        with self._plain():
            return convolve(self.op, radius, self.absolute, None)

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        with self._plain():
            flat = convolve_adjoint(self.op, rows.reshape(-1, self.size), self.weight)
        channels = rows.reshape(*rows.shape[:2], self.op.output_shape[0], -1).sum(-1, dtype=torch.float64)
        return [flat.reshape(*rows.shape[:2], -1)], total(channels, self.bias).to(rows.dtype)

    def overlaps(self) -> bool:
        """Whether some input is read by several outputs: windows overlap, or several channels read one."""
        op = self.op
        reach = [d * (k - 1) + 1 for d, k in zip(op.dilation, op.weight.shape[2:], strict=True)]
        apart = all(r <= s or n == 1 for r, s, n in zip(reach, op.stride, op.output_shape[1:], strict=True))
        return op.transposed or op.output_shape[0] > op.groups or not apart

    def adjoint(self, rows: Tensor) -> Tensor:
        """Rows (count, channels, height, width) over any window as rows over all that the window reads."""
        op = self.op
        with self._plain():
            return torch.nn.functional.conv_transpose2d(
                rows, self.weight, None, op.stride, groups=op.groups, dilation=op.dilation
            )

    def _plain(self) -> AbstractContextManager[None]:
        """Plain sums of products: cuDNN may round to 10 bits (TF32) or transform, which nothing charges."""
        if self.space.device.type != "cuda":
            return nullcontext()
        return torch.backends.cudnn.flags(enabled=False)

    def constant(self) -> Tensor | None:
        return self._per_pixel(self.bias.abs())

    def slack(self, magnitude: Tensor) -> Tensor | None:
        extra = None if self.bias_error is None else self._per_pixel(self.bias_error)
        if self.weight_error is None:
            return extra
        with self._plain():
            spread = convolve(self.op, magnitude, self.weight_error, None)
        return spread if extra is None else spread + extra

    def _per_pixel(self, channel: Tensor) -> Tensor:
        return channel.repeat_interleave(self.op.output_shape[1] * self.op.output_shape[2])


class ScaleLayer(Layer):
    weighted = True

    def __init__(self, op: Scale, space: Space) -> None:
        super().__init__(op, space)
        self.weight, self.bias = space.tensor(op.weight), space.tensor(op.bias)
        self.absolute = self.weight.abs()
        self.weight_error = None if op.weight_error is None else space.up(op.weight_error)
        self.bias_error = None if op.bias_error is None else space.up(op.bias_error)

    def forward(self, *inputs: Tensor) -> Tensor:
        (x,) = inputs
        return x * self.weight + self.bias

    def linear(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * self.weight

    def spread(self, *radii: Tensor) -> Tensor:
        (radius,) = radii
        return radius * self.absolute

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        return [rows * self.weight], total(rows, self.bias)

    def constant(self) -> Tensor | None:
        return self.bias.abs()

    def slack(self, magnitude: Tensor) -> Tensor | None:
        if self.weight_error is None:
            return self.bias_error
        spread = magnitude * self.weight_error
        return spread if self.bias_error is None else spread + self.bias_error


class SelectLayer(Layer):
    def __init__(self, op: Select, space: Space, inputs: int) -> None:
        super().__init__(op, space)
        self.inputs = inputs
        self.kept = torch.as_tensor(np.flatnonzero(op.index >= 0), device=space.device)
        self.index = torch.as_tensor(np.maximum(op.index, 0), device=space.device)
        self.source = self.index[self.kept]
        self.hole = torch.as_tensor(op.index < 0, device=space.device)
        self.terms = int(np.bincount(op.index[op.index >= 0], minlength=1).max(initial=1))

    def forward(self, *inputs: Tensor) -> Tensor:
        (x,) = inputs
        return x[:, self.index].masked_fill(self.hole, 0.0)

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        out = rows.new_zeros(*rows.shape[:2], self.inputs)
        return [out.index_add(2, self.source, rows[:, :, self.kept])], None


class SumLayer(Layer):
    def __init__(self, op: Sum, space: Space) -> None:
        super().__init__(op, space)
        self.coefficients = op.coefficients
        self.terms = len(op.coefficients)
        self.weighted = True

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.stack(
            torch.broadcast_tensors(*(c * x for c, x in zip(self.coefficients, inputs, strict=True)))
        ).sum(0)

    def spread(self, *radii: Tensor) -> Tensor:
        parts = (abs(c) * x for c, x in zip(self.coefficients, radii, strict=True))
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        return [rows if c == 1 else c * rows for c in self.coefficients], None


class ConcatLayer(Layer):
    def __init__(self, op: Concat, space: Space, sizes: list[int]) -> None:
        super().__init__(op, space)
        self.sizes = sizes

    def forward(self, *inputs: Tensor) -> Tensor:
        batch = max(x.shape[0] for x in inputs)
        return torch.cat([x.expand(batch, -1) for x in inputs], dim=1)

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        return list(rows.split(self.sizes, dim=2)), None


class ConstantLayer(Layer):
    weighted = True

    def __init__(self, op: Constant, space: Space) -> None:
        super().__init__(op, space)
        self.value = space.tensor(op.value)
        self.error = None if op.error is None else space.up(op.error)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.value[None]

    def spread(self, *radii: Tensor) -> Tensor:
        return torch.zeros_like(self.value)[None]

    def backward(self, rows: Tensor) -> tuple[list[Tensor], Tensor | None]:
        return [], total(rows, self.value)

    def constant(self) -> Tensor | None:
        return self.value.abs()

    def slack(self, magnitude: Tensor) -> Tensor | None:
        return self.error


@singledispatch
def make_layer(op: Op, space: Space, sizes: list[int]) -> Layer | None:
    """The layer of an affine operator (`sizes`: its parents' sizes); None for the input and nonlinear ones."""
    return None


make_layer.register(Dense)(lambda op, space, sizes: DenseLayer(op, space))
make_layer.register(Sparse)(lambda op, space, sizes: SparseLayer(op, space))
make_layer.register(Conv)(lambda op, space, sizes: ConvLayer(op, space))
make_layer.register(Scale)(lambda op, space, sizes: ScaleLayer(op, space))
make_layer.register(Select)(lambda op, space, sizes: SelectLayer(op, space, sizes[0]))
make_layer.register(Sum)(lambda op, space, sizes: SumLayer(op, space))
make_layer.register(Concat)(lambda op, space, sizes: ConcatLayer(op, space, sizes))
make_layer.register(Constant)(lambda op, space, sizes: ConstantLayer(op, space))
make_layer.register(Input)(lambda op, space, sizes: None)
