"""Resizing images: nearest neighbours are a view, linear interpolation a sparse matrix per axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from verifolio.onnx_import.call import Call, normal_axis
from verifolio.onnx_import.lowering import Lowering
from verifolio.onnx_import.values import Known, Malformed, Refused, Shape, Value, View, known

HALF = Fraction(1, 2)
_ROUND: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - HALF),
    "round_prefer_ceil": lambda x: math.floor(x + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _coordinate(mode: str, x: int, scale: Fraction, size: int, target: int) -> Fraction:
    """Where output entry `x` lies on the input axis, exactly."""
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return Fraction(x * (size - 1), target - 1) if target > 1 else Fraction(0)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and target > 1):
        return (x + HALF) / scale - HALF
    if mode == "pytorch_half_pixel":
        return Fraction(0)
    raise Refused(f"Resize with coordinates {mode!r}")


def _targets(call: Call, shape: Shape) -> list[tuple[int, Fraction]]:
    """Output size and scale of each axis."""
    scales = _scales(call)
    if scales is None:
        sizes = call.integers_at(3)
        if sizes is None:
            raise Malformed("scales or sizes", "neither")
        if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Refused("Resize that keeps the aspect ratio")
        pairs = [(s, Fraction(s, n)) for s, n in zip(sizes, _listed(call, shape), strict=True)]
    else:
        pairs = [(int(n * s), s) for s, n in zip(scales, _listed(call, shape), strict=True)]
    if any(size < 1 for size, _ in pairs):
        raise Malformed("sizes of at least 1", f"{[size for size, _ in pairs]}")
    full = [(n, Fraction(1)) for n in shape]
    for axis, pair in zip(_listed_axes(call, len(shape)), pairs, strict=True):
        full[axis] = pair
    return full


def _listed_axes(call: Call, rank: int) -> Shape:
    axes = call.integers("axes")
    return tuple(range(rank)) if axes is None else tuple(normal_axis(a, rank) for a in axes)


def _listed(call: Call, shape: Shape) -> Shape:
    return tuple(shape[a] for a in _listed_axes(call, len(shape)))


def _scales(call: Call) -> list[Fraction] | None:
    stored: Known | None = None
    if "scales" in call.attributes:
        stored = known(np.array(call.attributes["scales"], np.float64))
    else:
        position = 1 if call.op == "Upsample" or call.opset < 11 else 2
        if call.has(position):
            stored = call.constant(position)
    if stored is None or stored.value.size == 0:
        return None
    if stored.error is not None or not np.isfinite(stored.value).all() or (stored.value <= 0).any():
        raise Malformed("scales above zero", f"{stored.value}")
    return [Fraction(float(s)) for s in stored.value.ravel()]


def lower_resize(low: Lowering, call: Call) -> Value:
    x = low.promote(call.value(0))
    old = call.op == "Upsample" or call.opset < 11
    mode = call.text("mode", "nearest")
    frame = call.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    rounding = call.text("nearest_mode", "floor" if old else "round_prefer_floor")
    if call.integer("antialias", 0):
        raise Refused("Resize with antialiasing")
    if mode not in ("nearest", "linear", "bilinear"):
        raise Refused(f"Resize with mode {mode!r}")
    if rounding not in _ROUND:
        raise Malformed("a nearest_mode", f"{rounding!r}")
    targets = _targets(call, x.shape)
    low.charge(math.prod(size for size, _ in targets))
    for axis, (target, scale) in enumerate(targets):
        size = x.shape[axis]
        if target == size and scale == 1:
            continue
        low.charge(target)
        at = [_coordinate(frame, i, scale, size, target) for i in range(target)]
        if mode == "nearest":
            picks = [min(max(_ROUND[rounding](c), 0), size - 1) for c in at]
            x = x.moved(lambda a, picks=picks, axis=axis: np.take(a, picks, axis=axis))
        else:
            x = _interpolate(low, x, axis, [min(max(c, Fraction(0)), Fraction(size - 1)) for c in at])
    return x


def _interpolate(low: Lowering, x: View, axis: int, at: list[Fraction]) -> View:
    """Weights 1 - f and f of the two neighbours of each coordinate, with the error of storing them."""
    size = x.shape[axis]
    base = np.array([math.floor(c) for c in at])
    parts = [c - math.floor(c) for c in at]
    exact_weights = [(1 - f, f) for f in parts]
    weight = np.array([[float(a), float(b)] for a, b in exact_weights])
    error = np.array(
        [
            [_rounding(e, float(w)) for e, w in zip(pair, row, strict=True)]
            for pair, row in zip(exact_weights, weight, strict=True)
        ]
    )
    taps = np.stack([base, np.minimum(base + 1, size - 1)], axis=1)
    low.charge(x.size // size * taps.size)
    moved = x.moved(lambda a: np.take(np.moveaxis(a, axis, -1), taps, axis=-1))  # (..., target, 2)
    inside = np.broadcast_to(weight != 0, moved.shape)
    moved = View(moved.node, np.where(inside, moved.index, -1))
    shape = moved.shape[:-1]
    rows = np.broadcast_to(np.arange(math.prod(shape)).reshape(*shape, 1), moved.shape)
    out = low.gather_sum(moved, rows, known(weight, error).broadcast(moved.shape), shape)
    return out.moved(lambda a: np.moveaxis(a, -1, axis))


def _rounding(number: Fraction, stored: float) -> float:
    gap = abs(number - Fraction(stored))
    return 0.0 if gap == 0 else float(gap) * (1 + 2.0**-50)


HANDLERS = {"Resize": lower_resize, "Upsample": lower_resize}
