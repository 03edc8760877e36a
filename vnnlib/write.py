"""Specifications and documents to text; no number ever changes its value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from verifolio.vnnlib.case import Case
from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.exact import decimal_text
from verifolio.vnnlib.rewrite import declarations, flat_signature, rewrite
from verifolio.vnnlib.rows import LinearRow, Rows
from verifolio.vnnlib.specification import Specification
from verifolio.vnnlib.symbols import NetworkDeclaration, column_name, flat_network
from verifolio.vnnlib.tree import Document, Version

_TRUE, _FALSE = "(<= 0.0 1.0)", "(<= 1.0 0.0)"


def write(source: Specification | Document, version: Version | None = None) -> str:
    """The text of a specification or document, in its own version or converted to another.

    Decimals keep the digits they were written with; a number that came as a float is written as the
    decimal that equals it. Comments are lost. Version 1.0 holds one network with one input and one output.
    """
    target = version or source.version
    if target not in ("1.0", "2.0"):
        raise VnnlibError("<write>", 0, 0, "version 1.0 or 2.0", repr(target), "choose one of them")
    if isinstance(source, Document):
        return rewrite(source, target)
    return "\n".join(_SpecificationWriter(source, target).lines()) + "\n"


def specification_from_cases(
    cases: Sequence[Case],
    *,
    output_size: int,
    input_size: int | None = None,
    networks: tuple[NetworkDeclaration, ...] | None = None,
    version: Version = "1.0",
    monomials: tuple[tuple[int, ...], ...] = (),
) -> Specification:
    """A specification made in Python; its hash is that of its text, so equal questions have equal hashes."""
    size = len(cases[0].lower) if input_size is None and cases else input_size or 0
    for case in cases:
        _check_case(case, size, output_size + len(monomials))
    signature = networks or (flat_network(size, output_size),)
    draft = Specification(version, size, output_size, tuple(cases), signature, "", monomials)
    return replace(draft, sha256=hashlib.sha256(write(draft).encode()).hexdigest())


def _check_case(case: Case, input_size: int, output_size: int) -> None:
    if len(case.lower) != input_size:
        got = f"{len(case.lower)} in one case"
        raise VnnlibError("<case>", 0, 0, f"{input_size} inputs", got, "all cases share the inputs")
    for rows in (case.input_rows, *case.disjuncts):
        limit = input_size if rows is case.input_rows else input_size + output_size
        if rows.column.size and not 0 <= int(rows.column.min()) <= int(rows.column.max()) < limit:
            got = f"column {int(rows.column.max())}"
            remedy = "columns are the inputs, then the outputs; input rows mention inputs only"
            raise VnnlibError("<case>", 0, 0, f"columns 0 .. {limit - 1}", got, remedy)


class _SpecificationWriter:
    def __init__(self, specification: Specification, version: Version) -> None:
        self._specification = specification
        self._version = version
        networks = specification.networks
        if version == "1.0":
            flat_signature(networks, "<specification>")
        elif len(networks) == 1 and not networks[0].name:
            networks = (replace(networks[0], name="N"),)
        self._networks = networks
        size = specification.input_size
        outputs, monomials = specification.output_size, specification.monomials
        columns = range(size + outputs + len(monomials))
        self._names = [column_name(networks, size, outputs, monomials, k, version) for k in columns]

    def lines(self) -> Iterator[str]:
        """Declarations, then assertions in the shape that other tools expect."""
        specification = self._specification
        yield from declarations(
            self._networks, specification.input_size, specification.output_size, self._version
        )
        cases = [case for case in specification.cases if case.disjuncts]
        conditions = {_key(case) for case in cases}
        if not cases:
            yield f"(assert {_FALSE})"
        elif len(cases) == 1:
            yield from (f"(assert {atom})" for atom in self._region(cases[0]))
            yield from self._condition(cases[0].disjuncts)
        elif len(conditions) == 1:
            yield from _disjunction([self._region(case) for case in cases])
            yield from self._condition(cases[0].disjuncts)
        else:
            regions = [(case, self._region(case)) for case in cases]
            clauses = [
                [*region, *self._conjunction(rows)] for case, region in regions for rows in case.disjuncts
            ]
            yield from _disjunction(clauses)

    def _region(self, case: Case) -> list[str]:
        atoms = []
        for column in range(self._specification.input_size):
            atoms.append(self._bound("<=", column, case.exact_upper))
            atoms.append(self._bound(">=", column, case.exact_lower))
        return atoms + self._conjunction(case.input_rows)

    def _bound(self, operator: str, column: int, values: Sequence[Fraction]) -> str:
        written = getattr(values, "written", None)
        text = written(column) if written is not None else decimal_text(values[column])
        name = self._names[column]
        if text is not None:
            return f"({operator} {name} {text})"
        value = values[column]  # such as 1/3: no decimal equals it, so the denominator moves to the left
        return f"({operator} (* {value.denominator}.0 {name}) {value.numerator}.0)"

    def _condition(self, disjuncts: tuple[Rows, ...]) -> Iterator[str]:
        if len(disjuncts) == 1:
            yield from (f"(assert {atom})" for atom in self._conjunction(disjuncts[0]))
        else:
            yield from _disjunction([self._conjunction(rows) or [_TRUE] for rows in disjuncts])

    def _conjunction(self, rows: Rows) -> list[str]:
        return [self._row(row) for row in rows.linear_rows()]

    def _row(self, row: LinearRow) -> str:
        operator = "<" if row.strict else "<="
        match row.terms:
            case ((column, coefficient),) if abs(coefficient) == 1 and decimal_text(row.rhs):
                flipped = operator if coefficient > 0 else operator.replace("<", ">")
                return f"({flipped} {self._names[column]} {decimal_text(coefficient * row.rhs)})"
            case ((first, one), (second, other)) if one == -other and abs(one) == 1 and row.rhs == 0:
                left, right = (first, second) if one > 0 else (second, first)
                return f"({operator} {self._names[left]} {self._names[right]})"
        scale = 1 if decimal_text(row.rhs) else row.rhs.denominator
        terms = [self._term(column, coefficient * scale) for column, coefficient in row.terms]
        left_side = f"(+ {' '.join(terms)})" if len(terms) > 1 else terms[0] if terms else "0.0"
        return f"({operator} {left_side} {decimal_text(row.rhs * scale)})"

    def _term(self, column: int, coefficient: Fraction) -> str:
        name = self._names[column]
        return name if coefficient == 1 else f"(* {decimal_text(coefficient)} {name})"


def _disjunction(clauses: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "(assert (or"
    yield from (f"    (and {' '.join(atoms)})" for atoms in clauses)
    yield "))"


def _key(case: Case) -> tuple[tuple[LinearRow, ...], ...]:
    return tuple(tuple(rows.linear_rows()) for rows in case.disjuncts)
