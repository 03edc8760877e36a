"""VNN-LIB 1.0 as a list of regions: boxes of inputs, and conditions of which none may be reached from the box."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod

from verifolio_check.integers import Unreadable

TOKEN = re.compile(r";[^\n\r]*|[()]|[^\s();]+")
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,4}))?")
VARIABLE = re.compile(r"[XY]_(?:0|[1-9]\d{0,8})")
MOST_TOKENS, MOST_DISJUNCTS, DEEPEST = 20_000_000, 100_000, 200
MOST_DIGITS = 400  # of a number, its exponent included: what doubles can hold and more
MOST_BITS = 1 << 14  # of a product of numbers
Tree = str | list["Tree"]
Affine = dict[str, Fraction]  # coefficients by name; the constant is under ""


@dataclass(frozen=True)
class Row:
    """sum of coefficient times value <= limit, or < limit; values are those of `X_i` and `Y_i`."""

    inputs: tuple[tuple[int, Fraction], ...]
    outputs: tuple[tuple[int, Fraction], ...]
    limit: Fraction
    strict: bool


@dataclass
class Region:
    """A box of inputs; a counterexample satisfies all rows of one of the disjuncts."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    disjuncts: list[tuple[Row, ...]] = field(default_factory=list)


def read(text: str, inputs: int, outputs: int) -> list[Region]:
    """The regions in the order of their first disjunct; those with an empty box are left out."""
    declared: list[str] = []
    choices: list[list[list[Row]]] = []
    for form in parse(text):
        head, *rest = form or [""]
        if head in ("declare-const", "declare-fun") and rest[-1:] == ["Real"] and rest[1:-1] in ([], [[]]):
            declared.append(str(rest[0]))
        elif head == "assert" and len(rest) == 1:
            choices.append(disjunction(rest[0]))
        else:
            raise Unreadable(f"property: expected declare-const or assert, got {str(form)[:40]}")
    wanted = [f"X_{i}" for i in range(inputs)] + [f"Y_{i}" for i in range(outputs)]
    if sorted(declared, key=lambda name: name[0]) != wanted:
        raise Unreadable(
            f"property: expected that it declares X_0 to {wanted[inputs - 1]} and Y_0 to {wanted[-1]}"
        )
    limit_count(choices)
    common = [row for cases in choices if len(cases) == 1 for row in cases[0]]
    regions: dict[object, Region] = {}
    for chosen in product(*(cases for cases in choices if len(cases) != 1)):
        lower, upper, rows = box([*common, *(row for case in chosen for row in case)], inputs, outputs)
        if all(a <= b for a, b in zip(lower, upper, strict=True)):
            regions.setdefault((lower, upper), Region(lower, upper)).disjuncts.append(rows)
    return list(regions.values())


def limit_count(choices: list[list[list[Row]]]) -> None:
    if prod(map(len, choices)) > MOST_DISJUNCTS:
        raise Unreadable(f"property: more than {MOST_DISJUNCTS} disjuncts")


def box(
    rows: list[Row], inputs: int, outputs: int
) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...], tuple[Row, ...]]:
    """Rows about a single input become bounds (a strict one too: the box is closed); the others are left."""
    low: dict[int, Fraction] = {}
    high: dict[int, Fraction] = {}
    left = []
    for row in rows:
        if any(i >= inputs for i, _ in row.inputs) or any(i >= outputs for i, _ in row.outputs):
            raise Unreadable("property: a variable is used but not declared")
        alone = not row.outputs and len(row.inputs) == 1
        if alone:
            ((i, c),) = row.inputs
            held, better = (high, min) if c > 0 else (low, max)
            held[i] = better(held.get(i, row.limit / c), row.limit / c)
        if row.strict or not alone:
            left.append(row)
    if len(low) != inputs or len(high) != inputs:
        raise Unreadable("property: an input has no lower or no upper bound")
    return tuple(low[i] for i in range(inputs)), tuple(high[i] for i in range(inputs)), tuple(left)


def parse(text: str) -> list[list[Tree]]:
    """The forms of a file."""
    forms: list[list[Tree]] = []
    stack: list[list[Tree]] = []
    for count, match in enumerate(TOKEN.finditer(text)):
        token = match.group()
        if count > MOST_TOKENS or len(stack) > DEEPEST:
            raise Unreadable("property: too large or too deep")
        if token == "(":
            stack.append([])
        elif token == ")" and stack:
            form = stack.pop()
            if stack:
                stack[-1].append(form)
            else:
                forms.append(form)
        elif not token.startswith(";"):
            if not stack:
                raise Unreadable(f"property: {token[:40]} outside parentheses")
            stack[-1].append(token)
    if stack:
        raise Unreadable("property: a parenthesis is not closed")
    return forms


def disjunction(form: Tree) -> list[list[Row]]:
    """A formula as a disjunction of conjunctions."""
    head, *rest = form if isinstance(form, list) and form else [str(form)]
    if head == "or":
        return [case for part in rest for case in disjunction(part)]
    if head == "and":
        parts = [disjunction(part) for part in rest]
        limit_count(parts)
        if prod(map(len, parts)) * sum(max(map(len, cases), default=0) for cases in parts) > MOST_TOKENS:
            raise Unreadable("property: conjunctions with too many rows in total")
        return [[row for case in cases for row in case] for cases in product(*parts)]
    if head not in ("<=", ">=", "<", ">") or len(rest) != 2:
        raise Unreadable(f"property: expected or, and, <=, >=, < or > with two sides, got {str(head)[:40]}")
    small, large = (affine(part) for part in (rest if head in ("<=", "<") else rest[::-1]))
    total = plus(small, large, -1)
    limit = -total.pop("", Fraction(0))
    terms = [(name[0], int(name[2:]), c) for name, c in sorted(total.items()) if c]
    x, y = (tuple((i, c) for kind, i, c in terms if kind == wanted) for wanted in "XY")
    return [[Row(x, y, limit, head in ("<", ">"))]]


def plus(a: Affine, b: Affine, factor: Fraction | int = 1) -> Affine:
    return {name: a.get(name, Fraction(0)) + factor * b.get(name, Fraction(0)) for name in {**a, **b}}


def affine(form: Tree) -> Affine:
    """A term as coefficients and a constant."""
    if isinstance(form, str):
        return {form: Fraction(1)} if VARIABLE.fullmatch(form) else {"": number(form)}
    head, *rest = form or [""]
    if head not in ("+", "-", "*") or not rest:
        raise Unreadable(f"property: expected +, - or *, got {str(head)[:40]}")
    total, *others = (affine(part) for part in rest)
    if head == "-" and not others:
        return plus({}, total, -1)
    for part in others:
        if head != "*":
            total = plus(total, part, 1 if head == "+" else -1)
        elif set(total) <= {""} or set(part) <= {""}:
            constant, other = (total, part) if set(total) <= {""} else (part, total)
            total = plus({}, other, constant[""])
            if any(max(abs(v.numerator), v.denominator).bit_length() > MOST_BITS for v in total.values()):
                raise Unreadable("property: a product of too many digits")
        else:
            raise Unreadable("property: a product of variables")
    return total


def number(token: str) -> Fraction:
    """An exact decimal."""
    match = NUMBER.fullmatch(token)
    if match is None or len(token) > MOST_DIGITS or abs(int(match.group(2) or 0)) > MOST_DIGITS:
        raise Unreadable(f"property: expected a number, got {token[:40]}")
    return Fraction(match.group(1)) * Fraction(10) ** int(match.group(2) or 0)
