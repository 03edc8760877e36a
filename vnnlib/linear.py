"""Formulas to exact constraints in disjunctive form: bounds on single inputs, and linear rows."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from verifolio.vnnlib.errors import shorten
from verifolio.vnnlib.exact import MAX_DOUBLE, Exact, read_number
from verifolio.vnnlib.rows import LinearRow, scaled_to_doubles
from verifolio.vnnlib.source import Source
from verifolio.vnnlib.symbols import Symbols
from verifolio.vnnlib.tree import Apply, Atom, Expression

MAX_BITS = 6_000  # of numerators and denominators: hostile products stay cheap, honest ones never get there
_FLIP = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "=": "=", "==": "==", "!=": "!="}
_PARTS: dict[str, tuple[str, ...]] = {
    **{operator: (operator,) for operator in ("<=", ">=", "<", ">")},
    "=": ("<=", ">="),
    "==": ("<=", ">="),
    "!=": ("<", ">"),
}
_STRICT = frozenset({"<", ">"})
_ZERO, _ONE, _MINUS_ONE = Fraction(0), Fraction(1), Fraction(-1)


class Bound(NamedTuple):
    """A plain bound on one input column."""

    column: int
    upper: bool
    value: Exact
    strict: bool


Constraint: TypeAlias = Bound | LinearRow
Clause: TypeAlias = tuple[Constraint, ...]


class Linearizer:
    """Turns the comparisons of one document into constraints."""

    def __init__(self, source: Source, symbols: Symbols) -> None:
        self._source = source
        self._symbols = symbols
        self._numbers: dict[str, Decimal] = {}

    def comparison(self, node: Apply) -> list[Clause]:
        """A comparison as a disjunction of clauses: one, but for `!=`; none means false."""
        if len(node.arguments) > 2:
            return self._chain(node)
        left, right = node.arguments
        if isinstance(left, Atom) and isinstance(right, Atom):
            clauses = self._plain(node.operator, left, right)
            if clauses is not None:
                return clauses
        terms, constant = self._difference(left, right)
        self._check_size(node, constant)
        if not terms:
            return [()] if _holds(node.operator, constant) else []
        parts = [self._constraint(node, terms, constant, operator) for operator in _PARTS[node.operator]]
        return [(part,) for part in parts] if node.operator == "!=" else [tuple(parts)]

    def _chain(self, node: Apply) -> list[Clause]:
        """`(<= a b c)` of SMT-LIB means a <= b and b <= c."""
        constraints: list[Constraint] = []
        for left, right in zip(node.arguments, node.arguments[1:], strict=False):
            clauses = self.comparison(Apply(node.offset, node.operator, (left, right)))
            if not clauses:
                return []
            constraints.extend(clauses[0])
        return [tuple(constraints)]

    def _plain(self, operator: str, left: Atom, right: Atom) -> list[Clause] | None:
        """The shortcut for `(<= X_0 0.5)` and `(<= Y_0 Y_1)`: nearly every comparison of every file."""
        value = self.number(right.text)
        if value is None:
            value = self.number(left.text)
            if value is None:
                return self._plain_pair(operator, left, right)
            left, operator = right, _FLIP[operator]
        elif self.number(left.text) is not None:
            return None
        column = self._symbols.column(left)
        parts: tuple[Constraint, ...]
        if column < self._symbols.input_size:
            if operator == "<=" or operator == ">=":
                return [(Bound(column, operator == "<=", value, False),)]
            parts = tuple(Bound(column, op[0] == "<", value, op in _STRICT) for op in _PARTS[operator])
        else:
            rhs = Fraction(value)
            parts = tuple(
                LinearRow(((column, _ONE),), rhs, op in _STRICT)
                if op[0] == "<"
                else LinearRow(((column, _MINUS_ONE),), -rhs, op in _STRICT)
                for op in _PARTS[operator]
            )
        return [(part,) for part in parts] if operator == "!=" else [parts]

    def _plain_pair(self, operator: str, left: Atom, right: Atom) -> list[Clause] | None:
        first, second = self._symbols.column(left), self._symbols.column(right)
        if first == second:
            return None
        if first > second:
            first, second, operator = second, first, _FLIP[operator]
        parts = tuple(
            LinearRow(((first, s), (second, -s)), _ZERO, op in _STRICT)
            for op in _PARTS[operator]
            for s in (_ONE if op[0] == "<" else _MINUS_ONE,)
        )
        return [(part,) for part in parts] if operator == "!=" else [parts]

    def number(self, text: str) -> Decimal | None:
        """The value of a number's text, None for anything else."""
        value = self._numbers.get(text)
        if value is None and text[0] in "0123456789.+-":
            value = read_number(text)
            if value is not None:
                self._numbers[text] = value
        return value

    def _difference(self, left: Expression, right: Expression) -> tuple[dict[int, Fraction], Fraction]:
        """left - right as terms and a constant."""
        terms, constant = self._linear(left)
        other, other_constant = self._linear(right)
        for column, value in other.items():
            terms[column] = terms.get(column, Fraction(0)) - value
        return {column: value for column, value in terms.items() if value}, constant - other_constant

    def _constraint(
        self, node: Apply, terms: dict[int, Fraction], constant: Fraction, operator: str
    ) -> Constraint:
        """terms + constant (operator) 0, as a bound or a row."""
        strict, sign = operator in _STRICT, 1 if operator in ("<=", "<") else -1
        if len(terms) == 1:
            ((column, value),) = terms.items()
            if column < self._symbols.input_size:
                limit = -constant / value
                self._check_size(node, limit)
                return Bound(column, sign * value > 0, limit, strict)
        ordered = tuple((column, sign * terms[column]) for column in sorted(terms))
        row = scaled_to_doubles(LinearRow(ordered, -sign * constant, strict))
        if row is None:
            raise self._source.error(
                node.offset,
                expected="coefficients that some factor turns into doubles",
                got="coefficients with too many digits",
                remedy="write the coefficients with at most 15 digits",
            )
        self._check_size(node, row.rhs)
        return row

    def _linear(self, node: Expression) -> tuple[dict[int, Fraction], Fraction]:
        if isinstance(node, Atom):
            number = self.number(node.text)
            if number is not None:
                return {}, Fraction(number)
            return {self._symbols.column(node): Fraction(1)}, Fraction(0)
        if node.operator == "*":
            return self._product(node)
        first, constant = self._linear(node.arguments[0])
        terms = dict(first)
        if node.operator == "-" and len(node.arguments) == 1:
            return {column: -value for column, value in terms.items()}, -constant
        sign = -1 if node.operator == "-" else 1
        for argument in node.arguments[1:]:
            more, more_constant = self._linear(argument)
            for column, value in more.items():
                terms[column] = terms.get(column, Fraction(0)) + sign * value
            constant += sign * more_constant
        return {column: value for column, value in terms.items() if value}, constant

    def _product(self, node: Apply) -> tuple[dict[int, Fraction], Fraction]:
        terms: dict[int, Fraction] = {}
        constant = Fraction(1)
        for argument in node.arguments:
            factor_terms, factor = self._linear(argument)
            if factor_terms and terms:
                raise self._source.error(
                    node.offset,
                    expected="a linear term",
                    got="a product of two variables",
                    remedy="multiply variables by constants only",
                )
            if factor_terms:
                terms = {column: value * constant for column, value in factor_terms.items()}
                constant *= factor
            else:
                terms = {column: value * factor for column, value in terms.items() if factor}
                constant *= factor
            for value in (constant, *terms.values()):
                self._check_bits(argument, value)
        return terms, constant

    def _check_bits(self, node: Expression, value: Fraction) -> None:
        if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
            raise self._source.error(
                node.offset,
                expected="a product within the range of doubles",
                got=f"a number of more than {MAX_BITS} bits",
                remedy="use smaller factors",
            )

    def _check_size(self, node: Apply, value: Fraction) -> None:
        self._check_bits(node, value)
        if abs(value) > MAX_DOUBLE:
            raise self._source.error(
                node.offset,
                expected="numbers within the range of doubles",
                got=shorten(node.operator) + " with a larger one",
                remedy="rescale the comparison",
            )


def _holds(operator: str, difference: Fraction) -> bool:
    """Whether `difference (operator) 0`."""
    if operator in ("=", "=="):
        return difference == 0
    if operator == "!=":
        return difference != 0
    below = operator[0] == "<"
    return (difference < 0 if below else difference > 0) or (operator[-1] == "=" and difference == 0)
