"""Shapes and data movement: on constants they are folded, on variables they only rearrange a view."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.ops import Concat
from verifolio.onnx_import.call import Call, normal_axis
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.reader import shape_of
from verifolio.onnx_import.values import Known, Malformed, Refused, Shape, Value, View, joined

INT_MAX = 2**31 - 1  # from here on an end means "to the end" in ONNX Runtime
Move = Callable[[NDArray[Any]], NDArray[Any]]


def _moving(find: Callable[[Lowering, Call], Move]) -> Callable[[Lowering, Call], Value]:
    """An operator that moves the entries of its first input around."""

    def lower(low: Lowering, call: Call) -> Value:
        return call.value(0).moved(find(low, call))

    return lower


def _identity(low: Lowering, call: Call) -> Move:
    return lambda a: a


def _reshape(low: Lowering, call: Call) -> Move:
    wanted = call.integers("shape") or call.integers_at(1)
    if wanted is None:
        raise Malformed("a shape", "none")
    shape = call.value(0).shape
    keep_zero = call.integer("allowzero", 0)
    target = [shape[i] if d == 0 and not keep_zero and i < len(shape) else d for i, d in enumerate(wanted)]
    return _resolved(shape, target)


def _resolved(shape: Shape, target: list[int]) -> Move:
    """A reshape whose sizes agree; one entry may be -1."""
    size, rest = math.prod(shape), math.prod(d for d in target if d != -1)
    if target.count(-1) == 1 and rest > 0:
        target = [size // rest if d == -1 else d for d in target]
    if any(d < 0 for d in target) or math.prod(target) != size:
        raise Malformed(f"a shape of {size} entries", f"{target}")
    return lambda a: a.reshape(target)


def _flatten(low: Lowering, call: Call) -> Move:
    shape = call.value(0).shape
    axis = call.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):
        raise Malformed(f"an axis of a tensor of rank {len(shape)}", f"{axis}")
    return lambda a: a.reshape(math.prod(shape[:axis]), math.prod(shape[axis:]))


def _transpose(low: Lowering, call: Call) -> Move:
    rank = len(call.value(0).shape)
    order = call.integers("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise Malformed(f"a permutation of {rank} axes", f"{order}")
    return lambda a: np.transpose(a, order)


def _squeeze(low: Lowering, call: Call) -> Move:
    shape = call.value(0).shape
    axes = call.axes(1, len(shape))
    if not axes:  # an empty list counts as none
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    return lambda a: np.squeeze(a, axis=axes)


def _unsqueeze(low: Lowering, call: Call) -> Move:
    listed = call.integers("axes") or call.integers_at(1) or ()
    rank = len(call.value(0).shape) + len(listed)
    if rank > 64:
        raise Malformed("tensors of rank at most 64", f"{rank}")
    axes = tuple(normal_axis(a, rank) for a in listed)
    return lambda a: np.expand_dims(a, axes)


def _slice(low: Lowering, call: Call) -> Move:
    shape = call.value(0).shape
    if call.integers("starts") is not None:
        starts, ends, axes = call.integers("starts"), call.integers("ends"), call.integers("axes")
        steps = None
    else:
        starts, ends, axes, steps = (call.integers_at(i) for i in range(1, 5))
    if starts is None or ends is None or len(starts) != len(ends):
        raise Malformed("starts and ends of equal length", f"{starts} and {ends}")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    cuts = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = normal_axis(axis, len(shape))
        cuts[axis] = _cut(shape[axis], start, end, step)
    return lambda a: a[tuple(cuts)]


def _cut(size: int, start: int, end: int, step: int) -> slice:
    """The standard's clamping: a start beyond either end moves to the nearest entry, unlike numpy's."""
    if step == 0:
        raise Malformed("a step other than zero", "zero")
    if step < 0 and end >= INT_MAX:  # nothing by the standard, everything to the front in ONNX Runtime
        raise Refused("a Slice backwards to the largest integer: end at the smallest one instead")
    start, end = (i + size if i < 0 else i for i in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step) if size else slice(0, 0)


def _gather(low: Lowering, call: Call) -> Move:
    shape = call.value(0).shape
    axis = call.axis("axis", 0, len(shape))
    where = call.constant(1).value
    if where.dtype.kind not in "iu" or not shape:
        raise Malformed("integer indices into a tensor", f"{where.dtype} into {shape}")
    low.charge(math.prod(shape[:axis]) * math.prod(shape[axis + 1 :]) * where.size)
    return lambda a: np.take(a, where, axis=axis)


def _expand(low: Lowering, call: Call) -> Move:
    wanted = call.integers_at(1) or ()
    if any(d < 0 for d in wanted) or len(wanted) > 64:
        raise Malformed("a shape", f"{wanted}")
    shape = np.broadcast_shapes(call.value(0).shape, wanted)
    low.charge(shape)
    return lambda a: np.broadcast_to(a, shape)


def _tile(low: Lowering, call: Call) -> Move:
    repeats = call.integers_at(1) or ()
    shape = call.value(0).shape
    if len(repeats) != len(shape) or any(r < 0 for r in repeats):
        raise Malformed(f"{len(shape)} repeats", f"{repeats}")
    low.charge(math.prod(shape) * math.prod(repeats))
    return lambda a: np.tile(a, repeats)


def _depth_to_space(low: Lowering, call: Call) -> Move:
    n, c, h, w = call.value(0).shape
    b = call.integer("blocksize", 1)
    depth = c // b**2
    target = (n, depth, h * b, w * b)
    if call.text("mode", "DCR") == "CRD":
        return lambda a: a.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(target)
    return lambda a: a.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(target)


def _space_to_depth(low: Lowering, call: Call) -> Move:
    n, c, h, w = call.value(0).shape
    b = call.integer("blocksize", 1)
    return lambda a: (
        a.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)
    )


def lower_dropout(low: Lowering, call: Call) -> Value | list[Value]:
    """At inference a dropout passes its input on; the mask it also offers is all true."""
    x = call.value(0)
    if call.has(2) and bool(call.constant(2).value.any()):
        raise Refused("Dropout in training mode")
    return [x, Known(np.ones(x.shape, bool))][: call.outputs]


def lower_concat(low: Lowering, call: Call) -> Value:
    parts = [call.value(i) for i in range(len(call.inputs)) if call.has(i)]
    if not parts:
        raise Malformed("inputs", "none")
    axis = call.axis("axis", 1, len(parts[0].shape))
    low.charge(sum(math.prod(p.shape) for p in parts))
    constants = [p for p in parts if isinstance(p, Known)]
    if len(constants) == len(parts):
        return _concat_known(constants, axis)
    return concat_views(low, [low.promote(p) for p in parts if math.prod(p.shape)], axis)


def _concat_known(parts: list[Known], axis: int) -> Known:
    value = np.concatenate([p.value for p in parts], axis)
    if all(p.error is None for p in parts):
        return joined(value, None, *parts)
    errors = [np.zeros(p.shape) if p.error is None else p.error for p in parts]
    return joined(value, np.concatenate(errors, axis), *parts)


def concat_views(low: Lowering, views: list[View], axis: int) -> View:
    """Views of one node join their indices; views of several nodes meet in a Concat first."""
    nodes = sorted({v.node for v in views})
    if len(nodes) == 1:
        return View(nodes[0], np.concatenate([v.index for v in views], axis))
    starts = dict(zip(nodes, np.cumsum([0, *(low.size(n) for n in nodes)]), strict=False))
    if sum(low.size(n) for n in nodes) > 2 * sum(v.size for v in views):
        # small slices of large nodes: join the slices instead of the nodes
        return concat_views(low, [low.fresh(low.flat(v), v.shape) for v in views], axis)
    joined = low.emit(Concat(sum(low.size(n) for n in nodes)), *nodes)
    shifted = [np.where(v.index < 0, -1, v.index + starts[v.node]) for v in views]
    return View(joined, np.concatenate(shifted, axis))


def lower_split(low: Lowering, call: Call) -> list[Value]:
    x = call.value(0)
    axis = call.axis("axis", 0, len(x.shape))
    sizes = call.integers("split") or call.integers_at(1)
    if sizes is None:
        parts = call.integer("num_outputs", call.declared)
        chunk = -(-x.shape[axis] // max(parts, 1))
        sizes = tuple(min(chunk, x.shape[axis] - i * chunk) for i in range(parts))
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise Malformed(f"parts of {x.shape[axis]} entries", f"{sizes}")
    cuts = np.cumsum(sizes)[:-1]
    ends = [0, *(int(c) for c in cuts), x.shape[axis]]
    lead = (slice(None),) * axis
    return [x.moved(lambda a, low=b, high=e: a[(*lead, slice(low, high))]) for b, e in pairwise(ends)]


def lower_shape(low: Lowering, call: Call) -> Value:
    shape = call.value(0).shape
    cut = slice(call.integer("start", 0), call.integer("end", len(shape)))
    return Known(np.array(shape[cut], np.int64))


def lower_size(low: Lowering, call: Call) -> Value:
    return Known(np.array(math.prod(call.value(0).shape), np.int64))


def lower_constant(low: Lowering, call: Call) -> Value:
    tensor = call.tensor("value")
    if tensor is not None:
        return tensor
    for name, kind in (("value_float", np.float64), ("value_floats", np.float64)):
        if name in call.attributes:
            return Known(np.array(call.attributes[name], kind))
    for name in ("value_int", "value_ints"):
        if name in call.attributes:
            return Known(np.array(call.attributes[name], np.int64))
    raise Refused("a Constant that is neither a dense tensor nor numbers")


def lower_constant_of_shape(low: Lowering, call: Call) -> Value:
    shape = shape_of(call.constant(0))
    if any(d < 0 for d in shape) or len(shape) > 64:
        raise Malformed("a shape", f"{shape}")
    low.charge(shape)
    fill = call.tensor("value") or Known(np.zeros(1))
    if fill.value.size != 1:
        raise Malformed("one value", f"{fill.value.size}")
    return fill.reshaped((1,) * len(shape)).broadcast(shape)


def lower_pad(low: Lowering, call: Call) -> Value:
    x = call.value(0)
    rank = len(x.shape)
    pads = call.integers("pads") or call.integers("paddings") or call.integers_at(1)
    if pads is None:
        raise Malformed("pads", "none")
    axes = call.integers_at(3)
    begin, end = [0] * rank, [0] * rank
    listed = tuple(range(rank)) if axes is None else tuple(normal_axis(a, rank) for a in axes)
    if len(pads) != 2 * len(listed):
        raise Malformed(f"{2 * len(listed)} pads", f"{len(pads)}")
    for i, axis in enumerate(listed):
        begin[axis], end[axis] = pads[i], pads[i + len(listed)]
    fill = call.constant(2) if call.has(2) else Known(np.array(call.number("value", 0.0)))
    mode = call.text("mode", "constant")
    low.charge(math.prod(max(0, n + b + e) for n, b, e in zip(x.shape, begin, end, strict=True)))
    crop = tuple(slice(max(0, -b), n - max(0, -e)) for n, b, e in zip(x.shape, begin, end, strict=True))
    grow = [(max(0, b), max(0, e)) for b, e in zip(begin, end, strict=True)]
    x = x.moved(lambda a: a[crop])
    if mode not in ("constant", *_PAD_MODES):
        raise Malformed("a padding mode", f"{mode!r}")
    if mode != "constant":
        return x.moved(lambda a: np.pad(a, grow, mode=_PAD_MODES[mode]))
    return _pad_constant(low, x, grow, fill)


_PAD_MODES: dict[str, Any] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _pad_constant(low: Lowering, x: Value, grow: list[tuple[int, int]], fill: Known) -> Value:
    if fill.value.size != 1:
        raise Malformed("one number to pad with", f"{fill.value.size}")
    number, slack = fill.value.ravel()[0], 0.0 if fill.error is None else fill.error.ravel()[0]
    if isinstance(x, Known):
        value = np.pad(x.value, grow, constant_values=number)
        error = np.zeros(x.shape) if x.error is None else x.error
        error = np.pad(error, grow, constant_values=slack)
        return joined(value, error if error.any() else None, x, fill)
    padded = x.moved(lambda a: np.pad(a, grow, constant_values=-1))
    if number == 0 and slack == 0:
        return padded
    frame, spread = (np.pad(np.zeros(x.shape), grow, constant_values=n) for n in (number, slack))
    return low.add_constant(padded, joined(frame, spread if spread.any() else None, fill))


def lower_where(low: Lowering, call: Call) -> Value:
    condition, a, b = call.constant(0), call.value(1), call.value(2)
    shape = low.common_shape(condition, a, b)
    mask = np.broadcast_to(condition.value, shape).astype(bool)
    if isinstance(a, Known) and isinstance(b, Known):
        return _where_known(mask, a.broadcast(shape), b.broadcast(shape))
    return low_sum_masked(low, mask, a, b)


def _where_known(mask: NDArray[np.bool_], a: Known, b: Known) -> Known:
    value = np.where(mask, a.value, b.value)
    if a.error is None and b.error is None:
        return joined(value, None, a, b)
    errors = [np.zeros(k.shape) if k.error is None else k.error for k in (a, b)]
    return joined(value, np.where(mask, *errors), a, b)


def low_sum_masked(low: Lowering, mask: NDArray[np.bool_], a: Value, b: Value) -> View:
    """where(mask, a, b) with at least one variable: each is set to zero where the other one counts."""
    if isinstance(a, View) and isinstance(b, View) and a.node == b.node:
        return View(a.node, np.where(mask, a.index, b.index))
    parts: list[Value] = []
    for value, keep in ((a, mask), (b, ~mask)):
        if isinstance(value, View):
            parts.append(View(value.node, np.where(keep, value.index, -1)))
        else:
            spread = as_float(value).broadcast(mask.shape)
            parts.append(spread.moved(lambda n, keep=keep: np.where(keep, n, 0.0)))
    first, second = parts
    if isinstance(first, Known):
        first, second = second, first
    view = low.promote(first)
    if isinstance(second, Known):
        return low.add_constant(view, second)
    return low.sum((1.0, 1.0), view, second)


HANDLERS = {
    "Identity": _moving(_identity),
    "Reshape": _moving(_reshape),
    "Flatten": _moving(_flatten),
    "Transpose": _moving(_transpose),
    "Squeeze": _moving(_squeeze),
    "Unsqueeze": _moving(_unsqueeze),
    "Slice": _moving(_slice),
    "Gather": _moving(_gather),
    "Expand": _moving(_expand),
    "Tile": _moving(_tile),
    "DepthToSpace": _moving(_depth_to_space),
    "SpaceToDepth": _moving(_space_to_depth),
    "Dropout": lower_dropout,
    "Concat": lower_concat,
    "Split": lower_split,
    "Shape": lower_shape,
    "Size": lower_size,
    "Constant": lower_constant,
    "ConstantOfShape": lower_constant_of_shape,
    "Pad": lower_pad,
    "Where": lower_where,
}
