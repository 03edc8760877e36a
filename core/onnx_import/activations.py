"""Activation functions: affine maps and ReLU where that is exact, smooth functions otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from verifolio.onnx_import import exact
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.values import Known, Refused, Value, View, known

LARGEST = float(np.finfo(np.float32).max)
Unary = Callable[[Lowering, View, Call], View]


def _unary(build: Unary) -> Callable[[Lowering, Call], Value]:
    def lower(low: Lowering, call: Call) -> Value:
        return build(low, low.promote(call.value(0)), call)

    return lower


def _smooth(name: str) -> Callable[[Lowering, Call], Value]:
    return _unary(lambda low, x, call: low.function(name, x))


def _single(call: Call, name: str, default: float) -> float:
    """A float attribute; defaults count as the float32 number nearest to them."""
    return float(np.float32(call.number(name, default)))


def _relu(low: Lowering, x: View, call: Call) -> View:
    return low.relu(x)


def leaky(low: Lowering, x: View, slope: Known) -> View:
    """slope * x + (1 - slope) * relu(x)."""
    rest = exact.subtract(known(1.0), slope)
    return low.sum((1.0, 1.0), low.scale(x, slope), low.scale(low.relu(x), rest))


def _leaky(low: Lowering, x: View, call: Call) -> View:
    return leaky(low, x, known(_single(call, "alpha", 0.01)))


def lower_prelu(low: Lowering, call: Call) -> Value:
    return leaky(low, low.promote(call.value(0)), as_float(call.constant(1)))


def absolute(low: Lowering, x: View) -> View:
    """2 relu(x) - x: one neuron, and its triangle relaxation is the hull of |x|."""
    return low.sum((2.0, -1.0), low.relu(x), x)


def clip(low: Lowering, x: View, lower: float, upper: float) -> View:
    """min(max(x, lower), upper), written so that interval bounds stay between lower and upper."""
    if max(abs(lower), abs(upper)) <= 2.0**20:
        above = low.relu(low.add_constant(x, known(-lower)))
        gap = exact.subtract(known(upper), known(lower))
        return low.subtract_from(known(upper), low.relu(low.subtract_from(gap, above)))
    if lower > -LARGEST:
        x = low.limit(x, known(lower), 1.0)
    return low.limit(x, known(upper), -1.0) if upper < LARGEST else x


def lower_clip(low: Lowering, call: Call) -> Value:
    limits = [call.number("min", -math.inf), call.number("max", math.inf)]
    for i in (1, 2):
        if call.has(i):
            limit = call.constant(i)
            if limit.value.size != 1 or limit.error is not None or np.isnan(limit.value).any():
                raise Refused("Clip with limits other than two stored numbers")
            low.expect_stored(limit)
            limits[i - 1] = float(limit.value.ravel()[0])
    x = call.value(0)
    if isinstance(x, Known) and not x.is_float:
        ends = [call.constant(i).value.ravel()[0] if call.has(i) else None for i in (1, 2)]
        return Known(np.clip(x.value, *ends))
    if limits[0] > limits[1]:  # by the standard the upper limit wins
        return known(np.full(x.shape, limits[1]))
    return clip(low, low.promote(x), *limits)


def _hard_sigmoid(low: Lowering, x: View, alpha: float, beta: float) -> View:
    return clip(low, low.scale(x, known(alpha), known(beta)), 0.0, 1.0)


def _hard_swish(low: Lowering, x: View, call: Call) -> View:
    sixth = exact.divide(known(1.0), known(6.0))
    return low.product(x, clip(low, low.scale(x, sixth, known(0.5)), 0.0, 1.0))


def _negative_part(low: Lowering, x: View) -> View:
    """min(x, 0) = x - relu(x)."""
    return low.sum((1.0, -1.0), x, low.relu(x))


def _exponential_unit(low: Lowering, x: View, alpha: float, gamma: float, inner: Known) -> View:
    """gamma * (relu(x) + alpha * (exp(inner * min(x, 0)) - 1))."""
    part = low.function("exp", low.scale(_negative_part(low, x), inner))
    bent = low.scale(part, known(alpha), known(-alpha))
    return low.times(low.sum((1.0, 1.0), low.relu(x), bent), gamma)


def _elu(low: Lowering, x: View, call: Call) -> View:
    return _exponential_unit(low, x, _single(call, "alpha", 1.0), 1.0, known(1.0))


def _selu(low: Lowering, x: View, call: Call) -> View:
    alpha = _single(call, "alpha", 1.6732632423543772)
    return _exponential_unit(low, x, alpha, _single(call, "gamma", 1.0507009873554805), known(1.0))


def _celu(low: Lowering, x: View, call: Call) -> View:
    alpha = _single(call, "alpha", 1.0)
    return _exponential_unit(low, x, alpha, 1.0, exact.divide(known(1.0), known(alpha)))


def _softsign(low: Lowering, x: View, call: Call) -> View:
    return low.product(x, low.reciprocal(low.add_constant(absolute(low, x), known(1.0))))


def _mish(low: Lowering, x: View, call: Call) -> View:
    return low.product(x, low.function("tanh", low.function("softplus", x)))


def _gelu(low: Lowering, x: View, call: Call) -> View:
    """x / 2 * (1 + erf(x / sqrt 2)), or its tanh approximation."""
    if call.text("approximate", "none") == "tanh":
        cubic = low.scale(low.function("pow", x, 3.0), known(float(np.float32(0.044715))))
        factor = exact.root(exact.divide(known(2.0), known(math.pi, np.array(2.0**-51))))
        gate = low.function("tanh", low.scale(low.sum((1.0, 1.0), x, cubic), factor))
    else:
        gate = low.function("erf", low.scale(x, exact.root(known(0.5))))
    return low.product(x, low.scale(gate, known(0.5), known(0.5)))


def _swish(low: Lowering, x: View, call: Call) -> View:
    gate = low.function("sigmoid", low.scale(x, known(_single(call, "alpha", 1.0))))
    return low.product(x, gate)


HANDLERS = {
    "Relu": _unary(_relu),
    "LeakyRelu": _unary(_leaky),
    "PRelu": lower_prelu,
    "Abs": _unary(lambda low, x, call: absolute(low, x)),
    "Clip": lower_clip,
    "HardSigmoid": _unary(
        lambda low, x, call: _hard_sigmoid(low, x, _single(call, "alpha", 0.2), _single(call, "beta", 0.5))
    ),
    "HardSwish": _unary(_hard_swish),
    "Elu": _unary(_elu),
    "Selu": _unary(_selu),
    "Celu": _unary(_celu),
    "Softsign": _unary(_softsign),
    "Mish": _unary(_mish),
    "Gelu": _unary(_gelu),
    "Swish": _unary(_swish),
    "Sigmoid": _smooth("sigmoid"),
    "Tanh": _smooth("tanh"),
    "Exp": _smooth("exp"),
    "Log": _smooth("log"),
    "Sin": _smooth("sin"),
    "Cos": _smooth("cos"),
    "Erf": _smooth("erf"),
    "Softplus": _smooth("softplus"),
}
