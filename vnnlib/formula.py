"""Forms to formulas: every operator and arity is checked here, so later stages need not."""

from __future__ import annotations

from collections.abc import Sequence

from verifolio.vnnlib.errors import VnnlibError, shorten
from verifolio.vnnlib.source import Source
from verifolio.vnnlib.tree import Apply, Assertion, Atom, Expression, Form, Item, Version

ARITHMETIC = frozenset({"+", "-", "*"})
CONNECTIVES = frozenset({"and", "or"})
COMPARISONS: dict[Version, frozenset[str]] = {
    "1.0": frozenset({"<=", ">=", "<", ">", "="}),
    "2.0": frozenset({"<=", ">=", "<", ">", "==", "!="}),
}
_ANY_COMPARISON = COMPARISONS["1.0"] | COMPARISONS["2.0"]
_RESPELL = {"=": "write '=='", "==": "write '='", "!=": "write (or (< a b) (> a b))"}


class FormulaReader:
    """Interprets the forms of one text in one dialect."""

    def __init__(self, source: Source, version: Version) -> None:
        self._source = source
        self._comparisons = COMPARISONS[version]
        self._version = version
        self.warnings: list[str] = []

    def assertion(self, item: Assertion | Form) -> Assertion:
        """`(assert formula)`, be it already recognised by the lexer or not."""
        if isinstance(item, Assertion):
            if item.formula.operator not in self._comparisons:
                raise self._bad_comparison(item.formula.offset, item.formula.operator)
            return item
        if len(item.items) != 2:
            raise self._source.error(
                item.offset,
                expected="one formula after assert",
                got=f"{len(item.items) - 1} items",
                remedy="join formulas with (and ...)",
            )
        return Assertion(item.offset, self.formula(item.items[1]))

    def formula(self, item: Item) -> Apply:
        """A comparison, or `and` / `or` over formulas."""
        if isinstance(item, Apply):
            if item.operator not in self._comparisons:
                raise self._bad_comparison(item.offset, item.operator)
            return item
        if not isinstance(item, Form):
            raise self._no_formula(item)
        head = self._head(item)
        if head in CONNECTIVES:
            if len(item.items) < 2:
                raise self._few(item, head, 1)
            return Apply(item.offset, head, tuple(self.formula(part) for part in item.items[1:]))
        if head in self._comparisons:
            return self._comparison(item, head)
        if head in _ANY_COMPARISON:
            raise self._bad_comparison(item.offset, head)
        return self._infix(item)

    def term(self, item: Item) -> Expression:
        """A number, a variable, or `+ - *` over terms."""
        if isinstance(item, Atom):
            if item.text[0] in '["':
                raise self._no_term(item.offset, item.text)
            return item
        if not isinstance(item, Form):
            raise self._no_term(item.offset, "a formula")
        head = self._head(item)
        if head not in ARITHMETIC:
            raise self._no_term(item.offset, f"({head}")
        arguments = self._terms(item.items[1:])
        if not arguments:
            raise self._few(item, head, 1)
        return Apply(item.offset, head, arguments)

    def _comparison(self, item: Form, head: str) -> Apply:
        arguments = self._terms(item.items[1:])
        if len(arguments) < 2:
            raise self._few(item, head, 2)
        if len(arguments) > 2 and self._version == "2.0":
            raise self._source.error(
                item.offset,
                expected=f"two terms after {head}",
                got=str(len(arguments)),
                remedy="join two comparisons with (and ...)",
            )
        return Apply(item.offset, head, arguments)

    def _infix(self, item: Form) -> Apply:
        """`(a < b)`, which no standard knows but published files have; its meaning is plain."""
        texts = [part.text if isinstance(part, Atom) else "" for part in item.items]
        at = next((k for k, text in enumerate(texts) if k and text in _ANY_COMPARISON), 0)
        sides = (item.items[:at], item.items[at + 1 :])
        if not at or not all(len(side) == 1 or _has_index(side) for side in sides):
            raise self._no_connective(item)
        if texts[at] not in self._comparisons:
            raise self._bad_comparison(item.items[at].offset, texts[at])
        (left,), (right,) = (self._terms(side) for side in sides)
        line, column = self._source.locate(item.offset)
        operator = texts[at]
        self.warnings.append(
            f"{self._source.name}:{line}:{column}: the operator comes first in VNN-LIB; "
            f"read as ({operator} a b) what is written as (a {operator} b)"
        )
        return Apply(item.offset, operator, (left, right))

    def _terms(self, items: Sequence[Item]) -> tuple[Expression, ...]:
        """Terms of a list, joining `X` and a detached `[0, 3]` into one variable."""
        terms: list[Expression] = []
        for item in items:
            previous = terms[-1] if terms else None
            if isinstance(item, Atom) and item.text[0] == "[" and isinstance(previous, Atom):
                terms[-1] = Atom(previous.offset, previous.text + item.text)
            else:
                terms.append(self.term(item))
        return tuple(terms)

    def _head(self, form: Form) -> str:
        first = form.items[0] if form.items else None
        return first.text if isinstance(first, Atom) else ""

    def _few(self, item: Form, head: str, least: int) -> VnnlibError:
        return self._source.error(
            item.offset,
            expected=f"at least {least} argument{'s' if least > 1 else ''} after {head}",
            got=str(len(item.items) - 1),
            remedy="complete or remove it",
        )

    def _bad_comparison(self, offset: int, operator: str) -> VnnlibError:
        return self._source.error(
            offset,
            expected=f"a comparison of VNN-LIB {self._version} ({' '.join(sorted(self._comparisons))})",
            got=repr(operator),
            remedy=_RESPELL[operator],
        )

    def _no_term(self, offset: int, got: str) -> VnnlibError:
        return self._source.error(
            offset,
            expected="a number, a variable or (+ - * ...)",
            got=shorten(got),
            remedy="only sums, differences and products are allowed here",
        )

    def _no_formula(self, item: Item) -> VnnlibError:
        got = shorten(item.text) if isinstance(item, Atom) else "a command"
        return self._source.error(
            item.offset,
            expected="a formula in parentheses",
            got=got,
            remedy="write (<= a b), (and ...) or (or ...)",
        )

    def _no_connective(self, form: Form) -> VnnlibError:
        end = self._source.text.find(")", form.offset) + 1
        written = self._source.text[form.offset : end]
        remedy = "rewrite the formula with and, or and comparisons"
        return self._source.error(
            form.offset, expected="and, or or a comparison operator", got=shorten(written), remedy=remedy
        )


def _has_index(side: Sequence[Item]) -> bool:
    """Whether these are a tensor's name and its index, which the lexer reads as two."""
    match side:
        case (Atom(), Atom(text=index)):
            return index.startswith("[")
    return False
