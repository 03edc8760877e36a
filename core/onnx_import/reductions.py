"""Sums, means and extremes over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from verifolio.onnx_import import exact
from verifolio.onnx_import.activations import absolute
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering, exact_inverse
from verifolio.onnx_import.values import Known, Malformed, Shape, Value, View, joined, known

Reduce = Callable[[Lowering, View], View]


def _axes(call: Call, rank: int) -> Shape:
    axes = call.axes(1, rank)
    if axes:
        return tuple(sorted(set(axes)))
    return () if call.integer("noop_with_empty_axes", 0) else tuple(range(rank))


def _reducing(
    reduce: Reduce, fold: Callable[[Known], Known] | None = None
) -> Callable[[Lowering, Call], Value]:
    """An operator that reduces the last axis of a (kept, reduced) matrix of its input."""

    def lower(low: Lowering, call: Call) -> Value:
        x = call.value(0)
        axes = _axes(call, len(x.shape))
        return reduce_axes(low, x, axes, reduce, fold, bool(call.integer("keepdims", 1)))

    return lower


def reduce_axes(
    low: Lowering,
    x: Value,
    axes: Shape,
    reduce: Reduce,
    fold: Callable[[Known], Known] | None = None,
    keep: bool = True,
) -> Value:
    """Move the reduced axes to the end, flatten, reduce, and restore the shape."""
    kept = tuple(i for i in range(len(x.shape)) if i not in axes)
    count = math.prod(x.shape[i] for i in axes)
    if not count:
        raise Malformed("at least one number to reduce", "none")
    rows = math.prod(x.shape[i] for i in kept)
    matrix = x.moved(lambda a: np.transpose(a, kept + axes).reshape(rows, count))
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes)
    if isinstance(matrix, Known) and (fold is not None):
        return fold(matrix).reshaped(shape)
    return reduce(low, low.promote(matrix)).reshaped(shape)


def add_up(low: Lowering, x: View, weight: Known | None = None) -> View:
    """Sum over the last axis of a matrix, each term with the same weight."""
    rows = np.broadcast_to(np.arange(x.shape[0])[:, None], x.shape)
    return low.gather_sum(x, rows, known(1.0) if weight is None else weight, x.shape[:1])


def average(low: Lowering, x: View) -> View:
    return add_up(low, x, exact_inverse(x.shape[1]))


def largest(low: Lowering, x: View) -> View:
    """max over the last axis, by a tree of pairwise maxima."""
    count = x.shape[-1]
    if count == 1:
        return x.moved(lambda a: a[..., 0])
    half = count // 2
    pairs = low.maximum(x.moved(lambda a: a[..., :half]), x.moved(lambda a: a[..., half : 2 * half]))
    best = largest(low, pairs)
    return low.maximum(best, x.moved(lambda a: a[..., -1])) if count % 2 else best


def smallest(low: Lowering, x: View) -> View:
    return low.sum((-1.0,), largest(low, low.sum((-1.0,), x)))


def _squares(low: Lowering, x: View) -> View:
    return add_up(low, low.function("pow", x, 2.0))


def log_sum_exp(low: Lowering, x: View) -> View:
    """log sum exp over the last axis, by a tree of log(e^a + e^b) = a + softplus(b - a).

    No exponential appears, so nothing overflows however large the numbers are.
    """
    count = x.shape[-1]
    if count == 1:
        return x.moved(lambda a: a[..., 0])
    half = count // 2
    pairs = _log_add(low, x.moved(lambda a: a[..., :half]), x.moved(lambda a: a[..., half : 2 * half]))
    total = log_sum_exp(low, pairs)
    return _log_add(low, total, x.moved(lambda a: a[..., -1])) if count % 2 else total


def _log_add(low: Lowering, a: View, b: View) -> View:
    return low.sum((1.0, 1.0), a, low.function("softplus", low.sum((1.0, -1.0), b, a)))


def _fold_extreme(function: Callable[..., Any]) -> Callable[[Known], Known]:
    def fold(x: Known) -> Known:
        error = None if x.error is None else np.max(x.error, axis=1)
        return joined(function(x.value, axis=1), error, x)

    return fold


def _fold_product(x: Known) -> Known:
    total = x.moved(lambda a: a[:, 0])
    for i in range(1, x.shape[1]):
        total = exact.multiply(total, x.moved(lambda a, i=i: a[:, i]))
    return total


def _no_product(low: Lowering, x: View) -> View:
    total = x.moved(lambda a: a[:, 0])
    for i in range(1, x.shape[1]):
        total = low.product(total, x.moved(lambda a, i=i: a[:, i]))
    return total


def _fold_mean(x: Known) -> Known:
    return exact.divide(exact.total(x), Known(np.array(x.shape[1], x.value.dtype)))


HANDLERS = {
    "ReduceSum": _reducing(add_up, exact.total),
    "ReduceMean": _reducing(average, _fold_mean),
    "ReduceMax": _reducing(largest, _fold_extreme(np.max)),
    "ReduceMin": _reducing(smallest, _fold_extreme(np.min)),
    "ReduceProd": _reducing(_no_product, _fold_product),
    "ReduceL1": _reducing(lambda low, x: add_up(low, absolute(low, x))),
    "ReduceL2": _reducing(lambda low, x: low.function("sqrt", _squares(low, x))),
    "ReduceSumSquare": _reducing(_squares),
    "ReduceLogSum": _reducing(lambda low, x: low.function("log", add_up(low, x))),
    "ReduceLogSumExp": _reducing(log_sum_exp),
}
