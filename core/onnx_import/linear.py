"""Matrix products, convolutions and batch normalisation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.ops import Conv
from verifolio.onnx_import import exact
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.values import Known, Malformed, Refused, Shape, Value, View, known
from verifolio.onnx_import.windows import Windows


def lower_matmul(low: Lowering, call: Call) -> Value:
    return matmul(low, call.value(0), call.value(1))


def matmul(low: Lowering, a: Value, b: Value) -> Value:
    """numpy's matmul: vectors gain an axis and lose it again, leading axes broadcast."""
    if not a.shape or not b.shape:
        raise Malformed("matrices", "a scalar")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    left = a.reshaped((1, *a.shape)) if row else a
    right = b.reshaped((*b.shape, 1)) if column else b
    if left.shape[-1] != right.shape[-2]:
        raise Malformed("matrices of matching sizes", f"{a.shape} and {b.shape}")
    out = _matmul(low, left, right)
    shape = out.shape
    shape = shape[:-2] + shape[-1:] if row else shape
    return out.reshaped(shape[:-1] if column else shape)


def _matmul(low: Lowering, a: Value, b: Value) -> Value:
    if isinstance(a, Known) and isinstance(b, Known):
        return exact.matmul(a, b, low.charge)
    if isinstance(a, View) and isinstance(b, Known):
        return _view_times_known(low, a, as_float(b))
    if isinstance(a, Known) and isinstance(b, View):
        flipped = _view_times_known(low, _swapped(b), as_float(a).moved(_swap))
        return _swapped(flipped)
    return _bilinear(low, low.promote(a), low.promote(b))


def _swap(array: NDArray[Any]) -> NDArray[Any]:
    return np.swapaxes(array, -1, -2)


def _swapped(view: View) -> View:
    return view.moved(_swap)


def _view_times_known(low: Lowering, a: View, b: Known) -> View:
    *_, k, n = b.shape
    if math.prod(b.shape[:-2]) == 1:
        rows = a.size // max(k, 1)
        rank = max(len(a.shape), len(b.shape))
        lead = (1,) * (rank - len(a.shape)) + a.shape[:-1]
        low.charge(rows * n)
        return _rows_times(low, a.reshaped((rows, k)), b.reshaped((k, n))).reshaped((*lead, n))
    return _batched(low, a, b)


def _rows_times(low: Lowering, a: View, b: Known) -> View:
    """(rows, k) @ (k, n): one row is a dense layer, several are a convolution over the rows.

    The output is laid out (n, rows); its transpose is only a view, and a following product of the same
    kind reads it as it is.
    """
    (rows, k), n = a.shape, b.shape[1]
    weight = b.moved(lambda m: np.ascontiguousarray(m.T))
    if rows == 1:
        return low.dense(a, weight).reshaped((1, n))
    node = a.node
    if low.is_permutation(a) and np.array_equal(a.index.T.ravel(), np.arange(a.size)):
        input_shape, kernel = (k, rows, 1), (n, k, 1, 1)
    else:
        node = low.flat(a)
        input_shape, kernel = (1, rows, k), (n, 1, 1, k)
    shaped = weight.reshaped(kernel)
    op = Conv(
        n * rows,
        bias=np.zeros(n),
        weight=shaped.value,
        input_shape=input_shape,
        output_shape=(n, rows, 1),
        weight_error=shaped.error,
        folded=low.weigh(shaped),
    )
    return _swapped(low.fresh(low.emit(op, node), (n, rows)))


def _batched(low: Lowering, a: View, b: Known) -> View:
    """A different constant matrix for each leading index: one sparse matrix."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    full = (*lead, m, n, k)
    low.charge(full)
    spread = View(a.node, np.broadcast_to(a.index[..., :, None, :], full))
    weight = b.moved(lambda w: np.broadcast_to(_swap(w)[..., None, :, :], full))
    rows = np.broadcast_to(np.arange(math.prod(full[:-1])).reshape(*full[:-1], 1), full)
    return low.gather_sum(spread, rows, weight, full[:-1])


def _bilinear(low: Lowering, a: View, b: View) -> View:
    """Both factors vary: all products, then sums of them."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    full = (*lead, m, n, k)
    low.charge(full)
    left = View(a.node, np.broadcast_to(a.index[..., :, None, :], full))
    right = View(b.node, np.broadcast_to(_swap(b.index)[..., None, :, :], full))
    terms = low.product(left, right)
    rows = np.broadcast_to(np.arange(math.prod(full[:-1])).reshape(*full[:-1], 1), full)
    return low.gather_sum(terms, rows, known(1.0), full[:-1])


