"""Formulas around a reference as a disjunction of conjunctions of exact linear rows.

A term becomes a linear expression plus multiples of maxima. With c > 0, r + c max(a, b) <= 0 is a conjunction
over a and b; with c < 0 it is a disjunction. Disjunctions are taken first: the largest and the smallest of
independent parts may be taken in either order, and this one stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from verifolio.errors import InputError
from verifolio.plugin.property import Array
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
from verifolio.vnnlib import Rows, VnnlibError
from verifolio.vnnlib.rows import LinearRow, pack_rows, scaled_to_doubles

MAX_DISJUNCTS = 20_000  # a normal form grows exponentially; beyond this no verifier finishes
MAX_ROWS = 1_000_000  # of all disjuncts together: some hundred megabytes
ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True, eq=False)
class Binding:
    """What the names of a formula stand for: the reference's numbers and how many inputs and outputs."""

    x0: Array
    y0: Array
    label: int
    epsilon: float
    inputs: int
    sizes: tuple[int, ...]  # how many outputs each network has
    where: str = "formula"

    def error(self, expected: str, got: str, remedy: str = "") -> InputError:
        return InputError(self.where, expected, got, remedy)


@dataclass(frozen=True)
class Piece:
    """sum of coefficient * column + constant + sum of factor * max(pieces)."""

    terms: tuple[tuple[int, Fraction], ...] = ()
    constant: Fraction = ZERO
    bends: tuple[tuple[Fraction, tuple[Piece, ...]], ...] = ()

    def plus(self, other: Piece, factor: Fraction = ONE) -> Piece:
        merged = dict(self.terms)
        for column, coefficient in other.terms:
            merged[column] = merged.get(column, ZERO) + factor * coefficient
        bends = (*self.bends, *((factor * c, parts) for c, parts in other.bends if factor))
        terms = tuple((column, c) for column, c in merged.items() if c)
        return Piece(terms, self.constant + factor * other.constant, bends)


Atom = tuple[Piece, bool]  # piece <= 0, or < 0 where True
Disjuncts = list[tuple[Atom, ...]]


def disjuncts_of(formula: Formula, binding: Binding) -> list[Rows]:
    """The rows whose disjunction is the formula; no disjunct means false, one without rows means true."""
    found = []
    for conjunction in _expand(formula, binding):
        rows = _rows(conjunction, binding)
        if rows is not None:
            found.append(rows)
    return found


def _rows(conjunction: Sequence[Atom], binding: Binding) -> Rows | None:
    """None where a row without variables is false; true rows are left out."""
    rows: dict[LinearRow, None] = {}
    for piece, strict in conjunction:
        if not piece.terms:
            if piece.constant > 0 or (strict and piece.constant == 0):
                return None
            continue
        row = scaled_to_doubles(LinearRow(tuple(sorted(piece.terms)), -piece.constant, strict))
        if row is None:
            raise binding.error("coefficients that fit doubles", "too many digits", "round the numbers")
        rows[row] = None
    try:
        return pack_rows(rows)
    except (OverflowError, VnnlibError):
        raise binding.error("numbers that fit doubles", "larger ones", "scale the formula") from None


def _expand(formula: Formula, binding: Binding) -> Disjuncts:
    if isinstance(formula, Compare):
        return _comparison(formula, binding)
    if isinstance(formula, And):
        return _product([_expand(p, binding) for p in formula.parts], binding)
    if isinstance(formula, Or):
        return _union([_expand(p, binding) for p in formula.parts], binding)
    raise TypeError(f"no rows for {type(formula).__name__}")


def _comparison(formula: Compare, binding: Binding) -> Disjuncts:
    left, right = pieces(formula.left, binding), pieces(formula.right, binding)
    strict = formula.operator == "<"
    each = [_atom(a.plus(b, -ONE), strict, binding) for a, b in _zipped(left, right, binding)]
    return _union(each, binding) if formula.any_of else _product(each, binding)


def _atom(piece: Piece, strict: bool, binding: Binding) -> Disjuncts:
    """piece <= 0 (or < 0) without maxima."""
    for k, (factor, parts) in enumerate(piece.bends):
        if factor < 0:
            rest = Piece(piece.terms, piece.constant, piece.bends[:k] + piece.bends[k + 1 :])
            return _union([_atom(rest.plus(p, factor), strict, binding) for p in parts], binding)
    if not piece.bends:
        return [((piece, strict),)]
    (factor, parts), rest = piece.bends[0], Piece(piece.terms, piece.constant, piece.bends[1:])
    return _product([_atom(rest.plus(p, factor), strict, binding) for p in parts], binding)


