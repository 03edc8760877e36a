"""Quantised operators: whole numbers, and steps where they are rounded. The standard's semantics: halves to even."""

from __future__ import annotations

import numpy as np

from verifolio.onnx_import import exact
from verifolio.onnx_import.arithmetic import multiply
from verifolio.onnx_import.call import Call, normal_axis
from verifolio.onnx_import.linear import add, lower_conv, matmul
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View, known

_TYPES = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}


def _zero(call: Call, position: int) -> Known:
    """A zero point; left out it is that of uint8."""
    return call.constant(position) if call.has(position) else Known(np.zeros((), np.uint8))


def _scale(call: Call, position: int) -> Known:
    scale = as_float(call.constant(position))
    if scale.error is not None or not bool((scale.value > 0).all()):
        raise Malformed("a stored scale > 0", f"{scale.value.ravel()[:3]}")
    return scale


def _along(numbers: Known, call: Call, rank: int) -> Known:
    """One number, or one for each entry of an axis."""
    if numbers.value.size == 1:
        return numbers.reshaped(())
    axis = normal_axis(call.integer("axis", 1), rank)
    return numbers.reshaped(tuple(-1 if i == axis else 1 for i in range(rank)))


def _rounded(low: Lowering, x: View, zero: Known) -> View:
    """saturate(round(x) + zero): one step for each level of the type."""
    limits = _TYPES.get(zero.value.dtype)
    if limits is None or np.unique(zero.value).size != 1:
        raise Refused("quantisation to a type other than int8 or uint8, or with several zero points")
    shift = float(zero.value.ravel()[0])
    levels = np.arange(limits[0], limits[1] + 1, dtype=np.float64)
    breakpoints = levels[:-1] - shift + 0.5
    return low.step(x, breakpoints, levels, np.round(breakpoints) + shift)  # type: ignore[arg-type]


def lower_quantize(low: Lowering, call: Call) -> Value:
    """Rounds x / scale."""
    x, scale, zero = call.value(0), _scale(call, 1), _zero(call, 2)
    if call.integer("block_size", 0):
        raise Refused("quantisation in blocks")
    inverse = exact.divide(known(1.0), _along(scale, call, len(x.shape)))
    if isinstance(x, Known):
        return _folded(as_float(x), _along(scale, call, len(x.shape)), _along(zero, call, len(x.shape)))
    return _rounded(low, low.scale(x, inverse), zero)


def _folded(x: Known, scale: Known, zero: Known) -> Known:
    ratio = x.value / scale.value
    # three roundings of single precision around a half
    near = np.abs(np.abs(ratio - np.floor(ratio)) - 0.5) <= 3 * exact.SINGLE * np.abs(ratio)
    if x.error is not None or x.single is not None or bool(near.any()):
        raise Refused("a quantised constant that hinges on its last bits")
    limits = _TYPES.get(zero.value.dtype)
    if limits is None:
        raise Refused("quantisation to a type other than int8 or uint8")
    return Known(np.clip(np.round(ratio) + zero.value, *limits).astype(zero.value.dtype))


def _minus(low: Lowering, x: Value, zero: Known) -> Value:
    """x - zero, as floats that hold whole numbers."""
    if isinstance(x, Known):
        return known(x.value.astype(np.float64) - zero.value.astype(np.float64))
    return low.add_constant(x, known(-zero.value.astype(np.float64)))


def lower_dequantize(low: Lowering, call: Call) -> Value:
    """(x - zero) * scale."""
    x = call.value(0)
    if call.integer("block_size", 0):
        raise Refused("quantisation in blocks")
    zero, scale = (_along(k, call, len(x.shape)) for k in (_zero(call, 2), _scale(call, 1)))
    return multiply(low, _minus(low, x, zero), scale)


def _factor(call: Call, *positions: int) -> Known:
    """scale * scale / scale of three inputs."""
    first, second, last = (_scale(call, p) for p in positions)
    return exact.divide(exact.multiply(first, second), last)


def _columns(numbers: Known, rank: int) -> Known:
    """A scale or zero point of a matrix: one number, or one for each column."""
    return numbers.reshaped(()) if numbers.value.size == 1 else numbers.reshaped((1,) * (rank - 1) + (-1,))


