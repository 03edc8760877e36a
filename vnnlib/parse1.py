"""The commands of VNN-LIB 1.0: an SMT-LIB subset with constants X_i and Y_i."""

from __future__ import annotations

from verifolio.vnnlib.errors import VnnlibError, shorten
from verifolio.vnnlib.formula import FormulaReader
from verifolio.vnnlib.source import Source
from verifolio.vnnlib.tree import Apply, Assertion, Atom, Constant, Document, Form, Item

# SMT-LIB scripts carry these; they say nothing about the property.
_IGNORED = frozenset({"set-logic", "set-info", "set-option", "check-sat", "get-model", "get-value", "exit"})


def parse_first_dialect(source: Source, items: list[Item]) -> Document:
    """Interpret top-level items as VNN-LIB 1.0."""
    reader = FormulaReader(source, "1.0")
    constants: list[Constant] = []
    assertions: list[Assertion] = []
    for item in items:
        if isinstance(item, Constant):
            constants.append(_checked(source, item))
        elif isinstance(item, Assertion):
            assertions.append(reader.assertion(item))
        elif not isinstance(item, Form):
            raise _no_command(source, item)
        else:
            head = item.items[0] if item.items else item
            name = head.text if isinstance(head, Atom) else ""
            if name == "assert":
                assertions.append(reader.assertion(item))
            elif name in ("declare-const", "declare-fun"):
                constants.append(_constant(source, item, name))
            elif name not in _IGNORED:
                raise _no_command(source, head)
    return Document(source, "1.0", tuple(constants), (), tuple(assertions), tuple(reader.warnings))


def _constant(source: Source, form: Form, head: str) -> Constant:
    """`(declare-const X_0 Real)` or `(declare-fun X_0 () Real)`."""
    arguments = form.items[1:]
    if head == "declare-fun" and len(arguments) == 3:
        middle = arguments[1]
        if isinstance(middle, Form) and not middle.items:
            arguments = (arguments[0], arguments[2])
    match arguments:
        case (Atom(text=name), Atom(text=sort)):
            return _checked(source, Constant(form.offset, name, sort))
    form_of = "(declare-fun X_0 () Real)" if head == "declare-fun" else "(declare-const X_0 Real)"
    raise source.error(
        form.offset,
        expected=form_of,
        got=f"{len(form.items) - 1} items",
        remedy="name one variable and its sort",
    )


def _checked(source: Source, constant: Constant) -> Constant:
    if constant.sort != "Real":
        raise source.error(
            constant.offset,
            expected="the sort Real",
            got=shorten(constant.sort),
            remedy="VNN-LIB 1.0 variables are real numbers",
        )
    return constant


def _no_command(source: Source, item: Item) -> VnnlibError:
    got = shorten(item.text) if isinstance(item, Atom) else "a formula"
    remedy = "remove it"
    if isinstance(item, Atom) and item.text == "declare-network":
        remedy = "start a VNN-LIB 2.0 file with (vnnlib-version <2.0>)"
    elif isinstance(item, (Apply, Form)):
        remedy = "wrap it in (assert ...)"
    return source.error(item.offset, expected="declare-const or assert", got=got, remedy=remedy)
