"""Formulas at batches of points: their truth, and their loss by the DL2 translation.

DL2 (Fischer et al. 2019): a <= b becomes max(a - b, 0), a < b the same plus 1 where a = b, and `and` a sum; a loss
is 0 exactly where its formula is true. For `or` DL2 takes the product. A product of a hundred losses of 0.3 is 0 in
single precision, and so is its gradient; see `alternatives` for what is taken instead.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from verifolio.errors import InputError
from verifolio.plugin.property import Points, check_labels
from verifolio.properties.formula.terms import (
    Absolute,
    And,
    Compare,
    Epsilon,
    Formula,
    Largest,
    Number,
    Or,
    Pick,
    Sum,
    Term,
    Times,
    Total,
    Vector,
    positions,
)

LEAST = 1e-30  # its inverse, and twenty thousand times that, still fit single precision


def value(term: Term, at: Points) -> Tensor:
    """The entries of a term at every point, (B, entries)."""
    if isinstance(term, Number):
        return at.y.new_full((1, 1), float(term.value))
    if isinstance(term, Epsilon):
        return at.y.new_full((1, 1), at.epsilon)
    if isinstance(term, Vector):
        return _vector(term, at)
    if isinstance(term, Pick):
        return _pick(value(term.vector, at), term, at)
    if isinstance(term, Sum):
        return reduce(torch.add, [value(p, at) for p in term.parts])
    if isinstance(term, Times):
        return value(term.factor, at) * value(term.part, at)
    if isinstance(term, Absolute):
        return value(term.part, at).abs()
    if isinstance(term, Total):
        return value(term.part, at).sum(dim=1, keepdim=True)
    if isinstance(term, Largest):
        return reduce(torch.maximum, [value(p, at).amax(dim=1, keepdim=True) for p in term.parts])
    raise TypeError(f"no value of {type(term).__name__}")


def _vector(term: Vector, at: Points) -> Tensor:
    if term.name in ("y1", "y2"):
        if len(at.sizes) != 2:
            got = f"{len(at.sizes)} sizes"
            raise InputError("formula", "points of two networks", got, "say how many outputs each has")
        cut = at.sizes[0]
        return at.y[:, :cut] if term.name == "y1" else at.y[:, cut:]
    return {"x": at.x, "y": at.y, "x0": at.x0, "y0": at.y0}[term.name]


def _pick(vector: Tensor, term: Pick, at: Points) -> Tensor:
    size = vector.shape[1]
    if not isinstance(term.where, str):
        return vector[:, positions(term.where, 0, size)]
    check_labels(at.labels, size)
    labels = at.labels[:, None]
    if term.where == "label":
        return vector.gather(1, labels)
    others = torch.arange(size - 1, device=vector.device)[None]
    return vector.gather(1, others + (others >= labels))


def alternatives(each: Tensor) -> Tensor:
    """The loss of an `or`: 1 / sum of 1 / l over the losses l, (B, parts) to (B,).

    Like DL2's product it is 0 exactly where one of them is, and every part has a gradient. Unlike the product it
    is never far below the least loss (at most `parts` times smaller), so it does not underflow.
    """
    positive = each.clamp_min(LEAST)
    least = positive.detach().amin(dim=1)  # cancels out; it keeps the quotients between 0 and 1
    found = least / (least[:, None] / positive).sum(dim=1)
    return found.masked_fill((each == 0).any(dim=1), 0.0)


def truth(formula: Formula, at: Points) -> Tensor:
    """Whether the formula is true, (B,)."""
    if isinstance(formula, Compare):
        left, right = value(formula.left, at), value(formula.right, at)
        each = (left < right) if formula.operator == "<" else (left <= right)
        found = each.any(dim=1) if formula.any_of else each.all(dim=1)
    elif isinstance(formula, And):
        found = reduce(torch.logical_and, [truth(p, at) for p in formula.parts])
    elif isinstance(formula, Or):
        found = reduce(torch.logical_or, [truth(p, at) for p in formula.parts])
    else:
        raise TypeError(f"no truth of {type(formula).__name__}")
    return found.expand(len(at.y))


def loss(formula: Formula, at: Points) -> Tensor:
    """The DL2 loss, (B,)."""
    if isinstance(formula, Compare):
        gap = value(formula.left, at) - value(formula.right, at)
        each = gap.clamp_min(0)
        if formula.operator == "<":
            each = each + (gap == 0)
        found = alternatives(each) if formula.any_of else each.sum(dim=1)
    elif isinstance(formula, And):
        found = reduce(torch.add, [loss(p, at) for p in formula.parts])
    elif isinstance(formula, Or):
        found = alternatives(torch.stack([loss(p, at) for p in formula.parts], dim=1))
    else:
        raise TypeError(f"no loss of {type(formula).__name__}")
    return found.expand(len(at.y))
