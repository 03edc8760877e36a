"""Resizing images: nearest neighbours are a view, linear interpolation a sparse matrix per axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

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
_FRAMES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")


def _coordinate(mode: str, x: Any, scale: Any, size: int, target: int) -> Any:
    """Where output entry `x` lies on the input axis, in the arithmetic of `x` and `scale`."""
    one = x * 0 + 1
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return x * (size - 1) / (target - 1) if target > 1 else x * 0
    if mode == "pytorch_half_pixel" and target == 1:
        return x * 0
    centred = (x + one / 2) / scale - one / 2
    if mode == "half_pixel_symmetric":
        centred += one * size / 2 * (1 - target / (scale * size))
    return centred


def _picks(frame: str, rounding: str, scale: Fraction, size: int, target: int) -> list[int]:
    """The nearest input entry of each output entry.

    ONNX Runtime rounds coordinates in single precision. Where that picks another entry than exact
    arithmetic, two pictures would be called the same network, so such a node is refused.
    """
    nearest, single = _ROUND[rounding], np.float32(float(scale))
    exact_at = [_coordinate(frame, Fraction(i), scale, size, target) for i in range(target)]
    single_at = [
        Fraction(float(_coordinate(frame, np.float32(i), single, size, target))) for i in range(target)
    ]
    picks = [[min(max(nearest(c), 0), size - 1) for c in at] for at in (exact_at, single_at)]
    if picks[0] != picks[1]:
        raise Refused("nearest neighbours that hinge on the rounding of a coordinate")
    return picks[0]


def _targets(call: Call, shape: Shape) -> list[tuple[int, Fraction]]:
    """Output size and scale of each axis."""
    scales = _scales(call)
    if scales is None:
        sizes = call.integers_at(3)
        if sizes is None:
            raise Malformed("scales or sizes", "neither")
        pairs = [(s, Fraction(s, n)) for s, n in zip(sizes, _listed(call, shape), strict=True)]
        pairs = _keep_ratio(call, pairs, _listed(call, shape))
    else:
        pairs = [(int(n * s), s) for s, n in zip(scales, _listed(call, shape), strict=True)]
    if any(size < 1 for size, _ in pairs):
        raise Malformed("sizes of at least 1", f"{[size for size, _ in pairs]}")
    full = [(n, Fraction(1)) for n in shape]
    for axis, pair in zip(_listed_axes(call, len(shape)), pairs, strict=True):
        full[axis] = pair
    return full


def _keep_ratio(call: Call, pairs: list[tuple[int, Fraction]], shape: Shape) -> list[tuple[int, Fraction]]:
    """One scale for all axes, so that no size (or every size) reaches beyond the one asked for."""
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return pairs
    if policy not in ("not_larger", "not_smaller"):
        raise Malformed("a keep_aspect_ratio_policy", f"{policy!r}")
    scales = [scale for _, scale in pairs]
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [(math.floor(n * scale + HALF), scale) for n in shape]


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
    mode, frame, rounding = _modes(call)
    targets = _targets(call, x.shape)
    low.charge(math.prod(size for size, _ in targets))
    for axis, (target, scale) in enumerate(targets):
        size = x.shape[axis]
        if target == size and scale == 1:
            continue
        _check_agreed(frame, scale, size, target)
        low.charge(target)
        if mode == "nearest":
            picks = _picks(frame, rounding or ("ceil" if scale < 1 else "floor"), scale, size, target)
            x = x.moved(lambda a, picks=picks, axis=axis: np.take(a, picks, axis=axis))
        else:
            at = [_coordinate(frame, Fraction(i), scale, size, target) for i in range(target)]
            x = _interpolate(low, x, axis, [min(max(c, Fraction(0)), Fraction(size - 1)) for c in at])
    return x


def _modes(call: Call) -> tuple[str, str, str]:
    """Mode, coordinates and rounding.

    The rounding is empty before operator set 11: the standard names none, and ONNX Runtime rounds down
    where it enlarges and up where it shrinks.
    """
    old = call.op == "Upsample" or call.opset < 11
    mode = call.text("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear"):
        raise Refused(f"{call.op} with mode {mode!r}")
    if old:
        return mode, "asymmetric", ""
    frame = call.text("coordinate_transformation_mode", "half_pixel")
    rounding = call.text("nearest_mode", "round_prefer_floor")
    if call.integer("antialias", 0):
        raise Refused("Resize with antialiasing")
    if frame not in _FRAMES:
        raise Refused(f"Resize with coordinates {frame!r}")
    if rounding not in _ROUND:
        raise Malformed("a nearest_mode", f"{rounding!r}")
    return mode, frame, rounding


def _check_agreed(frame: str, scale: Fraction, size: int, target: int) -> None:
    """Refuse what the standard and ONNX Runtime read differently."""
    if target == size:  # ONNX Runtime copies the axis, the standard resamples it
        raise Refused(f"a scale of {float(scale):g} that keeps the size of an axis")
    if frame == "align_corners" and scale * size != target:
        # the standard divides by the scaled length less one, ONNX Runtime by its whole part less one
        raise Refused(f"align_corners with a scaled length that is not whole: {float(scale * size):g}")


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
