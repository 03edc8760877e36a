"""Writing: texts read back to the same numbers, in both versions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifolio.vnnlib import (
    Rows,
    Specification,
    VnnlibError,
    box_case,
    loads,
    make_rows,
    normalise,
    parse_text,
    specification_from_cases,
    write,
)

Same = Callable[[Specification, Specification], None]
V1 = """(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)
(assert (<= X_0 1.50))(assert (>= X_0 -.5e1))(assert (<= 0 X_1 1e-3))
(assert (or (and (< (* 0.1 X_0) Y_0) (= X_1 0.0005)) (>= (+ Y_0 X_0 (- 2)) 3)))
"""
V2 = """(vnnlib-version <2.0>)
(declare-network N (declare-input A float32 [1, 2]) (declare-output B float32 []))
(assert (and (<= A[0,0] 1.50) (>= A[0,0] -5.0) (== A[0,1] 0.25)))
(assert (or (!= B 1.0) (< (* 2.0 A[0,1]) B)))
"""


@pytest.mark.parametrize("text", [V1, V2])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_documents_and_specifications_convert(text: str, version, assert_same: Same) -> None:  # type: ignore[no-untyped-def]
    document = parse_text(text)
    specification = normalise(document)
    for written in (write(document, version), write(specification, version)):
        again = loads(written)
        assert again.version == version
        assert_same(specification, again)


def test_digits_stay_as_written() -> None:
    text = write(loads(V1))
    assert "(<= X_0 1.50)" in text
    assert "(<= X_1 0.001)" in text
    assert "-.5e1" in write(parse_text(V1))
    assert "-.5e1" not in write(parse_text(V1), "2.0")


def test_doubles_are_written_exactly(assert_same: Same) -> None:
    lower = np.array([0.1, -1 / 3, 5e-324, np.float32(0.1)], dtype=np.float64)
    case = box_case(lower, np.nextafter(lower, 9), [make_rows([({4: 0.1, 0: -1e-30}, 1 / 3)])])
    specification = specification_from_cases([case], output_size=1)
    again = loads(write(specification))
    assert_same(specification, again)
    assert again.sha256 == specification.sha256
    assert "(>= X_3 0.100000001490116119384765625)" in write(specification)


def test_fractions_without_decimal_form(assert_same: Same) -> None:
    case = box_case([Fraction(-1, 3)], [Fraction(2, 7)], [make_rows([({1: 1}, Fraction(1, 3))])])
    specification = specification_from_cases([case], output_size=1)
    again = loads(write(specification, "2.0"))
    assert list(again.cases[0].exact_upper) == [Fraction(2, 7)]
    assert again.check([0.2], [1 / 3]).holds == specification.check([0.2], [1 / 3]).holds


def test_very_long_numbers(assert_same: Same) -> None:
    digits = "0." + "123456789" * 600
    text = f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= -{digits} X_0 {digits}))"
    specification = loads(text + f"(assert (< X_0 {digits}))(assert (<= Y_0 {digits}))")
    assert_same(specification, loads(write(specification, "2.0")))


def test_specifications_cross_process_borders(assert_same: Same) -> None:
    specification = loads(V1)
    assert_same(specification, pickle.loads(pickle.dumps(specification)))  # noqa: S301


def test_two_networks_have_no_first_version() -> None:
    other = "(declare-network M (equal-to N) (declare-input C float32 [1, 2]) (declare-output D float32 []))"
    text = (
        V2.replace("\n(assert (and", other + "\n(assert (and")
        + "(assert (== C[0,0] 0.0))(assert (== C[0,1] 0.0))"
    )
    specification = loads(text)
    with pytest.raises(VnnlibError, match="one network with one real input"):
        write(specification, "1.0")
    with pytest.raises(VnnlibError, match="one network with one real input"):
        write(parse_text(text), "1.0")
    assert "(equal-to N)" in write(specification)


def test_true_and_false_conditions(assert_same: Same) -> None:
    true, row = make_rows([]), make_rows([({1: 1.0}, 0.0)])
    for disjuncts in ([true], [true, row]):
        specification = specification_from_cases([box_case([0.0], [1.0], disjuncts)], output_size=1)
        assert_same(specification, loads(write(specification)))
    nothing = specification_from_cases([box_case([0.0], [1.0], [])], output_size=1)
    assert loads(write(nothing)).cases == ()
    assert not nothing.check([0.5], [0.0]).holds


def test_builders_refuse_nonsense() -> None:
    with pytest.raises(VnnlibError, match="finite bounds"):
        box_case([0.0], [np.inf], [])
    with pytest.raises(VnnlibError, match="1 upper bounds"):
        box_case([0.0], [1.0, 2.0], [])
    with pytest.raises(VnnlibError, match=r"columns 0 \.\. 1"):
        specification_from_cases([box_case([0.0], [1.0], [make_rows([({2: 1.0}, 0.0)])])], output_size=1)
    with pytest.raises(VnnlibError, match="finite numbers"):
        make_rows([({0: np.nan}, 0.0)])
    with pytest.raises(VnnlibError, match=r"version 1\.0 or 2\.0"):
        write(loads(V1), "3.0")  # type: ignore[arg-type]


doubles = st.floats(-1e6, 1e6) | st.sampled_from([0.1, -0.0, 5e-324, 1e300, 2.0**-1060])
coefficients = st.dictionaries(st.integers(0, 3), doubles.filter(bool), min_size=1, max_size=4)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    mixed = coefficients.map(lambda terms: {**terms, 3: terms.get(3, 1.0)})
    return make_rows(
        draw(st.lists(st.tuples(mixed, doubles), min_size=1, max_size=3)), strict=draw(st.booleans())
    )


@st.composite
def specifications(draw: st.DrawFn) -> Specification:
    cases = []
    for index in range(draw(st.integers(1, 3))):
        lower = draw(st.lists(doubles, min_size=2, max_size=2))
        upper = [value + draw(st.sampled_from([0.0, 1.0, -1.0])) for value in lower]
        disjuncts = draw(st.lists(rows(), min_size=1, max_size=3))
        pair = make_rows([({0: 3.0, 1: -7.0}, draw(doubles))]) if draw(st.booleans()) else None
        cases.append(box_case([*lower, float(index)], [*upper, float(index)], disjuncts, pair))
    return specification_from_cases(cases, output_size=2, version=draw(st.sampled_from(["1.0", "2.0"])))


@settings(max_examples=150, deadline=None)
@given(specification=specifications(), version=st.sampled_from(["1.0", "2.0"]))
def test_round_trip(specification: Specification, version, assert_same: Same) -> None:  # type: ignore[no-untyped-def]
    assert_same(specification, loads(write(specification, version)))
