"""What formulas are made of: terms over inputs and outputs, comparisons, and, or, not.

Terms are vectors; a number is a vector of one entry and stretches to any length. A comparison of vectors
holds if it holds for every entry, or for some entry where `any_of` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from verifolio.errors import InputError

Name = Literal["x", "y", "x0", "y0", "y1", "y2"]
Where = Literal["label", "others"] | tuple[int, ...] | slice
Operator = Literal["<", "<="]


class Term:
    """An expression; Python's operators build larger ones."""

    def __add__(self, other: Term | float) -> Term:
        return Sum((self, term(other)))

    def __radd__(self, other: Term | float) -> Term:
        return Sum((term(other), self))

    def __sub__(self, other: Term | float) -> Term:
        return Sum((self, Times(Number(Fraction(-1)), term(other))))

    def __rsub__(self, other: Term | float) -> Term:
        return term(other) - self

    def __neg__(self) -> Term:
        return Times(Number(Fraction(-1)), self)

    def __mul__(self, other: Term | float) -> Term:
        return Times(term(other), self)

    __rmul__ = __mul__

    def __getitem__(self, where: int | Where) -> Term:
        return Pick(self, (where,) if isinstance(where, int) else where)

    def __le__(self, other: Term | float) -> Compare:
        return Compare(self, "<=", term(other))

    def __lt__(self, other: Term | float) -> Compare:
        return Compare(self, "<", term(other))

    def __ge__(self, other: Term | float) -> Compare:
        return Compare(term(other), "<=", self)

    def __gt__(self, other: Term | float) -> Compare:
        return Compare(term(other), "<", self)


@dataclass(frozen=True)
class Number(Term):
    """A constant, exactly."""

    value: Fraction


@dataclass(frozen=True)
class Epsilon(Term):
    """The radius of the reference."""


@dataclass(frozen=True)
class Vector(Term):
    """x, y: inputs and outputs of the point; x0, y0: of the reference; y1, y2: of each of two networks."""

    name: Name


@dataclass(frozen=True)
class Pick(Term):
    """Entries of a vector: positions, a slice, the label's, or all but the label's."""

    vector: Term
    where: Where


@dataclass(frozen=True)
class Sum(Term):
    parts: tuple[Term, ...]


@dataclass(frozen=True)
class Times(Term):
    """A constant times a term."""

    factor: Term
    part: Term


@dataclass(frozen=True)
class Largest(Term):
    """The largest entry of all parts."""

    parts: tuple[Term, ...]


@dataclass(frozen=True)
class Total(Term):
    """The sum of all entries."""

    part: Term


@dataclass(frozen=True)
class Absolute(Term):
    """The absolute value of each entry."""

    part: Term


class Formula:
    """Something true or false at a point."""

    def __and__(self, other: Formula) -> Formula:
        return And((self, other))

    def __or__(self, other: Formula) -> Formula:
        return Or((self, other))

    def __invert__(self) -> Formula:
        return negate(self)


@dataclass(frozen=True)
class Compare(Formula):
    """left < right or left <= right, entry by entry: all of them, or `any_of` them."""

    left: Term
    operator: Operator
    right: Term
    any_of: bool = False


@dataclass(frozen=True)
class And(Formula):
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Or(Formula):
    parts: tuple[Formula, ...]


X, Y, X0, Y0 = Vector("x"), Vector("y"), Vector("x0"), Vector("y0")
Y1, Y2, EPSILON = Vector("y1"), Vector("y2"), Epsilon()


def positions(where: Where, label: int, size: int, place: str = "formula") -> list[int]:
    """The entries of a vector of this size that are meant; none may lie outside it."""
    if isinstance(where, slice):
        ends = [e for e in (where.start, where.stop) if e is not None]
        if any(not 0 <= e <= size for e in ends) or not range(size)[where]:
            got = f"{'' if where.start is None else where.start}:{'' if where.stop is None else where.stop}"
            raise InputError(place, f"a range with entries, from 0 to {size}", got, "count from 0")
        return list(range(size)[where])
    wanted = list(where) if isinstance(where, tuple) else [label]
    for i in wanted:
        if not 0 <= i < size:
            raise InputError(place, f"a position from 0 to {size - 1}", str(i), "count from 0")
    return [i for i in range(size) if i != label] if where == "others" else wanted


def mentions(part: object, wanted: Term) -> bool:
    """Whether this term occurs in a formula or a term."""
    if part == wanted:
        return True
    inner = (
        part if isinstance(part, tuple) else vars(part).values() if isinstance(part, Formula | Term) else ()
    )
    return any(mentions(p, wanted) for p in inner)


def term(value: Term | float | Fraction) -> Term:
    """A term, or a number as one; a float means exactly its value."""
    return value if isinstance(value, Term) else Number(Fraction(value))


def largest(*parts: Term | float) -> Term:
    return Largest(tuple(term(p) for p in parts))


def smallest(*parts: Term | float) -> Term:
    return -Largest(tuple(-term(p) for p in parts))


def norm(part: Term) -> Term:
    """The maximum norm."""
    return Largest((Absolute(part),))


def equal(left: Term, right: Term) -> Formula:
    return And((Compare(left, "<=", right), Compare(right, "<=", left)))


def some(formula: Formula) -> Formula:
    """The comparison for some entry instead of all of them."""
    if not isinstance(formula, Compare):
        raise TypeError("only a comparison has entries to choose from")
    return Compare(formula.left, formula.operator, formula.right, True)


def negate(formula: Formula) -> Formula:
    """The opposite, with `not` pushed down to the comparisons, where it disappears."""
    if isinstance(formula, Compare):
        operator: Operator = "<" if formula.operator == "<=" else "<="
        return Compare(formula.right, operator, formula.left, not formula.any_of)
    if isinstance(formula, And):
        return Or(tuple(negate(p) for p in formula.parts))
    if isinstance(formula, Or):
        return And(tuple(negate(p) for p in formula.parts))
    raise TypeError(f"no negation of {type(formula).__name__}")
