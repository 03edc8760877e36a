"""Pools: maxima as trees of pairwise maxima, averages as depthwise convolutions or sparse sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.ops import Conv
from verifolio.onnx_import import exact
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering, exact_inverse
from verifolio.onnx_import.reductions import average, largest, reduce_axes
from verifolio.onnx_import.values import Malformed, Refused, Value, View, known
from verifolio.onnx_import.windows import Windows


def _windows(call: Call, x: View) -> Windows:
    kernel = call.integers("kernel_shape")
    if kernel is None or len(x.shape) != len(kernel) + 2:
        raise Malformed("a kernel_shape with one entry per image axis", f"{kernel} for {x.shape}")
    return Windows.read(call, x.shape[2:], kernel)


def _taps(windows: Windows, axis: int) -> NDArray[Any]:
    """Positions (output, tap) along one axis; those in the padding lie outside the image."""
    outputs = np.arange(windows.output[axis]) * windows.stride[axis] - windows.begin[axis]
    return outputs[:, None] + np.arange(windows.kernel[axis])[None] * windows.dilation[axis]


def lower_max_pool(low: Lowering, call: Call) -> Value:
    """One axis after the other: the maximum over a rectangle is the maximum of the rows' maxima."""
    if call.outputs > 1:
        raise Refused("MaxPool with indices")
    x = low.promote(call.value(0))
    windows = _windows(call, x)
    for axis in reversed(range(len(windows.input))):
        taps, size = _taps(windows, axis), windows.input[axis]
        inside = (taps >= 0) & (taps < size)
        if not inside.any(axis=1).all():
            raise Malformed("windows that meet the image", "one in the padding")
        # the maximum does not change when a tap in the padding repeats one inside
        first = taps[np.arange(len(taps)), inside.argmax(axis=1)]
        taps = np.where(inside, taps, first[:, None])
        low.charge(x.size // size * taps.size)
        x = x.moved(lambda a, taps=taps, at=axis + 2: np.moveaxis(np.take(a, taps, axis=at), at + 1, -1))
        x = largest(low, x)
    return x


def lower_average_pool(low: Lowering, call: Call) -> Value:
    x = low.promote(call.value(0))
    windows = _windows(call, x)
    padded = bool(call.integer("count_include_pad", 0))
    ends = zip(windows.output, windows.stride, windows.begin, windows.end, windows.input, strict=True)
    reach = [d * (k - 1) + 1 for d, k in zip(windows.dilation, windows.kernel, strict=True)]
    fits = all((o - 1) * s + r <= n + b + e for (o, s, b, e, n), r in zip(ends, reach, strict=True))
    plain = padded or not (any(windows.begin) or any(windows.end))
    if fits and plain and len(windows.input) <= 2:
        return _average_conv(low, x, windows)
    return _average_sparse(low, x, windows, padded)


def _average_conv(low: Lowering, x: View, windows: Windows) -> View:
    channels = x.shape[0] * x.shape[1]
    image = windows.as_image()
    weight = exact_inverse(math.prod(image.kernel)).broadcast((channels, 1, *image.kernel))
    op = Conv(
        channels * math.prod(image.output),
        bias=np.zeros(channels),
        weight=np.ascontiguousarray(weight.value),
        input_shape=(channels, image.input[0], image.input[1]),
        output_shape=(channels, image.output[0], image.output[1]),
        stride=(image.stride[0], image.stride[1]),
        pads=(*image.begin, *image.end),  # type: ignore[arg-type]
        dilation=(image.dilation[0], image.dilation[1]),
        groups=channels,
        weight_error=None if weight.error is None else np.ascontiguousarray(weight.error),
    )
    return low.fresh(low.emit(op, low.flat(x)), (*x.shape[:2], *windows.output))


def _average_sparse(low: Lowering, x: View, windows: Windows, padded: bool) -> View:
    """Windows that reach over the edge divide by fewer terms: the taps inside, or inside the padding."""
    axes = len(windows.input)
    index, counts = x.index, np.ones((), np.int64)
    for axis in range(axes):
        taps, size, at = _taps(windows, axis), windows.input[axis], 2 + axis
        inside = (taps >= 0) & (taps < size)
        counted = taps < size + windows.end[axis] if padded else inside
        low.charge(index.size // size * taps.size)
        index = np.take(index, np.clip(taps, 0, size - 1), axis=at)  # (..., output, tap, ...)
        mask = inside.reshape((1,) * at + inside.shape + (1,) * (index.ndim - at - 2))
        index = np.moveaxis(np.where(mask, index, -1), at + 1, -1)
        counts = np.multiply.outer(counts, counted.sum(axis=1))
    shape = (*x.shape[:2], *windows.output)
    if not counts.all():
        raise Malformed("windows that meet the image", "one in the padding")
    inverse = exact.divide(known(1.0), known(counts.astype(np.float64)))
    rows = np.arange(math.prod(shape)).reshape(shape + (1,) * axes)
    weight = inverse.reshaped((1, 1, *counts.shape, *(1,) * axes)).broadcast(index.shape)
    return low.gather_sum(View(x.node, index), np.broadcast_to(rows, index.shape), weight, shape)


def lower_global_average(low: Lowering, call: Call) -> Value:
    x = low.promote(call.value(0))
    return reduce_axes(low, x, tuple(range(2, len(x.shape))), average)


def lower_global_max(low: Lowering, call: Call) -> Value:
    x = low.promote(call.value(0))
    return reduce_axes(low, x, tuple(range(2, len(x.shape))), largest)


HANDLERS = {
    "MaxPool": lower_max_pool,
    "AveragePool": lower_average_pool,
    "GlobalAveragePool": lower_global_average,
    "GlobalMaxPool": lower_global_max,
}
