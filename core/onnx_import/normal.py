"""Softmax and the normalisations that divide by a variable."""

from __future__ import annotations

import math

import numpy as np

from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.reductions import add_up, average, log_sum_exp
from verifolio.onnx_import.values import Known, Malformed, Value, View, known


def _rows(call: Call, x: View) -> tuple[View, tuple[int, ...]]:
    """The input as a matrix whose rows are normalised, and the order of axes that leads there."""
    rank = len(x.shape)
    axis = call.axis("axis", -1 if call.opset >= 13 else 1, rank)
    if call.opset < 13:  # older operator sets normalise over all axes from this one on
        return x.reshaped((math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))), tuple(range(rank))
    order = (*(i for i in range(rank) if i != axis), axis)
    return x.moved(lambda a: np.transpose(a, order).reshape(-1, x.shape[axis])), order


def _restore(result: View, x: View, order: tuple[int, ...]) -> View:
    shape = tuple(x.shape[i] for i in order)
    return result.moved(lambda a: np.transpose(a.reshape(shape), np.argsort(order)))


def _differences(low: Lowering, rows: View) -> View:
    """x_j - x_i for all j other than i, with shape (rows, i, j)."""
    n = rows.shape[1]
    low.charge(rows.shape[0] * n * (n - 1))
    position = np.arange(n - 1)[None]
    others = position + (position >= np.arange(n)[:, None])  # all indices but the row's own
    own = View(rows.node, np.broadcast_to(rows.index[:, :, None], (rows.shape[0], n, n - 1)))
    return low.sum((1.0, -1.0), rows.moved(lambda a: a[:, others]), own)


def _log_of_others(low: Lowering, rows: View) -> View:
    """log sum_j exp(x_j - x_i) over all j other than i."""
    n = rows.shape[1]
    return log_sum_exp(low, _differences(low, rows).reshaped((-1, n - 1))).reshaped(rows.shape)


def _exponential_sums(low: Lowering, rows: View) -> View:
    """sum_j exp(x_j - x_i); the term j = i is 1, a constant."""
    terms = low.function("exp", _differences(low, rows))
    total = add_up(low, terms.reshaped((-1, rows.shape[1] - 1)))
    return low.add_constant(total, known(1.0)).reshaped(rows.shape)


def lower_softmax(low: Lowering, call: Call) -> Value:
    """softmax_i = 1 / sum_j exp(x_j - x_i); for two classes that is sigmoid(x_i - x_j)."""
    x = low.promote(call.value(0))
    rows, order = _rows(call, x)
    made = softmax_rows(low, rows)
    return known(np.ones(x.shape)) if isinstance(made, Known) else _restore(made, x, order)


def softmax_rows(low: Lowering, rows: View) -> Value:
    """The softmax of each row of a matrix."""
    if rows.shape[1] == 1:
        return known(np.ones(rows.shape))
    if rows.shape[1] == 2:
        gap = low.sum((1.0, -1.0), rows, rows.moved(lambda a: a[:, ::-1]))
        return low.function("sigmoid", gap)
    return low.reciprocal(_exponential_sums(low, rows))


def lower_log_softmax(low: Lowering, call: Call) -> Value:
    """-log sum_j exp(x_j - x_i); the term j = i is 1, and log(1 + exp(s)) is softplus(s)."""
    x = low.promote(call.value(0))
    rows, order = _rows(call, x)
    if rows.shape[1] == 1:
        return known(np.zeros(x.shape))
    logs = low.function("softplus", _log_of_others(low, rows))
    return _restore(low.sum((-1.0,), logs), x, order)


def _standardised(low: Lowering, rows: View, epsilon: float) -> tuple[View, View, View]:
    """(x - mean) / sqrt(variance + epsilon) along each row, and the mean and the factor that it uses."""
    mean = average(low, rows).reshaped((rows.shape[0], 1))
    centred = low.sum((1.0, -1.0), rows, mean)
    variance = average(low, low.function("pow", centred, 2.0))
    spread = low.function("sqrt", low.add_constant(variance, known(epsilon)))
    factor = low.reciprocal(spread).reshaped((rows.shape[0], 1))
    return low.product(centred, factor), mean, factor


def _epsilon(call: Call) -> float:
    return float(np.float32(call.number("epsilon", 1e-5)))


def lower_layer_norm(low: Lowering, call: Call) -> list[Value]:
    x = low.promote(call.value(0))
    axis = call.axis("axis", -1, len(x.shape))
    rows = x.reshaped((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    scale = as_float(call.constant(1))
    bias = as_float(call.constant(2)) if call.has(2) else None
    whitened, mean, factor = _standardised(low, rows, _epsilon(call))
    kept = x.shape[:axis] + (1,) * (len(x.shape) - axis)
    return [low.scale(whitened.reshaped(x.shape), scale, bias), mean.reshaped(kept), factor.reshaped(kept)]


def lower_instance_norm(low: Lowering, call: Call) -> Value:
    x = low.promote(call.value(0))
    scale, bias = as_float(call.constant(1)), as_float(call.constant(2))
    if len(x.shape) < 3 or scale.shape != (x.shape[1],) or bias.shape != scale.shape:
        raise Malformed("one number per channel", f"{scale.shape} for {x.shape}")
    rows = x.reshaped((x.shape[0] * x.shape[1], math.prod(x.shape[2:])))
    per_channel = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    whitened, _, _ = _standardised(low, rows, _epsilon(call))
    return low.scale(whitened.reshaped(x.shape), _shaped(scale, per_channel), _shaped(bias, per_channel))


def lower_rms_norm(low: Lowering, call: Call) -> Value:
    """x / sqrt(mean of squares + epsilon), scaled."""
    x = low.promote(call.value(0))
    axis = call.axis("axis", -1, len(x.shape))
    rows = x.reshaped((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    mean = average(low, low.function("pow", rows, 2.0))
    spread = low.function("sqrt", low.add_constant(mean, known(_epsilon(call))))
    scaled = low.product(rows, low.reciprocal(spread).reshaped((rows.shape[0], 1)))
    return low.scale(scaled.reshaped(x.shape), as_float(call.constant(1)))


def lower_group_norm(low: Lowering, call: Call) -> Value:
    """An instance normalisation of channels in groups; scale and bias are per channel since version 21."""
    x, groups = low.promote(call.value(0)), call.integer("num_groups", 0)
    scale, bias = as_float(call.constant(1)), as_float(call.constant(2))
    count = x.shape[1] if len(x.shape) > 1 else 0
    if groups < 1 or not count or count % groups:
        raise Malformed("channels that fill the groups", f"{groups} groups of {x.shape}")
    if call.opset < 21:
        scale, bias = (k.moved(lambda a: np.repeat(a, count // groups)) for k in (scale, bias))
    if scale.shape != (count,) or bias.shape != scale.shape:
        raise Malformed("one number per channel", f"{scale.shape} for {x.shape}")
    whitened, _, _ = _standardised(low, x.reshaped((x.shape[0] * groups, -1)), _epsilon(call))
    per_channel = (count,) + (1,) * (len(x.shape) - 2)
    return low.scale(whitened.reshaped(x.shape), _shaped(scale, per_channel), _shaped(bias, per_channel))


def _shaped(numbers: Known, shape: tuple[int, ...]) -> Known:
    return numbers.reshaped(shape)


HANDLERS = {
    "Softmax": lower_softmax,
    "LogSoftmax": lower_log_softmax,
    "LayerNormalization": lower_layer_norm,
    "InstanceNormalization": lower_instance_norm,
    "RMSNormalization": lower_rms_norm,
    "GroupNormalization": lower_group_norm,
}
