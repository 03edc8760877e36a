"""Formulas from text: a small grammar, nothing is ever executed.

    y[label] > y[others]                      the label's score is above all others
    norm(y - y0) <= 0.5 and y[3] < 2          comparisons of vectors hold for every entry
    any(y[others] > y[label] - 1)             for some entry
    x[0] >= 0.5 implies max(y[1:4]) <= y[0]   positions and ranges count from 0

Names: x, y (the point), x0, y0 (the reference), y1, y2 (two networks), epsilon, and the options. Functions:
abs, norm (maximum norm), max, min, sum. From loosest to tightest: implies, or, and, not, comparisons, + -, *.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

from verifolio.errors import InputError
from verifolio.properties.formula.terms import (
    EPSILON,
    Absolute,
    And,
    Compare,
    Formula,
    Name,
    Number,
    Or,
    Pick,
    Term,
    Times,
    Total,
    Vector,
    equal,
    largest,
    negate,
    norm,
    smallest,
    some,
    term,
)

MAX_TEXT = 20_000  # characters: far beyond what a person writes, and parsed in milliseconds
MAX_DEPTH = 60  # of brackets, far below Python's limit on recursion
MAX_DIGITS = 1000  # of a number; Python reads no more than 4300, and no double has as many
FUNCTIONS = ("abs", "norm", "max", "min", "sum", "any", "all")
WORDS = ("implies", "or", "and", "not")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol><=|>=|==|!=|[-+*/<>()\[\],:]))",
    re.ASCII,
)


@dataclass(frozen=True)
class Token:
    text: str
    kind: str
    position: int


def parse_formula(text: str, options: Mapping[str, float] | None = None, where: str = "formula") -> Formula:
    """The formula that a text describes; `options` are names for numbers."""
    if len(text) > MAX_TEXT:
        raise InputError(where, f"at most {MAX_TEXT} characters", str(len(text)))
    return _Parser(_tokens(text, where), options or {}, where).whole()


def _tokens(text: str, where: str) -> list[Token]:
    found, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None or match.lastgroup is None:
            raise InputError(
                f"{where}, character {position + 1}", "a name, number or operator", repr(text[position])
            )
        if match.lastgroup == "number" and match.end() - position > MAX_DIGITS:
            raise InputError(f"{where}, character {position + 1}", f"at most {MAX_DIGITS} digits", "more")
        found.append(Token(match.group(match.lastgroup), match.lastgroup, match.start(match.lastgroup) + 1))
        position = match.end()
    return [*found, Token("", "end", len(stripped) + 1)]


class _Parser:
    def __init__(self, tokens: list[Token], options: Mapping[str, float], where: str) -> None:
        self._tokens, self._options, self._where = tokens, options, where
        self._next, self._depth = 0, 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _error(self, expected: str, remedy: str = "", token: Token | None = None) -> InputError:
        token = token or self._token
        got = repr(token.text) if token.text else "the end"
        return InputError(f"{self._where}, character {token.position}", expected, got, remedy)

    def _take(self, *texts: str) -> Token | None:
        token = self._token
        if token.text not in texts or token.kind == "end":
            return None
        self._next += 1
        return token

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise self._error(repr(text))

    def whole(self) -> Formula:
        found = self._formula()
        if self._token.kind != "end":
            raise self._error("the end of the formula", "did you forget `and` or an operator?")
        return found

    def _formula(self) -> Formula:
        start = self._token
        found = self._implies()
        if not isinstance(found, Formula):
            raise self._error("a comparison such as y[0] <= 1", "compare the term with something", start)
        return found

    def _implies(self) -> Term | Formula:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"at most {MAX_DEPTH} levels of nesting")
        left = self._joined("or")
        while (token := self._take("implies")) is not None:
            right = self._joined("or")
            left = Or((negate(self._truth(left, token)), self._truth(right, token)))
        self._depth -= 1
        return left

    def _joined(self, word: str) -> Term | Formula:
        left = self._joined("and") if word == "or" else self._not()
        while (token := self._take(word)) is not None:
            right = self._joined("and") if word == "or" else self._not()
            parts = (self._truth(left, token), self._truth(right, token))
            left = Or(parts) if word == "or" else And(parts)
        return left

    def _truth(self, found: Term | Formula, token: Token) -> Formula:
        if not isinstance(found, Formula):
            raise self._error(f"comparisons on both sides of `{token.text}`", "", token)
        return found

    def _not(self) -> Term | Formula:
        token = self._take("not")
        return self._comparison() if token is None else negate(self._truth(self._not(), token))

    def _comparison(self) -> Term | Formula:
        left = self._sum()
        found: list[Formula] = []
        while (token := self._take("<=", ">=", "<", ">", "==", "!=")) is not None:
            right = self._sum()
            if not (isinstance(left, Term) and isinstance(right, Term)):
                raise self._error("terms on both sides of a comparison", "", token)
            found.append(_compared(left, token.text, right))
            left = right
        if not found:
            return left
        return found[0] if len(found) == 1 else And(tuple(found))

    def _sum(self) -> Term | Formula:
        left = self._product()
        while (token := self._take("+", "-")) is not None:
            right = self._product()
            if not (isinstance(left, Term) and isinstance(right, Term)):
                raise self._error("terms on both sides", "", token)
            left = left + right if token.text == "+" else left - right
        return left

    def _product(self) -> Term | Formula:
        left = self._unary()
        while (token := self._take("*", "/")) is not None:
            right = self._unary()
            if not (isinstance(left, Term) and isinstance(right, Term)):
                raise self._error("terms on both sides", "", token)
            if token.text == "/":
                if not isinstance(right, Number) or right.value == 0:
                    raise self._error("a division by a number other than 0", "", token)
                right = Number(1 / right.value)
            left = self._times(left, right)
        return left

    def _times(self, left: Term, right: Term) -> Term:
        if isinstance(left, Number) and isinstance(right, Number):
            return Number(left.value * right.value)
        return Times(left, right)

    def _unary(self) -> Term | Formula:
        token = self._take("-", "+")
        if token is None:
            return self._postfix()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"at most {MAX_DEPTH} levels of nesting")
        found = self._unary()
        self._depth -= 1
        if not isinstance(found, Term):
            raise self._error("a term after a sign", "", token)
        if isinstance(found, Number):
            return Number(-found.value if token.text == "-" else found.value)
        return -found if token.text == "-" else found

    def _postfix(self) -> Term | Formula:
        found = self._primary()
        while (token := self._take("[")) is not None:
            if not isinstance(found, Vector):
                raise self._error("a position of x, y, x0, y0, y1 or y2", "", token)
            found = self._index(found)
        return found

    def _index(self, vector: Vector) -> Term:
        token = self._token
        if token.text in ("label", "others"):
            self._next += 1
            self._need("]")
            return Pick(vector, "label" if token.text == "label" else "others")
        positions = [self._position()]
        if self._take(":"):
            stop = self._position()
            self._need("]")
            if stop <= positions[0]:
                raise self._error("a range with entries, such as 0:3", "", token)
            return Pick(vector, slice(positions[0], stop))
        while self._take(","):
            positions.append(self._position())
        self._need("]")
        return Pick(vector, tuple(positions))

    def _position(self) -> int:
        token = self._token
        if token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
            raise self._error("label, others, or positions from 0")
        self._next += 1
        return int(token.text)

    def _primary(self) -> Term | Formula:
        token = self._token
        self._next += 1
        if token.kind == "number":
            return Number(Fraction(token.text))
        if token.text == "(":
            found = self._implies()
            self._need(")")
            return found
        if token.kind == "name" and token.text in FUNCTIONS:
            return self._call(token)
        if token.kind == "name":
            return self._name(token)
        self._next -= 1
        raise self._error("a term")

    def _name(self, token: Token) -> Term:
        for name in get_args(Name):
            if name == token.text:
                return Vector(name)
        if token.text == "epsilon":
            return EPSILON
        if token.text in self._options:
            return term(Fraction(str(self._options[token.text])))
        known = ", ".join([*get_args(Name), "epsilon", *self._options, *FUNCTIONS])
        raise self._error(f"one of {known}", "define options under `options:`", token)

    def _call(self, token: Token) -> Term | Formula:
        self._need("(")
        arguments = [self._implies()]
        while self._take(","):
            arguments.append(self._implies())
        self._need(")")
        name, first = token.text, arguments[0]
        if name in ("any", "all"):
            if len(arguments) != 1 or not isinstance(first, Compare):
                raise self._error(f"one comparison inside {name}(...)", "", token)
            return some(first) if name == "any" else first
        terms = [a for a in arguments if isinstance(a, Term)]
        if len(terms) != len(arguments) or (name in ("abs", "norm", "sum") and len(terms) != 1):
            raise self._error(f"terms inside {name}(...)", "", token)
        if name == "max":
            return largest(*terms)
        if name == "min":
            return smallest(*terms)
        return {"abs": Absolute, "norm": norm, "sum": Total}[name](terms[0])


def _compared(left: Term, operator: str, right: Term) -> Formula:
    if operator == "==":
        return equal(left, right)
    if operator == "!=":
        return negate(equal(left, right))
    found = {"<=": left <= right, "<": left < right, ">=": left >= right, ">": left > right}
    return found[operator]
