"""Known answers: small texts whose normal form is worked out by hand."""

from __future__ import annotations

import gzip
import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verifolio.vnnlib import load, loads
from verifolio.vnnlib.rows import LinearRow

HEAD = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)\n"
BOX = "(assert (<= X_0 1))(assert (>= X_0 0))(assert (and (<= X_1 1.0) (>= X_1 0.0)))\n"
TWO = """(vnnlib-version <2.0>)
(declare-network f (declare-input A real [2]) (declare-output B real [1, 2]))
(declare-network g (equal-to f) (declare-input C real [2]) (declare-output D real [1, 2]))
"""


def rows_of(text: str, head: str = HEAD + BOX) -> list[list[LinearRow]]:
    (case,) = loads(head + text).cases
    return [rows.linear_rows() for rows in case.disjuncts]


def row(rhs: Fraction | int, /, *, strict: bool = False, **terms: int | Fraction) -> LinearRow:
    columns = {"x0": 0, "x1": 1, "y0": 2, "y1": 3}
    ordered = sorted((columns[name], Fraction(value)) for name, value in terms.items())
    return LinearRow(tuple(ordered), Fraction(rhs), strict)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(assert (<= Y_0 Y_1))", row(0, y0=1, y1=-1)),
        ("(assert (>= Y_0 Y_1))", row(0, y0=-1, y1=1)),
        ("(assert (<= Y_1 Y_0))", row(0, y0=-1, y1=1)),
        ("(assert (< Y_0 Y_1))", row(0, y0=1, y1=-1, strict=True)),
        ("(assert (>= Y_0 (- 5)))", row(5, y0=-1)),
        ("(assert (<= 1e-3 Y_0))", row(Fraction(-1, 1000), y0=-1)),
        ("(assert (<= (+ Y_0 Y_1 Y_0) 3))", row(3, y0=2, y1=1)),
        ("(assert (<= (- Y_0 Y_1 X_0) 3))", row(3, x0=-1, y0=1, y1=-1)),
        ("(assert (<= (* 2 (- Y_0 1) 3) X_1))", row(6, x1=-1, y0=6)),
        ("(assert (<= (* 0.1 Y_0) 1))", row(5, y0=Fraction(1, 2))),
        ("(assert ; a comment\n (<= Y_0\n\n Y_1) ; another\n)", row(0, y0=1, y1=-1)),
    ],
)
def test_one_row(text: str, expected: LinearRow) -> None:
    assert rows_of(text) == [[expected]]


def test_equality_is_two_rows() -> None:
    assert rows_of("(assert (= Y_0 Y_1))") == [[row(0, y0=1, y1=-1), row(0, y0=-1, y1=1)]]


def test_chain_of_comparisons() -> None:
    assert rows_of("(assert (<= 0 Y_0 1))") == [[row(0, y0=-1), row(1, y0=1)]]


def test_nested_disjunctions_distribute() -> None:
    text = "(assert (and (or (<= Y_0 1) (<= Y_0 2)) (or (<= Y_1 3) (and (<= Y_1 4) (<= Y_1 5)))))"
    y0, y1 = [row(1, y0=1), row(2, y0=1)], [row(3, y1=1), row(4, y1=1), row(5, y1=1)]
    assert rows_of(text) == [
        [y0[0], y1[0]],
        [y0[0], y1[1], y1[2]],
        [y0[1], y1[0]],
        [y0[1], y1[1], y1[2]],
    ]


@pytest.mark.parametrize("side", ["0.1", "0.3", "-0.1", "0.7", "1.00000000000000000001", "-1e-400"])
def test_right_hand_sides_are_rounded_up(side: str) -> None:
    """A row with a larger right-hand side has more solutions, so what is proved of it holds for the text."""
    (case,) = loads(HEAD + BOX + f"(assert (<= Y_0 {side}))").cases
    rounded = float(case.disjuncts[0].rhs[0])
    assert Fraction(np.nextafter(rounded, -np.inf)) < Fraction(side) <= Fraction(rounded)


def test_bounds_are_exact_and_rounded_outward() -> None:
    (case,) = loads(HEAD + "(assert (and (>= X_0 0.1) (<= X_0 0.3) (>= X_1 -0.1) (<= X_1 0.5)))").cases
    assert case.exact_lower[0] == Fraction(1, 10)
    assert Fraction(case.lower[0]) < Fraction(1, 10) < Fraction(np.nextafter(case.lower[0], 1))
    assert Fraction(np.nextafter(case.upper[0], 0)) < Fraction(3, 10) < Fraction(case.upper[0])
    assert case.upper[1] == 0.5
    assert case.disjuncts[0].count == 0


def test_tightest_bound_wins_whatever_its_form() -> None:
    text = HEAD + BOX + "(assert (<= (* 3 X_0) 1))(assert (<= X_0 0.4))(assert (>= 0.9 X_1))"
    (case,) = loads(text).cases
    assert case.exact_upper[0] == Fraction(1, 3)
    assert case.exact_upper[1] == Fraction(9, 10)


