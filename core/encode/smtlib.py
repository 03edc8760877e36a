"""SMT-LIB 2 text of a piecewise-linear query, in exact numbers (logic QF_LRA): sat means a counterexample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verifolio.encode.exact_forms import ExactNetwork, LinearForm, exact_network, row_form
from verifolio.errors import InputError
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.vnnlib import Case, Rows


def to_smtlib(query: Query) -> str:
    """The query as SMT-LIB 2; raises `NotExact` for networks without an exact rational form."""
    network = exact_network(query.graph, fix=False)
    lines = [f"; {query.name or 'query'}", "(set-logic QF_LRA)"]
    lines += [f"(declare-const X_{k} Real)" for k in range(network.inputs)]
    for k, neuron in enumerate(network.neurons):
        lines.append(f"(define-fun A_{k} () Real {term(neuron.form, network)})")
        lines.append(f"(define-fun R_{k} () Real (ite (>= A_{k} 0.0) A_{k} 0.0))")
    lines += [f"(define-fun Y_{k} () Real {term(f, network)})" for k, f in enumerate(network.outputs)]
    if query.ball is not None:
        lines += _ball(query.ball)
    cases = [_case(case, network) for case in query.specification.cases]
    lines += [f"(assert {_any(cases)})", "(check-sat)", "(get-model)"]
    return "\n".join(lines) + "\n"


def number(value: Fraction) -> str:
    """An SMT-LIB real: (/ 1.0 3.0), (- 2.0)."""
    size = abs(value)
    text = f"{size.numerator}.0" if size.denominator == 1 else f"(/ {size.numerator}.0 {size.denominator}.0)"
    return f"(- {text})" if value < 0 else text


def term(form: LinearForm, network: ExactNetwork) -> str:
    """A linear form over X_k and R_k."""
    parts = [number(form.constant)] if form.constant or not form.terms else []
    for variable, c in form.terms:
        name = f"X_{variable}" if variable < network.inputs else f"R_{variable - network.inputs}"
        parts.append(name if c == 1 else f"(* {number(c)} {name})")
    return parts[0] if len(parts) == 1 else f"(+ {' '.join(parts)})"


def _rows(rows: Rows, network: ExactNetwork) -> list[str]:
    found = []
    for row in rows.linear_rows():
        left = term(row_form(row.terms, network), network)
        found.append(f"({'<' if row.strict else '<='} {left} {number(row.rhs)})")
    return found


def _case(case: Case, network: ExactNetwork) -> str:
    box = []
    for k, (low, high) in enumerate(zip(case.exact_lower, case.exact_upper, strict=True)):
        box += [f"(<= {number(low)} X_{k})", f"(<= X_{k} {number(high)})"]
    condition = _any([_all(_rows(rows, network)) for rows in case.disjuncts])
    return _all([*box, *_rows(case.input_rows, network), condition])


def _ball(ball: Ball) -> list[str]:
    radius = number(Fraction(ball.radius))
    centre = [Fraction(float(c)) for c in ball.centre]
    gaps = [f"(- X_{k} {number(c)})" for k, c in enumerate(centre)]
    sizes = [f"(ite (>= {g} 0.0) {g} (- {g}))" for g in gaps]
    if ball.norm == 1:
        return [f"(assert (<= (+ 0.0 {' '.join(sizes)}) {radius}))"]
    if ball.norm == 2:
        raise InputError("SMT-LIB", "a ball in norm 1 or infinity", "an L2 ball", "QF_LRA is linear")
    return [f"(assert (<= {s} {radius}))" for s in sizes]


def _all(parts: Sequence[str]) -> str:
    return f"(and true {' '.join(parts)})" if parts else "true"


def _any(parts: Sequence[str]) -> str:
    return f"(or false {' '.join(parts)})" if parts else "false"
