"""Formulas at batches of points: their truth, and their loss by the DL2 translation.

DL2 (Fischer et al. 2019): a <= b becomes max(a - b, 0), a < b the same plus 1 where a = b, `and` a sum, `or`
a product; so a loss is 0 exactly where its formula is true.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from verifolio.errors import InputError
from verifolio.formula.terms import (
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
)
from verifolio.property import Points, check_labels


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
    half = at.y.shape[1] // 2
    if term.name == "y1":
        return at.y[:, :half]
    if term.name == "y2":
        return at.y[:, half:]
    return {"x": at.x, "y": at.y, "x0": at.x0, "y0": at.y0}[term.name]


def _pick(vector: Tensor, term: Pick, at: Points) -> Tensor:
    size = vector.shape[1]
    if isinstance(term.where, slice):
        chosen = vector[:, term.where]
        if not chosen.shape[1]:
            raise InputError("formula", "a range with entries", f"none of {size}", "check the positions")
        return chosen
    if isinstance(term.where, tuple):
        wrong = [i for i in term.where if not 0 <= i < size]
        if wrong:
            raise InputError("formula", f"a position from 0 to {size - 1}", str(wrong[0]), "count from 0")
        return vector[:, list(term.where)]
    check_labels(at.labels, size)
    label = at.labels[:, None]
    if term.where == "label":
        return vector.gather(1, label)
    others = torch.arange(vector.shape[1] - 1, device=vector.device)[None]
    return vector.gather(1, others + (others >= label))


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
        found = each.prod(dim=1) if formula.any_of else each.sum(dim=1)
    elif isinstance(formula, And):
        found = reduce(torch.add, [loss(p, at) for p in formula.parts])
    elif isinstance(formula, Or):
        found = reduce(torch.mul, [loss(p, at) for p in formula.parts])
    else:
        raise TypeError(f"no loss of {type(formula).__name__}")
    return found.expand(len(at.y))