def _union(parts: Iterable[Disjuncts], binding: Binding) -> Disjuncts:
    found = [conjunction for part in parts for conjunction in part]
    _check_size(found, binding)
    return found


def _product(parts: Sequence[Disjuncts], binding: Binding) -> Disjuncts:
    single = [a for part in parts if len(part) == 1 for a in part[0]]
    found: Disjuncts = [tuple(single)]
    for part in parts:
        if len(part) == 1:
            continue
        if len(found) * len(part) > MAX_DISJUNCTS:
            raise binding.error(f"at most {MAX_DISJUNCTS} disjuncts", "more", "write it with fewer `any`")
        found = [a + b for a in found for b in part]
        _check_size(found, binding)
    return found


def _check_size(found: Disjuncts, binding: Binding) -> None:
    if len(found) > MAX_DISJUNCTS or sum(map(len, found)) > MAX_ROWS:
        limit = f"at most {MAX_DISJUNCTS} disjuncts and {MAX_ROWS} rows"
        raise binding.error(limit, "more", "write it with fewer alternatives")


def _zipped(left: list[Piece], right: list[Piece], binding: Binding) -> list[tuple[Piece, Piece]]:
    size = max(len(left), len(right))
    if not all(len(v) in (1, size) for v in (left, right)):
        raise binding.error("vectors of one length", f"{len(left)} and {len(right)} entries", "compare like")
    return [(left[i % len(left)], right[i % len(right)]) for i in range(size)]


def pieces(term: Term, binding: Binding) -> list[Piece]:
    """The entries of a term."""
    if isinstance(term, Number):
        return [Piece(constant=term.value)]
    if isinstance(term, Epsilon):
        return [Piece(constant=Fraction(binding.epsilon))]
    if isinstance(term, Vector):
        return _vector(term, binding)
    if isinstance(term, Pick):
        return _pick(pieces(term.vector, binding), term, binding)
    if isinstance(term, Sum):
        total = pieces(term.parts[0], binding)
        for part in term.parts[1:]:
            total = [a.plus(b) for a, b in _zipped(total, pieces(part, binding), binding)]
        return total
    if isinstance(term, Times):
        return _times(term, binding)
    if isinstance(term, Absolute):
        return [_largest([p, Piece().plus(p, -ONE)]) for p in pieces(term.part, binding)]
    if isinstance(term, Total):
        total_piece = Piece()
        for piece in pieces(term.part, binding):
            total_piece = total_piece.plus(piece)
        return [total_piece]
    if isinstance(term, Largest):
        return [_largest([p for part in term.parts for p in pieces(part, binding)])]
    raise TypeError(f"no rows for {type(term).__name__}")


def _largest(parts: list[Piece]) -> Piece:
    """max(parts); a part that is itself a plain maximum is taken apart."""
    flat: list[Piece] = []
    for p in parts:
        plain = len(p.bends) == 1 and p.bends[0][0] == 1 and not p.terms and not p.constant
        flat += p.bends[0][1] if plain else (p,)
    return flat[0] if len(flat) == 1 else Piece(bends=((ONE, tuple(flat)),))


def _times(term: Times, binding: Binding) -> list[Piece]:
    factor, part = pieces(term.factor, binding), pieces(term.part, binding)
    if any(p.terms or p.bends for p in factor):
        factor, part = part, factor
    if any(p.terms or p.bends for p in factor):
        raise binding.error(
            "a constant times a term", "a product of two variables", "queries are linear in x and y"
        )
    return [Piece().plus(p, c.constant) for c, p in _zipped(factor, part, binding)]


def _vector(term: Vector, binding: Binding) -> list[Piece]:
    n, m = binding.inputs, sum(binding.sizes)
    if term.name in ("x0", "y0"):
        numbers = binding.x0 if term.name == "x0" else binding.y0
        return [Piece(constant=Fraction(float(v))) for v in numbers]
    cut = n + binding.sizes[0]
    if term.name in ("y1", "y2") and len(binding.sizes) != 2:
        raise binding.error("y, where there is one network", term.name, "or say `networks: 2`")
    spans = {"x": (0, n), "y": (n, n + m), "y1": (n, cut), "y2": (cut, n + m)}
    return [Piece(((column, ONE),)) for column in range(*spans[term.name])]


def _pick(vector: list[Piece], term: Pick, binding: Binding) -> list[Piece]:
    chosen = positions(term.where, binding.label, len(vector), binding.where)
    return [vector[i] for i in chosen]