def test_strict_bound_is_a_bound_and_a_row() -> None:
    (case,) = loads(HEAD + BOX + "(assert (< X_0 0.5))").cases
    assert case.exact_upper[0] == Fraction(1, 2)
    assert case.input_rows.linear_rows() == [row(Fraction(1, 2), x0=1, strict=True)]


def test_regions_with_equal_bounds_are_merged() -> None:
    part = "(and (<= X_0 0.5) {})"
    clauses = " ".join(part.format(c) for c in ("(<= Y_0 1)", "(>= X_0 0.2) (<= Y_0 2)", "(<= Y_0 3)"))
    first, second = loads(HEAD + BOX + f"(assert (or {clauses}))").cases
    assert [rows.linear_rows() for rows in first.disjuncts] == [[row(1, y0=1)], [row(3, y0=1)]]
    assert [rows.linear_rows() for rows in second.disjuncts] == [[row(2, y0=1)]]
    assert second.exact_lower[0] == Fraction(1, 5)


def test_input_regions_and_output_disjuncts_multiply_into_cases() -> None:
    regions = "(assert (or (<= X_0 0.25) (>= X_0 0.75)))"
    cases = loads(HEAD + BOX + regions + "(assert (or (<= Y_0 Y_1) (<= Y_1 0)))").cases
    assert [len(case.disjuncts) for case in cases] == [2, 2]
    assert all(a is b for a, b in zip(cases[0].disjuncts, cases[1].disjuncts, strict=True))


def test_empty_regions_stay_and_never_hold() -> None:
    specification = loads(HEAD + BOX + "(assert (<= X_0 -1))(assert (<= Y_0 9))")
    assert specification.cases[0].empty
    assert not specification.check([-1, 0], [0, 0]).holds


def test_plainly_false_text_has_no_case() -> None:
    assert loads(HEAD + BOX + "(assert (<= 1 0))").cases == ()


def test_declare_fun_and_smt_commands() -> None:
    text = "(set-logic QF_LRA)(declare-fun X_0 () Real)(declare-fun Y_0 () Real)"
    specification = loads(text + "(assert (<= 0 X_0 1))(assert (<= Y_0 0))(check-sat)")
    assert (specification.input_size, specification.output_size) == (1, 1)
    assert specification.version == "1.0"
    assert specification.networks[0].inputs[0].shape == (1,)


def test_two_networks_and_derived_bounds() -> None:
    box = "(assert (and (<= A[0] 1.0) (>= A[0] 0.0) (== A[1] 0.5) (>= C[0] -1.0)))"
    links = "(assert (== A[1] C[1]))(assert (<= C[0] A[0]))(assert (< B[0,1] D [0, 1]))"
    specification = loads(TWO + box + links)
    assert (specification.input_size, specification.output_size) == (4, 4)
    (case,) = specification.cases
    assert list(case.exact_lower) == [0, Fraction(1, 2), -1, Fraction(1, 2)]
    assert list(case.exact_upper) == [1, Fraction(1, 2), 1, Fraction(1, 2)]
    assert case.input_rows.count == 3
    assert case.disjuncts[0].column.tolist() == [5, 7]
    assert case.disjuncts[0].strict.tolist() == [True]
    first, second = specification.networks
    assert (second.equal_to, second.inputs[0].offset, second.outputs[0].offset) == ("f", 2, 2)
    assert (first.name, first.outputs[0].shape) == ("f", (1, 2))


def test_inequality_splits() -> None:
    text = TWO.splitlines()[0] + "(declare-network f (declare-input A real []) (declare-output B real []))"
    box = "(assert (>= A 0.0))(assert (<= A 1.0))"
    (case,) = loads(text + box + "(assert (!= B 0.5))").cases
    assert [rows.strict.tolist() for rows in case.disjuncts] == [[True], [True]]
    below, above = loads(text + box + "(assert (!= A 0.5))").cases
    assert (below.upper[0], above.lower[0]) == (0.5, 0.5)
    assert below.input_rows.strict.all() and above.input_rows.strict.all()


def test_contradictory_networks_are_accepted() -> None:
    text = TWO.replace("equal-to", "isomorphic-to")
    box = "".join(f"(assert (== {name}[{i}] 0.0))" for name in "AC" for i in range(2))
    specification = loads(text + box + "(assert (> B[0,0] D[0,0]))(assert (< B[0,0] D[0,0]))")
    assert specification.networks[1].isomorphic_to == "f"
    assert not specification.check(np.zeros(4), np.zeros(4)).holds


def test_sha256_is_that_of_the_text(tmp_path: Path) -> None:
    data = (HEAD + BOX + "(assert (<= Y_0 0))").encode()
    packed = tmp_path / "p.vnnlib.gz"
    packed.write_bytes(gzip.compress(data))
    assert load(packed).sha256 == loads(data.decode()).sha256 == hashlib.sha256(data).hexdigest()
