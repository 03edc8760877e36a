"""Operators that steer shapes: they are folded on constants and refused on variables, being discontinuous."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View


def _settled(call: Call, position: int) -> Any:
    """The numbers of a constant input, where a rounding of a folded constant cannot matter."""
    value = call.value(position)
    if isinstance(value, View):
        raise Refused("not continuous in a variable")
    if value.error is not None:
        raise Refused("a decision that hinges on the last bits of a folded constant")
    return value.value


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Lowering, Call], Value]:
    def lower(low: Lowering, call: Call) -> Value:
        a, b = _settled(call, 0), _settled(call, 1)
        low.charge(np.broadcast_shapes(a.shape, b.shape))
        return Known(np.asarray(function(a, b)))

    return lower


def _single(function: Callable[[Any], Any]) -> Callable[[Lowering, Call], Value]:
    def lower(low: Lowering, call: Call) -> Value:
        return Known(np.asarray(function(_settled(call, 0))))

    return lower


def lower_mod(low: Lowering, call: Call) -> Value:
    a, b = _settled(call, 0), _settled(call, 1)
    low.charge(np.broadcast_shapes(a.shape, b.shape))
    if not np.all(b):
        raise Malformed("a divisor other than zero", "zero")
    return Known(np.fmod(a, b) if call.integer("fmod", 0) else np.mod(a, b))


def lower_range(low: Lowering, call: Call) -> Value:
    start, limit, step = (_settled(call, i).ravel()[0] for i in range(3))
    if step == 0 or not np.isfinite([float(start), float(limit), float(step)]).all():
        raise Malformed("a finite range with a step", f"{start}, {limit}, {step}")
    low.charge(max(0, int(np.ceil((float(limit) - float(start)) / float(step)))))
    return Known(np.arange(start, limit, step))


HANDLERS = {
    "Equal": _binary(np.equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Xor": _binary(np.logical_xor),
    "Not": _single(np.logical_not),
    "Floor": _single(np.floor),
    "Ceil": _single(np.ceil),
    "Round": _single(np.rint),
    "Sign": _single(np.sign),
    "Mod": lower_mod,
    "Range": lower_range,
}
