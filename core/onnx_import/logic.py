"""Comparisons and roundings: folded on constants, step functions of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verifolio.onnx_import import exact
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View, known

Table = tuple[float, float, float]  # below, at and above the breakpoint


def _settled(call: Call, position: int) -> Any:
    """The numbers of a constant input, where a rounding of a folded constant cannot matter."""
    value = call.value(position)
    if isinstance(value, View):
        raise Refused("not continuous in a variable")
    if value.error is not None or value.single is not None:
        raise Refused("a decision that hinges on the last bits of a folded constant")
    return value.value


def difference(low: Lowering, a: Value, b: Value) -> View:
    """a - b, of which at least one varies."""
    low.common_shape(a, b)
    if isinstance(b, Known):
        return low.add_constant(low.promote(a), exact.negate(as_float(b)))
    return low.subtract_from(as_float(a), b) if isinstance(a, Known) else low.sum((1.0, -1.0), a, b)


def heaviside(low: Lowering, view: View, table: Table) -> View:
    """A step at zero."""
    below, at, above = table
    return low.step(view, (0.0,), (below, above), (at,))


def _compare(
    function: Callable[[Any, Any], Any], table: Table, swapped: bool = False
) -> Callable[[Lowering, Call], Value]:
    def lower(low: Lowering, call: Call) -> Value:
        a, b = call.value(1 if swapped else 0), call.value(0 if swapped else 1)
        if isinstance(a, View) or isinstance(b, View):
            return heaviside(low, difference(low, a, b), table)
        return _folded(low, call, function)

    return lower


def _folded(low: Lowering, call: Call, function: Callable[[Any, Any], Any]) -> Value:
    a, b = _settled(call, 0), _settled(call, 1)
    low.charge(np.broadcast_shapes(a.shape, b.shape))
    return Known(np.asarray(function(a, b)))


def both(low: Lowering, a: View, b: View) -> View:
    """a and b, each 0 or 1: relu(a + b - 1)."""
    return low.relu(low.add_constant(low.sum((1.0, 1.0), a, b), known(-1.0)))


def _or(low: Lowering, a: View, b: View) -> View:
    return low.sum((1.0, 1.0, -1.0), a, b, both(low, a, b))


def _xor(low: Lowering, a: View, b: View) -> View:
    return low.sum((1.0, 1.0, -2.0), a, b, both(low, a, b))


def _logical(
    function: Callable[[Any, Any], Any], build: Callable[[Lowering, View, View], View]
) -> Callable[[Lowering, Call], Value]:
    def lower(low: Lowering, call: Call) -> Value:
        a, b = call.value(0), call.value(1)
        low.common_shape(a, b)
        if isinstance(a, Known) and isinstance(b, Known):
            return _folded(low, call, function)
        return build(low, low.promote(a), low.promote(b))

    return lower


def lower_not(low: Lowering, call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, View):
        return low.subtract_from(known(1.0), x)
    return Known(np.logical_not(_settled(call, 0)))


def _rounding(function: Callable[[Any], Any], build: Callable[[Lowering, View], View]) -> Any:
    def lower(low: Lowering, call: Call) -> Value:
        x = call.value(0)
        return build(low, x) if isinstance(x, View) else Known(np.asarray(function(_settled(call, 0))))

    return lower


def _negative(low: Lowering, view: View) -> View:
    return low.sum((-1.0,), view)


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
    "Equal": _compare(np.equal, (0.0, 1.0, 0.0)),
    "Less": _compare(np.less, (0.0, 0.0, 1.0), swapped=True),
    "LessOrEqual": _compare(np.less_equal, (0.0, 1.0, 1.0), swapped=True),
    "Greater": _compare(np.greater, (0.0, 0.0, 1.0)),
    "GreaterOrEqual": _compare(np.greater_equal, (0.0, 1.0, 1.0)),
    "And": _logical(np.logical_and, both),
    "Or": _logical(np.logical_or, _or),
    "Xor": _logical(np.logical_xor, _xor),
    "Not": lower_not,
    "Floor": _rounding(np.floor, lambda low, x: low.whole(x, "floor")),
    "Ceil": _rounding(np.ceil, lambda low, x: _negative(low, low.whole(_negative(low, x), "floor"))),
    "Round": _rounding(np.rint, lambda low, x: low.whole(x, "round")),
    "Sign": _rounding(np.sign, lambda low, x: heaviside(low, x, (-1.0, 0.0, 1.0))),
    "Mod": lower_mod,
    "Range": lower_range,
}
