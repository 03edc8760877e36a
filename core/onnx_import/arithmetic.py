"""Arithmetic between tensors: folded between constants, affine with one constant, products otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from verifolio.onnx_import import exact
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.linear import add
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.plumbing import concat_views
from verifolio.onnx_import.values import Known, Refused, Value, View, joined, known

MAX_EXPONENT = 64  # a power becomes that many products at most


def _checked(low: Lowering, call: Call) -> tuple[Value, Value]:
    if call.opset < 7 and call.integer("broadcast", 0):
        raise Refused(f"{call.op} with the broadcasting of operator sets before 7")
    a, b = call.value(0), call.value(1)
    low.common_shape(a, b)
    return a, b


def lower_add(low: Lowering, call: Call) -> Value:
    return add(low, *_checked(low, call))


def lower_sub(low: Lowering, call: Call) -> Value:
    a, b = _checked(low, call)
    if isinstance(a, Known) and isinstance(b, Known):
        return exact.subtract(a, b)
    if isinstance(b, Known):
        return add(low, a, exact.negate(b))
    if isinstance(a, Known):
        return low.subtract_from(as_float(a), b)
    return low.sum((1.0, -1.0), a, b)


def lower_mul(low: Lowering, call: Call) -> Value:
    return multiply(low, *_checked(low, call))


def multiply(low: Lowering, a: Value, b: Value) -> Value:
    if isinstance(a, Known) and isinstance(b, Known):
        return exact.multiply(a, b)
    if isinstance(a, Known):
        a, b = b, a
    view = low.promote(a)
    return low.scale(view, as_float(b)) if isinstance(b, Known) else low.product(view, b)


def lower_div(low: Lowering, call: Call) -> Value:
    a, b = _checked(low, call)
    if isinstance(b, View):
        inverse = low.reciprocal(b)
        return multiply(low, a, inverse)
    if isinstance(a, Known):
        return exact.divide(a, b)
    return low.scale(a, exact.divide(known(1.0), as_float(b)))


def lower_neg(low: Lowering, call: Call) -> Value:
    x = call.value(0)
    return exact.negate(x) if isinstance(x, Known) else low.sum((-1.0,), x)


def lower_sum(low: Lowering, call: Call) -> Value:
    total = call.value(0)
    for i in range(1, len(call.inputs)):
        low.common_shape(total, call.value(i))
        total = add(low, total, call.value(i))
    return total


def lower_mean(low: Lowering, call: Call) -> Value:
    inverse = exact.divide(known(1.0), known(float(len(call.inputs))))
    return multiply(low, lower_sum(low, call), inverse)


def lower_pow(low: Lowering, call: Call) -> Value:
    base, exponents = call.value(0), call.constant(1)
    if exponents.error is not None:
        raise Refused("Pow with an exponent that is a rounded constant")
    low.expect_stored(exponents)
    shape = low.common_shape(base, exponents)
    if isinstance(base, Known) and not base.is_float:
        return _integer_power(base, exponents)
    distinct = sorted({float(e) for e in exponents.value.ravel()})
    if isinstance(base, Known) and distinct == [2.0]:
        return exact.multiply(base, base).broadcast(shape)
    view = low.promote(base)
    index = np.broadcast_to(view.index, shape)
    if len(distinct) == 1:
        return power(low, View(view.node, index), distinct[0])
    chosen = [np.flatnonzero(np.broadcast_to(exponents.value, shape).ravel() == e) for e in distinct]
    groups = [View(view.node, index.ravel()[c]) for c in chosen]
    parts = [low.promote(power(low, g, e)) for g, e in zip(groups, distinct, strict=True)]
    place = np.argsort(np.concatenate(chosen))
    return concat_views(low, parts, 0).moved(lambda a: a[place].reshape(shape))


def _integer_power(base: Known, exponents: Known) -> Known:
    """Powers of integers that are integers; ONNX Runtime computes in doubles, so larger ones are refused."""
    wanted = np.broadcast_arrays(base.value, exponents.value)
    if bool((exponents.value < 0).any()) or bool((exponents.value != np.trunc(exponents.value)).any()):
        raise Refused("Pow of integers with an exponent that is not a whole number >= 0")
    limits = np.iinfo(base.value.dtype)
    most = min(limits.max, 2**53)
    if bool((exponents.value > 64).any()):
        raise Refused("Pow of integers with an exponent above 64")
    powers = [int(b) ** int(e) for b, e in zip(wanted[0].ravel(), wanted[1].ravel(), strict=True)]
    if any(not max(limits.min, -most) <= p <= most for p in powers):
        raise Refused("Pow of integers beyond the range of their type")
    return Known(np.array(powers, base.value.dtype).reshape(wanted[0].shape))


def power(low: Lowering, x: View, exponent: float) -> Value:
    """x ** p: integers as `pow`, a half as a root, others as exp(p log x), which is defined where x > 0."""
    if exponent == 0.0:
        return known(np.ones(x.shape))
    if exponent == 1.0:
        return x
    if exponent == 0.5:
        return low.function("sqrt", x)
    if exponent < 0:
        positive = power(low, x, -exponent)
        return low.reciprocal(low.promote(positive))
    if exponent.is_integer() and exponent <= MAX_EXPONENT:
        return low.function("pow", x, exponent)
    if not math.isfinite(exponent) or exponent > MAX_EXPONENT:
        raise Refused(f"Pow with exponent {exponent}")
    return low.function("exp", low.times(low.function("log", x), exponent))


def lower_sqrt(low: Lowering, call: Call) -> Value:
    x = call.value(0)
    return exact.root(as_float(x)) if isinstance(x, Known) else low.function("sqrt", x)


def lower_reciprocal(low: Lowering, call: Call) -> Value:
    x = call.value(0)
    return exact.divide(known(1.0), as_float(x)) if isinstance(x, Known) else low.reciprocal(x)


def extreme(low: Lowering, a: Value, b: Value, sign: float) -> Value:
    """max(a, b) for sign 1, min(a, b) = -max(-a, -b) for sign -1."""
    if isinstance(a, Known) and isinstance(b, Known):
        return _extreme_known(a, b, sign)
    if isinstance(a, Known):
        a, b = b, a
    view = low.promote(a)
    if isinstance(b, View):
        if sign > 0:
            return low.maximum(view, b)
        return low.sum((1.0, -1.0), view, low.relu(low.sum((1.0, -1.0), view, b)))
    return low.limit(view, as_float(b), sign)


def _extreme_known(a: Known, b: Known, sign: float) -> Known:
    value = np.maximum(a.value, b.value) if sign > 0 else np.minimum(a.value, b.value)
    if a.error is None and b.error is None:
        return joined(value, None, a, b)
    errors = [np.zeros(k.shape) if k.error is None else k.error for k in (a, b)]
    return joined(value, np.maximum(*errors), a, b)


def _lower_extreme(sign: float) -> Callable[[Lowering, Call], Value]:
    def lower(low: Lowering, call: Call) -> Value:
        best = call.value(0)
        for i in range(1, len(call.inputs)):
            low.common_shape(best, call.value(i))
            best = extreme(low, best, call.value(i), sign)
        return best

    return lower


_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
_INTEGERS: dict[int, Any] = {
    getattr(onnx.TensorProto, name.upper()): np.dtype(name)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}


# Variables must stay that small: outside of the type a Cast is undefined, and sums of what it gives must fit too.
_ROOM = {onnx.TensorProto.INT32: 2.0**20, onnx.TensorProto.INT64: 2.0**50}


def lower_cast(low: Lowering, call: Call) -> Value:
    """Constants are converted; variables keep their exact value between float and double."""
    x, target = call.value(0), call.integer("to", 0)
    if isinstance(x, View):
        return _cast_view(low, x, target)
    if target == onnx.TensorProto.BOOL:
        if x.error is not None and bool((np.abs(x.value) <= x.error).any()):
            raise Refused("a Cast that hinges on the last bits of a folded constant")
        return Known(x.value != 0)
    if target in _FLOATS:
        return _cast_float(x, target)
    if target in _INTEGERS:
        return _cast_integer(x, _INTEGERS[target])
    raise Refused(f"a Cast to type {target}")


def _cast_view(low: Lowering, x: View, target: int) -> View:
    """Floats are cut off towards zero; integers stay what they are in types that hold all that occur."""
    if target in _FLOATS[:2]:
        return x
    if target == onnx.TensorProto.BOOL:
        return low.step(x, (0.0,), (1.0, 1.0), (0.0,))
    if target not in _ROOM:
        raise Refused("a Cast of a variable to a type that rounds or is narrow")
    return low.whole(x, "trunc", (-_ROOM[target], _ROOM[target]))


def _cast_float(x: Known, target: int) -> Known:
    if x.error is not None or target == onnx.TensorProto.DOUBLE:
        number = np.asarray(x.value, np.float64)
        single = None if x.error is None and x.single is None else _single_cast(x)
        return Known(number, x.error, target == onnx.TensorProto.DOUBLE, single)
    if x.wide or not x.is_float or target == onnx.TensorProto.FLOAT16:
        narrow = np.float16 if target == onnx.TensorProto.FLOAT16 else np.float32
        single = None if x.single is None else _single_cast(x)
        return Known(x.value.astype(narrow).astype(np.float64), None, False, single)
    return x


def _single_cast(x: Known) -> Any:
    """How far a folded number lies from the exact one once it is rounded to single precision."""
    rounding = np.abs(x.value) * exact.SINGLE + exact.SMALLEST
    return rounding if x.single is None else x.single + rounding


def _cast_integer(x: Known, kind: Any) -> Known:
    """Truncation; what does not fit is refused, because the standard leaves it undefined."""
    if x.error is not None and bool((np.abs(x.value - np.rint(x.value)) <= x.error).any()):
        raise Refused("a Cast that hinges on the last bits of a folded constant")
    whole, limits = np.trunc(x.value) if x.is_float else x.value, np.iinfo(kind)
    if not all(limits.min <= int(v) <= limits.max for v in _extremes(whole)):
        raise Refused(f"a Cast to {kind.name} of numbers that it cannot hold")
    return Known(whole.astype(kind))


def _extremes(numbers: Any) -> tuple[Any, ...]:
    """The smallest and the largest of finite numbers, as they are."""
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise Refused("a Cast of NaN or infinity to integers")
    return (numbers.min(), numbers.max()) if numbers.size else ()


HANDLERS = {
    "Add": lower_add,
    "Sub": lower_sub,
    "Mul": lower_mul,
    "Div": lower_div,
    "Neg": lower_neg,
    "Sum": lower_sum,
    "Mean": lower_mean,
    "Pow": lower_pow,
    "Sqrt": lower_sqrt,
    "Reciprocal": lower_reciprocal,
    "Max": _lower_extreme(1.0),
    "Min": _lower_extreme(-1.0),
    "Cast": lower_cast,
}