def lower_gemm(low: Lowering, call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise Malformed("two matrices", f"{a.shape} and {b.shape}")
    a = a.moved(np.transpose) if call.integer("transA", 0) else a
    b = b.moved(np.transpose) if call.integer("transB", 0) else b
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    if isinstance(b, Known):  # float32 times float32 is exact in float64
        out = matmul(low, a, _times(low, b, alpha))
    else:
        out = matmul(low, _times(low, a, alpha), b)
    if not call.has(2) or beta == 0.0:
        return out
    c = _times(low, call.value(2), beta)
    low.common_shape(out, c)
    return add(low, out, c)


def _times(low: Lowering, value: Value, factor: float) -> Value:
    if factor == 1.0:
        return value
    if isinstance(value, Known):
        return exact.multiply(as_float(value), known(factor))
    return low.times(value, factor)


def add(low: Lowering, a: Value, b: Value) -> Value:
    if isinstance(a, Known) and isinstance(b, Known):
        low.common_shape(a, b)
        return exact.add(a, b)
    if isinstance(a, Known):
        a, b = b, a
    view = low.promote(a)
    return low.add_constant(view, as_float(b)) if isinstance(b, Known) else low.sum((1.0, 1.0), view, b)


def lower_conv(low: Lowering, call: Call) -> Value:
    transposed = call.op == "ConvTranspose"
    x, weight = low.promote(call.value(0)), as_float(call.constant(1))
    bias = as_float(call.constant(2)) if call.has(2) else None
    if len(x.shape) < 3 or len(weight.shape) != len(x.shape):
        raise Malformed("images and kernels of equal rank", f"{x.shape} and {weight.shape}")
    if len(x.shape) > 4:
        raise Refused(f"{call.op} over {len(x.shape) - 2} axes")
    folded = low.weigh(weight, *(() if bias is None else (bias,)))
    windows = Windows.read(call, x.shape[2:], weight.shape[2:], transposed)
    groups = call.integer("group", 1)
    batch, channels = x.shape[:2]
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if groups < 1 or channels != expected or outputs % groups:
        raise Malformed(f"{expected} input channels in {groups} groups", f"{channels} channels")
    if batch > 1:  # images of a batch are further groups with the same kernel
        weight = _repeat(low, weight, batch)
        bias = None if bias is None else _repeat(low, bias, batch)
    op = _conv(windows, weight, bias, (batch * channels, batch * outputs), groups * batch, transposed)
    return low.fresh(low.emit(replace(op, folded=folded), low.flat(x)), (batch, outputs, *windows.output))


def _repeat(low: Lowering, numbers: Known, count: int) -> Known:
    low.charge(numbers.value.size * count)
    return numbers.moved(lambda w: np.tile(w, (count,) + (1,) * (w.ndim - 1)))


def _conv(
    windows: Windows,
    weight: Known,
    bias: Known | None,
    channels: tuple[int, int],
    groups: int,
    transposed: bool,
) -> Conv:
    flat = windows.as_image()
    kernel = weight.reshaped((*weight.shape[:2], *flat.kernel))
    offset = known(np.zeros(channels[1])) if bias is None else bias
    if offset.shape != (channels[1],):
        raise Malformed(f"a bias of {channels[1]} numbers", f"{offset.shape}")
    return Conv(
        channels[1] * math.prod(flat.output),
        bias=offset.value,
        weight=kernel.value,
        input_shape=(channels[0], *_pair(flat.input)),
        output_shape=(channels[1], *_pair(flat.output)),
        stride=_pair(flat.stride),
        pads=(*_pair(flat.begin), *_pair(flat.end)),
        dilation=_pair(flat.dilation),
        groups=groups,
        transposed=transposed,
        weight_error=kernel.error,
        bias_error=offset.error,
    )


def _pair(numbers: Shape) -> tuple[int, int]:
    first, second = numbers
    return first, second


def lower_batch_norm(low: Lowering, call: Call) -> Value:
    """gamma / sqrt(variance + epsilon) * x + (beta - mean * that), each with its rounding error."""
    if call.integer("training_mode", 0):
        raise Refused("BatchNormalization in training mode")
    x = low.promote(call.value(0))
    gamma, beta, mean, variance = (as_float(call.constant(i)) for i in range(1, 5))
    epsilon = known(np.float32(call.number("epsilon", 1e-5)))
    if len(x.shape) < 2 or any(k.shape != (x.shape[1],) for k in (gamma, beta, mean, variance)):
        raise Malformed("one number per channel", f"{gamma.shape} for {x.shape}")
    # ONNX Runtime multiplies by the inverse of the root
    weight = exact.rounded_more(exact.divide(gamma, exact.root(exact.add(variance, epsilon))), 2)
    bias = exact.subtract(beta, exact.multiply(mean, weight))
    per_channel = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    return low.scale(x, weight.reshaped(per_channel), bias.reshaped(per_channel))


HANDLERS = {
    "MatMul": lower_matmul,
    "Gemm": lower_gemm,
    "Conv": lower_conv,
    "ConvTranspose": lower_conv,
    "BatchNormalization": lower_batch_norm,
}