def lower_qlinear_matmul(low: Lowering, call: Call) -> Value:
    a, b = call.value(0), call.constant(3)
    left = _minus(low, a, _columns(_zero(call, 2), 1))
    right = _minus(low, b, _columns(_zero(call, 5), len(b.shape)))
    product = matmul(low, left, right)
    scale = _columns(_factor(call, 1, 4, 6), len(product.shape))
    return _rounded(low, low.scale(low.promote(product), scale), _zero(call, 7))


def lower_qgemm(low: Lowering, call: Call) -> Value:
    """ONNX Runtime's own operator, as its quantiser writes it: round(alpha (a - za)(b - zb) + c) scaled."""
    a, b = call.value(0), call.constant(3)
    if call.integer("transA", 0) or call.number("alpha", 1.0) != 1.0 or not call.has(7):
        raise Refused("QGemm with transA, alpha or a float output")
    b = b.moved(np.transpose) if call.integer("transB", 0) else b
    product = matmul(
        low, _minus(low, a, _columns(_zero(call, 2), 1)), _minus(low, b, _columns(_zero(call, 5), 2))
    )
    if call.has(6):
        product = add(low, product, as_float(call.constant(6)))
    scale = _columns(_factor(call, 1, 4, 7), 2)
    return _rounded(low, low.scale(low.promote(product), scale), _zero(call, 8))


def lower_qlinear_add(low: Lowering, call: Call) -> Value:
    """ONNX Runtime's own operator; zero points are subtracted last, as its kernel does it."""
    target, shifts = _scale(call, 6), []
    total: Value | None = None
    for k in (0, 3):
        ratio = exact.divide(_scale(call, k + 1), target).reshaped(())
        value = call.value(k)
        term = multiply(low, as_float(value) if isinstance(value, Known) else value, ratio)
        total = term if total is None else add(low, total, term)
        shifts.append(exact.negate(exact.multiply(as_float(_zero(call, k + 2)).reshaped(()), ratio)))
    if total is None or isinstance(total, Known):
        raise Refused("QLinearAdd of constants")
    for shift in shifts:
        total = low.add_constant(total, shift)
    return _rounded(low, total, _zero(call, 7))


def _channels(numbers: Known, rank: int, axis: int) -> Known:
    if numbers.value.size == 1:
        return numbers.reshaped(())
    return numbers.reshaped(tuple(-1 if i == axis else 1 for i in range(rank)))


def _convolved(low: Lowering, call: Call, x: Value, weight: Known, bias: Known | None) -> View:
    inner = Call(
        "Conv", [x, weight, bias] if bias is not None else [x, weight], call.attributes, 1, call.opset
    )
    return low.promote(lower_conv(low, inner))


def lower_qlinear_conv(low: Lowering, call: Call) -> Value:
    """Pads hold the zero point, which is 0 once it is subtracted."""
    x, weight = call.value(0), call.constant(3)
    rank = len(weight.shape)
    left = _minus(low, x, _channels(_zero(call, 2), 1, 0))
    right = _minus(low, weight, _channels(_zero(call, 5), rank, 0))
    bias = as_float(call.constant(8)) if call.has(8) else None
    total = _convolved(low, call, left, _as_known(right), bias)
    scale = _channels(_factor(call, 1, 4, 6), rank, 1)
    return _rounded(low, low.scale(total, scale), _zero(call, 7))


def _as_known(value: Value) -> Known:
    if isinstance(value, View):
        raise Refused("weights that are computed from the input")
    return value


def lower_matmul_integer(low: Lowering, call: Call) -> Value:
    a, b = call.value(0), call.constant(1)
    left = _minus(low, a, _columns(_zero(call, 2), 1))
    return matmul(low, left, _minus(low, b, _columns(_zero(call, 3), len(b.shape))))


def lower_conv_integer(low: Lowering, call: Call) -> Value:
    weight = call.constant(1)
    left = _minus(low, call.value(0), _channels(_zero(call, 2), 1, 0))
    right = _minus(low, weight, _channels(_zero(call, 3), len(weight.shape), 0))
    return _convolved(low, call, left, _as_known(right), None)


HANDLERS = {
    "QuantizeLinear": lower_quantize,
    "DequantizeLinear": lower_dequantize,
    "QLinearMatMul": lower_qlinear_matmul,
    "QLinearConv": lower_qlinear_conv,
    "MatMulInteger": lower_matmul_integer,
    "ConvInteger": lower_conv_integer,
}
# operators of ONNX Runtime's own domain that its quantiser writes
MICROSOFT = {"QGemm": lower_qgemm, "QLinearAdd": lower_qlinear_add}
