"""VNN-LIB 1.0 as a list of regions: boxes of inputs, and conditions of which none may be reached from the box."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

from verifolio_check.integers import Unreadable

TOKEN = re.compile(r";[^\n]*|[()]|[^\s();]+")
MOST_TOKENS, MOST_DISJUNCTS, DEEPEST = 20_000_000, 100_000, 200
MOST_DIGITS = 400  # of a number, its exponent included: what doubles can hold and more
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


@dataclass(frozen=True)
class Property:
    inputs: int
    outputs: int
    regions: list[Region]


def read(text: str) -> Property:
    """The regions in the order of their first disjunct; those with an empty box are left out."""
    declared: dict[str, int] = {"X": 0, "Y": 0}
    common: list[Row] = []
    choices: list[list[list[Row]]] = []
    for form in parse(text):
        head, *rest = form if isinstance(form, list) and form else [form]
        if head in ("declare-const", "declare-fun") and rest and isinstance(rest[0], str):
            kind, number = variable(rest[0])
            if number != declared[kind] or rest[-1] != "Real" or (rest[1:-1] not in ([], [[]])):
                raise Unreadable(f"property: {rest[0]} is not the next variable, or not Real")
            declared[kind] += 1
        elif head == "assert" and len(rest) == 1:
            cases = disjunction(rest[0])
            if len(cases) == 1:
                common += cases[0]
            else:
                choices.append(cases)
        else:
            raise Unreadable(f"property: expected declare-const or assert, got {str(head)[:40]}")
    return Property(declared["X"], declared["Y"], gather(declared["X"], declared["Y"], common, choices))


def gather(inputs: int, outputs: int, common: list[Row], choices: list[list[list[Row]]]) -> list[Region]:
    """Every way to choose one case of each disjunction, grouped by box."""
    count = 1
    for cases in choices:
        count *= len(cases)
    if count > MOST_DISJUNCTS:
        raise Unreadable(f"property: more than {MOST_DISJUNCTS} disjuncts")
    low, high, shared = narrow([None] * inputs, [None] * inputs, common)
    regions: dict[object, Region] = {}
    for chosen in product(*choices):
        lower, upper, rows = narrow(low, high, [r for case in chosen for r in case])
        whole = (*shared, *rows)
        if any(i >= inputs for r in whole for i, _ in r.inputs) or any(
            i >= outputs for r in whole for i, _ in r.outputs
        ):
            raise Unreadable("property: a variable is used but not declared")
        box = tuple(v for v in (*lower, *upper) if v is not None)
        if len(box) != 2 * inputs:
            raise Unreadable("property: an input has no lower or no upper bound")
        if all(a <= b for a, b in zip(box[:inputs], box[inputs:], strict=True)):
            regions.setdefault(box, Region(box[:inputs], box[inputs:])).disjuncts.append(whole)
    return list(regions.values())


Bounds = list[Fraction | None]


def narrow(low: Bounds, high: Bounds, rows: list[Row]) -> tuple[Bounds, Bounds, list[Row]]:
    """Rows about a single input become bounds (a strict one too: the box is closed); the others are left."""
    low, high, left = list(low), list(high), []
    for row in rows:
        if row.outputs or len(row.inputs) != 1:
            left.append(row)
            continue
        ((i, c),) = row.inputs
        if i >= len(low):
            raise Unreadable(f"property: X_{i} is used but not declared")
        value, held = row.limit / c, (high if c > 0 else low)
        old = held[i]
        held[i] = value if old is None else min(old, value) if c > 0 else max(old, value)
        if row.strict:  # the box keeps its edge, the row goes on to exclude it
            left.append(row)
    return low, high, left


def parse(text: str) -> Iterator[Tree]:
    """The forms of a file."""
    stack: list[list[Tree]] = []
    for count, match in enumerate(TOKEN.finditer(text)):
        token = match.group()
        if count > MOST_TOKENS or len(stack) > DEEPEST:
            raise Unreadable("property: too large or too deep")
        if token.startswith(";"):
            continue
        if token == "(":
            stack.append([])
            continue
        if not stack:
            raise Unreadable(f"property: {token[:40]} outside parentheses")
        if token != ")":
            stack[-1].append(token)
            continue
        done = stack.pop()
        if stack:
            stack[-1].append(done)
        else:
            yield done
    if stack:
        raise Unreadable("property: a parenthesis is not closed")


def variable(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"([XY])_(\d{1,9})", name)
    if match is None:
        raise Unreadable(f"property: expected X_i or Y_i, got {name[:40]}")
    return match.group(1), int(match.group(2))


def disjunction(form: Tree) -> list[list[Row]]:
    """A formula as a disjunction of conjunctions."""
    if not isinstance(form, list) or not form:
        raise Unreadable(f"property: expected a formula, got {str(form)[:40]}")
    head, *rest = form
    if head == "or":
        return [case for part in rest for case in disjunction(part)]
    if head == "and":
        cases: list[list[Row]] = [[]]
        for part in rest:
            others = disjunction(part)
            if len(cases) * len(others) > MOST_DISJUNCTS:
                raise Unreadable(f"property: more than {MOST_DISJUNCTS} disjuncts")
            cases = [a + b for a in cases for b in others]
        return cases
    if head in ("<=", ">=", "<", ">") and len(rest) == 2:
        left, right = (affine(part) for part in rest)
        return [
            [row(left, right, head in ("<", ">")) if head in ("<=", "<") else row(right, left, head == ">")]
        ]
    raise Unreadable(f"property: expected or, and, <=, >=, < or > with two sides, got {str(head)[:40]}")


def row(small: Affine, large: Affine, strict: bool) -> Row:
    """small <= large."""
    total = plus(small, large, -1)
    limit = -total.pop("", Fraction(0))
    parts: dict[str, list[tuple[int, Fraction]]] = {"X": [], "Y": []}
    for name, c in sorted(total.items()):
        kind, number = variable(name)
        if c:
            parts[kind].append((number, c))
    return Row(tuple(parts["X"]), tuple(parts["Y"]), limit, strict)


def plus(a: Affine, b: Affine, factor: Fraction | int = 1) -> Affine:
    total = dict(a)
    for name, c in b.items():
        total[name] = total.get(name, Fraction(0)) + factor * c
    return total


def affine(form: Tree) -> Affine:
    """A term as coefficients and a constant."""
    if isinstance(form, str):
        if form[0] in "XY":
            return {form: Fraction(1)}
        return {"": number(form)}
    if not form:
        raise Unreadable("property: an empty term")
    head, *rest = form
    parts = [affine(part) for part in rest]
    if head == "+" and parts:
        return add_up(parts, 1)
    if head == "-" and parts:
        return plus({}, parts[0], -1) if len(parts) == 1 else add_up(parts, -1)
    if head == "*" and parts:
        return multiply(parts)
    raise Unreadable(f"property: expected +, - or *, got {str(head)[:40]}")


def add_up(parts: list[Affine], sign: int) -> Affine:
    total = parts[0]
    for part in parts[1:]:
        total = plus(total, part, sign)
    return total


def multiply(parts: list[Affine]) -> Affine:
    """A product in which all factors but one are constant."""
    total: Affine = {"": Fraction(1)}
    for part in parts:
        if set(total) - {""} and set(part) - {""}:
            raise Unreadable("property: a product of variables")
        constant, other = (part, total) if set(total) - {""} else (total, part)
        total = plus({}, other, constant.get("", Fraction(0)))
    return total


def number(token: str) -> Fraction:
    """An exact decimal."""
    match = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,4}))?", token)
    if match is None or len(token) > MOST_DIGITS or abs(int(match.group(2) or 0)) > MOST_DIGITS:
        raise Unreadable(f"property: expected a number, got {token[:40]}")
    return Fraction(match.group(1)) * Fraction(10) ** int(match.group(2) or 0)
