"""Formulas to exact constraints in disjunctive form: bounds on single inputs, and rows, linear in monomials."""

from __future__ import annotations

from collections.abc import Iterator
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
MAX_DEGREE = 16  # of a monomial: published properties have 2; each factor more is a product in the graph
MAX_EXPANDED = 1_000_000  # pairs of terms that all products of a file multiply out: hostile sums stay cheap
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


Monomial: TypeAlias = tuple[int, ...]  # columns in order, each as often as its power says
Polynomial: TypeAlias = dict[Monomial, Fraction]  # without the constant
Constraint: TypeAlias = Bound | LinearRow
Clause: TypeAlias = tuple[Constraint, ...]


class Linearizer:
    """Turns the comparisons of one document into constraints.

    `monomials` are those of degree 2 and more that some row has, by the column that stands for them: they come
    after the inputs and the outputs.
    """

    def __init__(self, source: Source, symbols: Symbols) -> None:
        self._source = source
        self._symbols = symbols
        self._numbers: dict[str, Decimal] = {}
        self._expanded = 0
        self.monomials: dict[Monomial, int] = {}

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

    def _difference(self, left: Expression, right: Expression) -> tuple[Polynomial, Fraction]:
        """left - right as terms and a constant."""
        terms, constant = self._polynomial(left)
        other, other_constant = self._polynomial(right)
        for monomial, value in other.items():
            terms[monomial] = terms.get(monomial, _ZERO) - value
        return {monomial: value for monomial, value in terms.items() if value}, constant - other_constant

    def _constraint(self, node: Apply, terms: Polynomial, constant: Fraction, operator: str) -> Constraint:
        """terms + constant (operator) 0, as a bound or a row."""
        strict, sign = operator in _STRICT, 1 if operator in ("<=", "<") else -1
        if len(terms) == 1:
            ((monomial, value),) = terms.items()
            if len(monomial) == 1 and monomial[0] < self._symbols.input_size:
                limit = -constant / value
                self._check_size(node, limit)
                return Bound(monomial[0], sign * value > 0, limit, strict)
        columns = {self._column(monomial): sign * value for monomial, value in terms.items()}
        row = scaled_to_doubles(LinearRow(tuple(sorted(columns.items())), -sign * constant, strict))
        if row is None:
            raise self._source.error(
                node.offset,
                expected="coefficients that some factor turns into doubles",
                got="coefficients with too many digits",
                remedy="write the coefficients with at most 15 digits",
            )
        self._check_size(node, row.rhs)
        return row

    def _column(self, monomial: Monomial) -> int:
        if len(monomial) == 1:
            return monomial[0]
        first = self._symbols.input_size + self._symbols.output_size
        return self.monomials.setdefault(monomial, first + len(self.monomials))

    def _polynomial(self, node: Expression) -> tuple[Polynomial, Fraction]:
        if isinstance(node, Atom):
            number = self.number(node.text)
            if number is not None:
                return {}, Fraction(number)
            return {(self._symbols.column(node),): _ONE}, _ZERO
        if node.operator == "*":
            return self._product(node)
        first, constant = self._polynomial(node.arguments[0])
        terms = dict(first)
        if node.operator == "-" and len(node.arguments) == 1:
            return {monomial: -value for monomial, value in terms.items()}, -constant
        sign = -1 if node.operator == "-" else 1
        for argument in node.arguments[1:]:
            more, more_constant = self._polynomial(argument)
            for monomial, value in more.items():
                terms[monomial] = terms.get(monomial, _ZERO) + sign * value
            constant += sign * more_constant
        return {monomial: value for monomial, value in terms.items() if value}, constant

    def _product(self, node: Apply) -> tuple[Polynomial, Fraction]:
        terms: Polynomial = {}
        constant = _ONE
        for argument in node.arguments:
            factor_terms, factor = self._polynomial(argument)
            self._spend(node, terms, factor_terms)
            found: Polynomial = {}
            for left, right, value in _pairs(terms, constant, factor_terms, factor):
                monomial = tuple(sorted(left + right))
                found[monomial] = found.get(monomial, _ZERO) + value
            terms = {monomial: value for monomial, value in found.items() if value}
            constant *= factor
            for value in (constant, *terms.values()):
                self._check_bits(argument, value)
        return terms, constant

    def _spend(self, node: Apply, left: Polynomial, right: Polynomial) -> None:
        """Count what a product will multiply out before it does."""
        self._expanded += len(left) * len(right)
        degree = max(map(len, left), default=0) + max(map(len, right), default=0)
        if degree > MAX_DEGREE or self._expanded > MAX_EXPANDED:
            what = f"degree {degree}" if degree > MAX_DEGREE else f"{self._expanded} pairs of terms"
            raise self._source.error(
                node.offset,
                expected=f"polynomials of degree at most {MAX_DEGREE}, of {MAX_EXPANDED} pairs of terms in all",
                got=what,
                remedy="let the network compute such a product",
            )

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


def _pairs(
    terms: Polynomial, constant: Fraction, others: Polynomial, other: Fraction
) -> Iterator[tuple[Monomial, Monomial, Fraction]]:
    """The parts of (terms + constant) * (others + other) that are no constants."""
    for left, value in terms.items():
        if other:
            yield left, (), value * other
        for right, factor in others.items():
            yield left, right, value * factor
    if constant:
        for right, factor in others.items():
            yield (), right, constant * factor
