"""The operator Attention: scaled products of queries and keys, a softmax, sums of values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verifolio.onnx_import import exact
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.linear import add, matmul
from verifolio.onnx_import.lowering import Lowering, as_float
from verifolio.onnx_import.normal import softmax_rows
from verifolio.onnx_import.plumbing import concat_views
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View, known


def lower_attention(low: Lowering, call: Call) -> Value:
    """softmax(scale q k' + mask) v for each head; without a cache, and with a constant mask or none."""
    if call.outputs > 1 or any(call.has(k) for k in range(4, len(call.inputs))):
        raise Refused("Attention with a cache or with its scores as an output")
    if call.integer("qk_matmul_output_mode", 0):
        raise Refused("Attention with its scores as an output")
    if all(isinstance(call.value(i), Known) for i in range(3)):
        raise Refused(
            "Attention of constants"
        )  # they may be half precision, in which ONNX Runtime computes then
    flat = len(call.value(0).shape) == 3
    q = _heads(call.value(0), call.integer("q_num_heads", 0))
    k, v = (_heads(call.value(i), call.integer("kv_num_heads", 0)) for i in (1, 2))
    if q.shape[1] % max(k.shape[1], 1) or k.shape[1] != v.shape[1] or q.shape[3] != k.shape[3]:
        raise Malformed("heads that fit", f"{q.shape}, {k.shape} and {v.shape}")
    share = q.shape[1] // k.shape[1]  # several heads of queries read one head of keys and values
    k, v = (part.moved(lambda a: np.repeat(a, share, axis=1)) for part in (k, v))
    scores = matmul(low, q, k.moved(lambda a: np.swapaxes(a, -1, -2)))
    scores = _scaled(low, scores, _scale(call, q.shape[3]))
    allowed, offset = _mask(call, scores.shape)
    if offset is not None:
        scores = add(low, scores, offset)
    out = matmul(low, _weights(low, low.promote(_capped(low, call, scores)), allowed), v)
    if not flat:
        return out
    return out.moved(lambda a: np.swapaxes(a, 1, 2).reshape(a.shape[0], a.shape[2], -1))


def _heads(x: Value, count: int) -> Value:
    """(batch, heads, tokens, width), whichever way they are given."""
    if len(x.shape) == 4:
        return x
    if len(x.shape) != 3 or count < 1 or x.shape[2] % count:
        raise Malformed("three axes and a number of heads, or four axes", f"{x.shape} and {count} heads")
    batch, tokens, width = x.shape
    return x.moved(lambda a: np.swapaxes(a.reshape(batch, tokens, count, width // count), 1, 2))


def _scale(call: Call, width: int) -> Known:
    if "scale" in call.attributes:
        return known(float(np.float32(call.number("scale", 1.0))))
    return exact.divide(known(1.0), exact.root(known(float(width))))


def _scaled(low: Lowering, value: Value, factor: Known) -> Value:
    return exact.multiply(as_float(value), factor) if isinstance(value, Known) else low.scale(value, factor)


def _capped(low: Lowering, call: Call, scores: Value) -> Value:
    cap = float(np.float32(call.number("softcap", 0.0)))
    if cap == 0.0:
        return scores
    if call.has(3):
        raise Refused("Attention with a soft cap and a mask")  # versions differ in which comes first
    bent = low.function("tanh", low.scale(low.promote(scores), exact.divide(known(1.0), known(cap))))
    return low.times(bent, cap)


def _mask(call: Call, shape: tuple[int, ...]) -> tuple[NDArray[np.bool_], Known | None]:
    """Which keys each query may read, and what is added to their scores."""
    allowed, offset = np.ones(shape, bool), None
    if call.has(3):
        mask = call.constant(3)
        if len(mask.shape) < 1 or mask.shape[-1] != shape[-1]:
            raise Refused("Attention with a mask of another length")
        if mask.is_float:
            allowed &= np.broadcast_to(~np.isneginf(mask.value), shape)
            offset = mask.moved(lambda a: np.where(np.isneginf(a), 0.0, a))
        else:
            allowed &= np.broadcast_to(mask.value.astype(bool), shape)
    if call.integer("is_causal", 0):
        allowed &= np.tril(np.ones(shape[-2:], bool))
    if not allowed.any(axis=-1).all():
        raise Refused("Attention of queries that may read nothing")
    return allowed, offset


def _weights(low: Lowering, scores: View, allowed: NDArray[np.bool_]) -> View:
    """A softmax over the keys that each query may read; the others get 0."""
    width = scores.shape[-1]
    rows, masks = scores.reshaped((-1, width)), allowed.reshape(-1, width)
    parts, order = [], []
    for pattern in np.unique(masks, axis=0):
        chosen = np.flatnonzero((masks == pattern).all(axis=1))
        columns = np.flatnonzero(pattern)
        made = low.promote(softmax_rows(low, rows.moved(lambda a, r=chosen, c=columns: a[np.ix_(r, c)])))
        place = np.full((len(chosen), width), -1, np.int64)
        place[:, columns] = made.index
        parts.append(View(made.node, place))
        order.append(chosen)
    joined = concat_views(low, parts, 0)
    back = np.argsort(np.concatenate(order))
    return joined.moved(lambda a: a[back].reshape(scores.shape))


HANDLERS = {"Attention": lower_attention}
