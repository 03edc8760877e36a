"""Operators that pick and add up entries by constant patterns: triangles, indices in many axes, Einstein sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.onnx_import.call import Call, normal_axis
from verifolio.onnx_import.linear import matmul
from verifolio.onnx_import.lowering import Lowering
from verifolio.onnx_import.reductions import add_up, reduce_axes
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View, known


def lower_trilu(low: Lowering, call: Call) -> Value:
    """The upper or lower triangle of each matrix; zero elsewhere."""
    x = call.value(0)
    if len(x.shape) < 2:
        raise Malformed("matrices", f"shape {x.shape}")
    diagonal = int(call.constant(1).value.ravel()[0]) if call.has(1) else 0
    diagonal = min(max(diagonal, -x.shape[-2]), x.shape[-1])  # beyond it nothing changes
    cut = np.triu if call.integer("upper", 1) else np.tril
    keep = np.broadcast_to(cut(np.ones(x.shape[-2:], bool), diagonal), x.shape)
    if isinstance(x, View):
        return View(x.node, np.where(keep, x.index, -1))
    return x.moved(lambda a: np.where(keep, a, np.zeros(1, a.dtype)))


def lower_cumulative_sum(low: Lowering, call: Call) -> Value:
    """Sums of all entries up to each one along an axis: a product with a triangle of ones."""
    x = call.value(0)
    axis = normal_axis(int(call.constant(1).value.ravel()[0]), len(x.shape))
    size = x.shape[axis]
    low.charge(size * size)
    ones = np.triu(np.ones((size, size)), 1 if call.integer("exclusive", 0) else 0)
    ones = ones[::-1, ::-1] if call.integer("reverse", 0) else ones
    last = x.moved(lambda a: np.moveaxis(a, axis, -1))
    if isinstance(last, Known) and not last.is_float:
        summed: Value = Known((last.value @ ones.astype(last.value.dtype)).astype(last.value.dtype))
    else:
        summed = matmul(low, last, known(ones))
    return summed.moved(lambda a: np.moveaxis(a, -1, axis))


def _integer_indices(call: Call) -> NDArray[Any]:
    where = call.constant(1).value
    if where.dtype.kind not in "iu":
        raise Malformed("integer indices", f"{where.dtype}")
    return where


def lower_gather_nd(low: Lowering, call: Call) -> Value:
    """Slices at constant positions in the leading axes."""
    x, where = call.value(0), _integer_indices(call)
    lead = call.integer("batch_dims", 0)
    if not where.ndim or not 0 <= lead < min(len(x.shape), where.ndim):
        raise Malformed("indices and batch axes that fit", f"{where.shape} into {x.shape}")
    depth = where.shape[-1]
    if lead + depth > len(x.shape) or where.shape[:lead] != x.shape[:lead]:
        raise Malformed("indices that fit", f"{where.shape} into {x.shape}")
    low.charge(math.prod(where.shape[:-1]) * math.prod(x.shape[lead + depth :]))
    rest = where.ndim - 1 - lead
    batch = [g.reshape(g.shape + (1,) * rest) for g in np.indices(x.shape[:lead])]
    parts = [where[..., k] for k in range(depth)]
    return x.moved(lambda a: a[(*batch, *parts)])


def lower_gather_elements(low: Lowering, call: Call) -> Value:
    """One entry for each index, along one axis."""
    x, where = call.value(0), _integer_indices(call)
    axis = call.axis("axis", 0, len(x.shape))
    if where.ndim != len(x.shape):
        raise Malformed("indices of the data's rank", f"{where.shape} into {x.shape}")
    low.charge(where.shape)
    spots: list[NDArray[Any]] = list(np.indices(where.shape))
    spots[axis] = where
    return x.moved(lambda a: a[tuple(spots)])


def lower_einsum(low: Lowering, call: Call) -> Value:
    """A sum of one tensor, or a product of two, over the axes whose letters the result does not have."""
    parts = [call.value(k) for k in range(len(call.inputs))]
    terms, result = _letters(call.text("equation", ""), parts)
    parts = [_without_lone(low, p, t, result, terms) for p, t in zip(parts, terms, strict=True)]
    terms = [_kept(t, result, terms) for t in terms]
    if len(parts) == 1:
        return parts[0].moved(lambda a: np.transpose(a, [terms[0].index(c) for c in result]))
    return _contract(low, (parts[0], parts[1]), (terms[0], terms[1]), result)


def _letters(equation: str, parts: list[Value]) -> tuple[list[str], str]:
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    plain = all(t.isalpha() and len(set(t)) == len(t) for t in (*terms, *([result] if result else [])))
    if len(parts) > 2 or not plain:
        raise Refused(f"an Einsum of {len(parts)} tensors by {equation!r}")
    if not arrow:  # then the result has the letters that occur once, in order
        result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    if len(terms) != len(parts) or any(len(t) != len(p.shape) for t, p in zip(terms, parts, strict=True)):
        raise Malformed("a letter for every axis", repr(equation))
    if set(result) - set(left) or len(set(result)) != len(result):
        raise Malformed("letters of the inputs in the result", repr(equation))
    sizes: dict[str, int] = {}
    for term, part in zip(terms, parts, strict=True):
        for letter, size in zip(term, part.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise Malformed(f"one size for letter {letter!r}", f"{sizes[letter]} and {size}")
    return terms, result


def _kept(term: str, result: str, terms: list[str]) -> str:
    return "".join(c for c in term if c in result or sum(c in t for t in terms) > 1)


def _without_lone(low: Lowering, part: Value, term: str, result: str, terms: list[str]) -> Value:
    """The tensor summed over letters that nobody else has."""
    lone = tuple(k for k, c in enumerate(term) if c not in _kept(term, result, terms))
    return reduce_axes(low, part, lone, add_up, keep=False) if lone else part


def _contract(low: Lowering, parts: tuple[Value, Value], terms: tuple[str, str], result: str) -> Value:
    (a, b), (left, right) = parts, terms
    both = [c for c in left if c in right and c in result]
    summed = [c for c in left if c in right and c not in result]
    own, other = [c for c in left if c not in right], [c for c in right if c not in left]
    sizes = dict(zip(left + right, (*a.shape, *b.shape), strict=True))

    def shaped(value: Value, term: str, *groups: list[str]) -> Value:
        order = [term.index(c) for group in groups for c in group]
        flat = [math.prod(sizes[c] for c in group) for group in groups]
        return value.moved(lambda v: np.transpose(v, order).reshape(flat))

    product = matmul(low, shaped(a, left, both, own, summed), shaped(b, right, both, summed, other))
    letters = [*both, *own, *other]
    full = product.reshaped(tuple(sizes[c] for c in letters))
    return full.moved(lambda v: np.transpose(v, [letters.index(c) for c in result]))


HANDLERS = {
    "Trilu": lower_trilu,
    "CumSum": lower_cumulative_sum,
    "GatherND": lower_gather_nd,
    "GatherElements": lower_gather_elements,
    "Einsum": lower_einsum,
}
