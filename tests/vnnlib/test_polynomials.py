"""Polynomial assertions: products of variables, exact to the last digit, read, written and judged."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from verifolio.vnnlib import Specification, VnnlibError, loads, parse_text, write

Same = Callable[[Specification, Specification], None]
TWO = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [2]) (declare-output Y real [2]))
(assert (and (>= X[0] -4.0) (<= X[0] 4.0) (>= X[1] -4.0) (<= X[1] 4.0)))
"""
ONE = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1")) + (
    "(assert (<= -4 X_0 4))(assert (<= -4 X_1 4))"
)


def rows_of(specification: Specification) -> list[tuple[dict[str, Fraction], Fraction, bool]]:
    (case,) = specification.cases
    return [
        ({specification.name(k): c for k, c in row.terms}, row.rhs, row.strict)
        for rows in case.disjuncts
        for row in rows.linear_rows()
    ]


def test_products_multiply_out_exactly() -> None:
    text = TWO + "(assert (<= (* (+ X[1] (* Y[0] 0.1)) (+ X[1] (* Y[0] 0.1))) (* 200.0 X[0])))"
    ((terms, rhs, strict),) = rows_of(loads(text))
    # times 100, which makes 0.01 and 0.2 doubles
    scale = terms["(* X[1] X[1])"]
    assert {name: value / scale for name, value in terms.items()} == {
        "X[0]": -200,
        "(* X[1] X[1])": 1,
        "(* X[1] Y[0])": Fraction(1, 5),
        "(* Y[0] Y[0])": Fraction(1, 100),
    }
    assert rhs == 0 and not strict


def test_factors_have_one_order_and_what_cancels_is_gone() -> None:
    twice = loads(TWO + "(assert (<= (+ (* Y[0] X[1]) (* X[1] Y[0])) 1.0))")
    assert rows_of(twice) == [({"(* X[1] Y[0])": Fraction(2)}, Fraction(1), False)]
    gone = loads(TWO + "(assert (<= (- (* Y[0] X[1]) (* X[1] Y[0]) Y[1]) 1.0))")
    assert gone.monomials == () and rows_of(gone) == [({"Y[1]": Fraction(-1)}, Fraction(1), False)]


def test_the_first_dialect_has_them_too(assert_same: Same) -> None:
    first = loads(ONE + "(assert (< (* X_0 X_0 Y_1) (* 0.5 X_1)))")
    assert first.monomials == ((0, 0, 3),)
    assert_same(loads(write(first)), first)
    assert_same(loads(write(first, version="2.0")), first)


@pytest.mark.parametrize("seed", range(20))
def test_a_point_is_judged_in_rationals(seed: int, assert_same: Same) -> None:
    """Against the plain evaluation of the expression, at points where doubles would round to a tie."""
    rng = random.Random(seed)
    expression, value = _expression(rng, 3)
    point = {v: Fraction(rng.randint(-(2**23), 2**23), 2**22) for v in ("X[0]", "X[1]", "Y[0]", "Y[1]")}
    exact = value(point)
    for shift in (-1, 0, 1):
        bound = exact + Fraction(shift, 2**150)
        digits = f"{bound.numerator * 5**150 * (2**150 // bound.denominator):+}"
        sign, digits = digits[0], digits[1:].rjust(160, "0")
        text = f"{'-' if sign == '-' else ''}{digits[:-150]}.{digits[-150:]}"
        specification = loads(TWO + f"(assert (<= {expression} {text}))")
        x, y = [float(point[f"X[{i}]"]) for i in range(2)], [float(point[f"Y[{i}]"]) for i in range(2)]
        assert specification.check(x, y).holds == (shift >= 0)
        assert_same(loads(write(specification)), specification)


def _expression(rng: random.Random, depth: int) -> tuple[str, Callable[[dict[str, Fraction]], Fraction]]:
    if depth == 0:
        if rng.random() < 0.3:
            number = rng.randint(-8, 8)
            return f"{number / 4}", lambda point: Fraction(number, 4)
        name = rng.choice(["X[0]", "X[1]", "Y[0]", "Y[1]"])
        return name, lambda point: point[name]
    (left, one), (right, other) = _expression(rng, depth - 1), _expression(rng, depth - 1)
    if rng.random() < 0.5:
        return f"(* {left} {right})", lambda point: one(point) * other(point)
    if rng.random() < 0.5:
        return f"(- {left} {right})", lambda point: one(point) - other(point)
    return f"(+ {left} {right})", lambda point: one(point) + other(point)


def test_products_beyond_doubles_are_judged() -> None:
    specification = loads(TWO + f"(assert (>= (* {' '.join(['Y[0]'] * 16)}) (* {' '.join(['Y[1]'] * 16)})))")
    assert specification.check([0, 0], [2.0**120, 2.0**119]).holds
    assert not specification.check([0, 0], [2.0**119, 2.0**120]).holds
    assert not specification.check([0, 0], [np.inf, 1.0]).holds


def test_cases_that_exclude_each_other_are_left_out() -> None:
    either = "(or (< Y[0] 0.0) (> Y[0] 0.0)) (or (<= Y[0] -0.0) (>= (* Y[0] Y[1]) 1.0))"
    (case,) = loads(TWO + f"(assert (and {either}))").cases
    assert len(case.disjuncts) == 3  # of 4: y < 0 and y > 0 are no pair, y > 0 and y <= 0 neither


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"(<= (* {' '.join(['Y[0]'] * 17)}) 1.0)", "degree at most 16"),
        (f"(<= (* {'(+ X[0] X[1] Y[0] Y[1] 1.0) ' * 60}) 1.0)", "degree at most 16"),
    ],
)
def test_hostile_products_are_refused(text: str, words: str) -> None:
    with pytest.raises(VnnlibError, match=words):
        loads(TWO + f"(assert {text})")


def test_infix_comparisons_are_read_with_a_warning(assert_same: Same) -> None:
    document = parse_text(TWO + "(assert (Y[0] < Y[1]))\n(assert ((+ Y[0] 1.0) >= X [0]))", "p.vnnlib")
    assert [w.split(": ")[0] for w in document.warnings] == ["p.vnnlib:4:9", "p.vnnlib:5:9"]
    plain = loads(TWO + "(assert (< Y[0] Y[1]))\n(assert (>= (+ Y[0] 1.0) X[0]))")
    assert_same(loads(write(document)), plain)
    assert plain.warnings == () and loads(TWO + "(assert (Y[0] < Y[1]))").warnings


def test_hidden_tensors_are_columns_after_the_outputs(assert_same: Same) -> None:
    text = """(vnnlib-version <2.0>)
(declare-network f
  (declare-input A float32 [1]) (declare-hidden H float32 [3] "relu_1") (declare-output B float32 [1]))
(assert (and (<= A[0] 1.0) (>= A[0] 0.0)))
(assert (<= (+ H[2] (* A[0] H[0])) 1.0))"""
    specification = loads(text)
    assert (specification.input_size, specification.output_size) == (1, 4)
    assert rows_of(specification) == [
        ({"H[2]": Fraction(1), "(* A[0] H[0])": Fraction(1)}, Fraction(1), False)
    ]
    assert (
        specification.check([0.5], [0, 1, 0, 0.5]).holds
        and not specification.check([0.5], [0, 2, 0, 0.5]).holds
    )
    again = loads(write(specification))
    assert_same(again, specification)
    assert again.networks[0].hidden == specification.networks[0].hidden
