"""Choices made by variables: conditions, indices, the position of the largest entry, patches at a variable place."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph.ops import Concat, Constant, Scale, Select
from verifolio.onnx_import import exact, plumbing
from verifolio.onnx_import.arithmetic import multiply
from verifolio.onnx_import.call import Call, normal_axis
from verifolio.onnx_import.linear import add
from verifolio.onnx_import.logic import both, difference, heaviside
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.values import Known, Malformed, Refused, Shape, Value, View, known

MOST_CANDIDATES = 256  # entries among which the largest is looked for: pairs are compared
Root = tuple[int, int]  # an entry of a node


def _value(made: Value | list[Value]) -> Value:
    return made[0] if isinstance(made, list) else made


def lower_where(low: Lowering, call: Call) -> Value:
    """A variable condition c gives b + c (a - b)."""
    condition, a, b = call.value(0), call.value(1), call.value(2)
    if isinstance(condition, Known):
        return plumbing.lower_where(low, call)
    low.common_shape(condition, a, b)
    if isinstance(a, Known) and isinstance(b, Known):
        return low.scale(condition, exact.subtract(as_float(a), as_float(b)), as_float(b))
    return add(low, multiply(low, condition, difference(low, a, b)), b)


def lower_extremal(low: Lowering, call: Call) -> Value:
    """ArgMax and ArgMin: entry i is the largest one if it beats all others; each pair is compared once."""
    x = low.promote(call.value(0))
    axis = call.axis("axis", 0, len(x.shape))
    count, last = x.shape[axis], bool(call.integer("select_last_index", 0))
    if not 1 <= count <= MOST_CANDIDATES:
        raise Refused(f"{call.op} among {count} entries")
    rows = x.moved(lambda a: np.moveaxis(a, axis, -1))
    left, right = np.triu_indices(count, 1)
    low.charge(math.prod(rows.shape[:-1]) * max(1, len(left)))
    shape = rows.shape[:-1]
    kept = (
        tuple(1 if i == axis else n for i, n in enumerate(x.shape)) if call.integer("keepdims", 1) else shape
    )
    if count == 1:
        return Known(np.zeros(kept, np.int64))
    first, second = (rows.moved(lambda a, p=p: a[..., p]) for p in (left, right))
    if call.op == "ArgMin":
        first, second = second, first
    # of a pair the earlier one wins a draw, or the later one where the last largest is asked for
    wins = heaviside(low, low.sum((1.0, -1.0), first, second), (0.0, 0.0 if last else 1.0, 1.0))
    chosen = _unbeaten(low, wins.reshaped((-1, len(left))), left, right, count)
    place = known(np.broadcast_to(np.arange(count, dtype=np.float64), chosen.shape))
    numbers = np.broadcast_to(np.arange(chosen.shape[0])[:, None], chosen.shape)
    return low.gather_sum(chosen, numbers, place, (chosen.shape[0],)).reshaped(kept)


def _unbeaten(low: Lowering, wins: View, left: Any, right: Any, count: int) -> View:
    """Which entry of each row beats all others (rows, count): relu(wins - (count - 2))."""
    rows = wins.shape[0]
    pairs = len(left)
    at = np.arange(rows)[:, None] * count
    spread = View(wins.node, np.concatenate([wins.index, wins.index], 1))
    weight = np.concatenate([np.ones(pairs), -np.ones(pairs)])
    places = np.concatenate([at + left, at + right], 1)
    score = low.gather_sum(spread, places, known(np.broadcast_to(weight, spread.shape)), (rows, count))
    # entry i may lose to none of those after it and win against all before it
    start = np.arange(count, dtype=np.float64) - (count - 2)
    return low.relu(low.add_constant(score, known(start[None])))


def one_hot(low: Lowering, view: View, values: NDArray[np.float64]) -> View:
    """1 where an entry equals a value, else 0; the values get a last axis of their own."""
    spread = view.moved(lambda a: np.broadcast_to(a[..., None], (*a.shape, len(values))))
    low.charge(spread.shape)
    return heaviside(low, low.add_constant(spread, known(-values)), (0.0, 1.0, 0.0))


def lower_gather(low: Lowering, call: Call) -> Value:
    """With variable indices: a sum over all entries, each times whether the index is its own."""
    data, indices = call.value(0), call.value(1)
    if isinstance(indices, Known):
        return _value(plumbing.HANDLERS["Gather"](low, call))
    axis = call.axis("axis", 0, len(data.shape))
    count = data.shape[axis]
    flat = indices.reshaped((-1,))
    hot = one_hot(low, View(flat.node, flat.index), np.arange(-count, count, dtype=np.float64))
    hot = low.sum((1.0, 1.0), hot.moved(lambda a: a[:, :count]), hot.moved(lambda a: a[:, count:]))
    moved = data.moved(lambda a: np.moveaxis(a, axis, 0).reshape(1, count, -1))
    low.charge((flat.size, count, moved.shape[2]))
    terms = multiply(low, hot.reshaped((flat.size, count, 1)), moved)
    view = low.promote(terms)
    rows = np.arange(flat.size * moved.shape[2]).reshape(flat.size, 1, -1)
    total = low.gather_sum(view, np.broadcast_to(rows, view.shape), known(1.0), (flat.size, moved.shape[2]))
    rest = tuple(n for i, n in enumerate(data.shape) if i != axis)
    order = [*range(len(indices.shape), len(indices.shape) + axis), *range(len(indices.shape))]
    order += [i for i in range(len(indices.shape) + len(rest)) if i not in order]
    return total.reshaped((*indices.shape, *rest)).moved(lambda a: np.transpose(a, order))


def resolve(low: Lowering, node: int, entry: int) -> tuple[Root | None, float]:
    """The entry of a node that an entry equals up to a constant; None: it is that constant."""
    shift = 0.0
    while entry >= 0:
        op, parents = low.op(node), low.builder.nodes[node].parents
        if isinstance(op, Constant):
            return None, shift + float(op.value[entry])
        if isinstance(op, Select):
            node, entry = parents[0], int(op.index[entry])
        elif isinstance(op, Concat):
            for parent in parents:
                if entry < low.size(parent):
                    node = parent
                    break
                entry -= low.size(parent)
        elif (
            isinstance(op, Scale)
            and op.weight[entry] == 1
            and op.weight_error is None
            and op.bias_error is None
        ):
            shift, node = shift + float(op.bias[entry]), parents[0]
        else:
            return (node, entry), shift
    return None, shift


def variable_slice(call: Call) -> bool:
    """Whether a slice begins where a variable says; its shape then depends on the input."""
    return call.op == "Slice" and any(
        isinstance(call.inputs[i], View) for i in range(1, min(3, len(call.inputs)))
    )


def lower_slice(low: Lowering, call: Call) -> Value:
    """A variable begin s and end s + n: as if it were inside, see `verifolio.onnx_import.ragged`."""
    if not variable_slice(call):
        return _value(plumbing.HANDLERS["Slice"](low, call))
    data, ends = call.constant(0), [call.value(1), call.value(2)]
    axes, steps = call.integers_at(3), call.integers_at(4)
    if any(e.shape != (1,) for e in ends) or (steps is not None and steps != (1,)):
        raise Refused("a Slice with variable ends over more than one axis, or with steps")
    axis = normal_axis(axes[0] if axes else 0, len(data.shape))
    places = [resolve(low, v.node, int(v.index[0])) for v in map(low.promote, ends)]
    length = places[1][1] - places[0][1]
    if places[0][0] is None or places[0][0] != places[1][0] or not 1 <= length <= data.shape[axis]:
        raise Refused("a Slice whose length varies")
    count = data.shape[axis]
    begin = low.promote(ends[0])
    # counted from the end where it is negative: that is left without bounds
    begin = low.whole(begin, "round", (0.0, 2.0**31))
    low.begun = (begin.node, int(begin.index.ravel()[0]))
    low.sliced[low.begun] = min(count, low.sliced.get(low.begun, count))
    first = np.take(data.value, [0], axis)
    if bool((data.value == first).all()):
        return data.moved(lambda a: np.take(a, np.arange(int(length)), axis))
    if data.value.ndim == 1 and np.array_equal(data.value, np.arange(count)):
        offsets = known(np.arange(int(length), dtype=np.float64))
        return low.add_constant(begin.moved(lambda a: np.broadcast_to(a, (int(length),))), offsets)
    raise Refused("a Slice with variable ends of a tensor other than 0, 1, 2, ...")


def lower_scatter_nd(low: Lowering, call: Call) -> Value:
    """One number written at places some of whose coordinates vary."""
    data, indices, updates = call.value(0), low.promote(call.value(1)), call.constant(2)
    rank = len(data.shape)
    if call.text("reduction", "none") != "none" or not len(indices.shape) or indices.shape[-1] != rank:
        raise Refused("ScatterND of slices, or with a reduction")
    same = bool((updates.value == updates.value.ravel()[:1]).all()) and updates.error is None
    if not updates.value.size or not same:
        raise Refused("ScatterND of several numbers")
    match = _matched(low, indices.reshaped((-1, rank)), data.shape)
    low.expect_stored(updates)
    number = Known(np.asarray(updates.value.ravel()[0], np.float64))
    if isinstance(data, Known):
        return low.scale(match, exact.subtract(number, as_float(data)), as_float(data))
    return low.sum((1.0, 1.0), data, low.product(match, low.subtract_from(number, data)))


def _matched(low: Lowering, indices: View, shape: Shape) -> View:
    """1 where some row of the indices points, else 0."""
    rank = len(shape)
    found = [[resolve(low, indices.node, int(e)) for e in row] for row in indices.index]
    roots = [{row[c][0] for row in found} for c in range(rank)]
    if any(len(r) != 1 for r in roots):
        raise Refused("ScatterND whose coordinates are several variables")
    offsets = np.array([[int(row[c][1]) for c in range(rank)] for row in found])
    if len(np.unique(offsets, axis=0)) != len(offsets):
        raise Refused("ScatterND that writes a place twice")
    varying = [c for c in range(rank) if next(iter(roots[c])) is not None]
    if not varying:
        raise Refused("ScatterND at constant places")
    _check_cuts(
        low, [next(iter(roots[c])) for c in varying], offsets[:, varying], [shape[c] for c in varying]
    )
    return _place(low, offsets, varying, [next(iter(roots[c])) for c in varying], shape)


def _check_cuts(
    low: Lowering, roots: list[Root | None], offsets: NDArray[np.int64], sizes: list[int]
) -> None:
    """What ONNX Runtime cuts off has to point outside, see `verifolio.onnx_import.ragged`."""
    if not low.cut_by <= set(roots):
        raise Refused("ScatterND whose indices do not show where a slice begins")
    for k, root in enumerate(roots):
        cut = low.sliced.get(root) if root is not None else None
        if cut is not None and (cut < sizes[k] or bool((offsets[:, k] < 0).any())):
            raise Refused("ScatterND at places that a slice may lack")


def _place(
    low: Lowering, offsets: NDArray[np.int64], varying: list[int], roots: list[Root | None], shape: Shape
) -> View:
    """Per position of a tensor, the sum over the written places of whether all variable coordinates meet it."""
    hots, firsts = [], []
    for c, root in zip(varying, roots, strict=True):
        first, last = -int(offsets[:, c].max()), shape[c] - 1 - int(offsets[:, c].min())
        node, entry = root if root is not None else (0, 0)
        view = View(node, np.array([entry], np.int64))
        if (node, entry) not in low.sliced:  # below 0 places count from the end: that is left without bounds
            view = low.whole(view, "round", (max(0.0, -float(offsets[:, c].min())), 2.0**31))
        hots.append(one_hot(low, view, np.arange(first, last + 1, dtype=np.float64)).reshaped((-1,)))
        firsts.append(first)
    grid = [np.arange(h.size) for h in hots]
    where = np.array(list(product(*grid)))
    met = hots[0].moved(lambda a: a[where[:, 0]])
    for k in range(1, len(hots)):
        met = both(low, met, hots[k].moved(lambda a, k=k: a[where[:, k]]))
    return _spread(low, met, offsets, varying, firsts, [h.size for h in hots], shape)


def _spread(
    low: Lowering,
    met: View,
    offsets: NDArray[np.int64],
    varying: list[int],
    firsts: list[int],
    sizes: list[int],
    shape: Shape,
) -> View:
    """The sum of the products that belong to each position."""
    fixed = [c for c in range(len(shape)) if c not in varying]
    positions = np.stack(np.meshgrid(*(np.arange(shape[c]) for c in varying), indexing="ij"), -1)
    positions = positions.reshape(-1, len(varying))
    rows, columns = [], []
    low.charge(len(offsets) * len(positions))
    for offset in offsets:
        if any(not 0 <= offset[c] < shape[c] for c in fixed):
            raise Malformed("indices inside the tensor", f"{offset.tolist()}")
        full = np.zeros((len(positions), len(shape)), np.int64)
        full[:, varying], full[:, fixed] = positions, offset[fixed]
        at = positions - offset[varying] - np.array(firsts)
        rows.append(np.ravel_multi_index(tuple(full.T), shape))
        columns.append(np.ravel_multi_index(tuple(at.T), tuple(sizes)))
    picked = met.moved(lambda a: a[np.concatenate(columns)])
    return low.gather_sum(picked, np.concatenate(rows), known(1.0), shape)


HANDLERS = {
    "Where": lower_where,
    "ArgMax": lower_extremal,
    "ArgMin": lower_extremal,
    "Gather": lower_gather,
    "Slice": lower_slice,
    "ScatterND": lower_scatter_nd,
}
