"""The referee: exact on the text's decimals, also where doubles cannot tell."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifolio.vnnlib import VnnlibError, box_case, inward_float32, loads, make_rows, specification_from_cases
from verifolio.vnnlib.check import check_cases

HEAD = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"


def unit(text: str, low: str = "0", high: str = "1") -> str:
    return HEAD + f"(assert (>= X_0 {low}))(assert (<= X_0 {high}))" + text


def test_ties_count_and_strict_rows_stay_strict() -> None:
    assert loads(unit("(assert (<= Y_0 Y_1))")).check([0], [1, 1]).holds
    check = loads(unit("(assert (< Y_0 Y_1))")).check([0], [1, 1])
    assert not check.holds
    assert check.margins == (0.0,)


def test_decimals_decide_not_their_doubles() -> None:
    specification = loads(unit("(assert (>= Y_0 0.1))"))
    assert specification.check([0], [0.1, 0]).holds  # the double 0.1 is above one tenth
    assert not loads(unit("(assert (<= Y_0 0.1))")).check([0], [0.1, 0]).holds
    margin = loads(unit("(assert (<= Y_0 0.1))")).check([0], [0.1, 0]).margins[0]
    assert margin == float(Fraction(1, 10) - Fraction(0.1)) < 0


def test_input_bounds_are_exact() -> None:
    specification = loads(unit("(assert (<= Y_0 0))", "0.1", "0.3"))
    assert specification.check([0.1], [0, 0]).holds
    outside = specification.check([float(np.nextafter(0.1, 0))], [0, 0])
    assert not outside.holds
    assert 0 < outside.input_violation < 1e-16
    assert not outside.input_ulp


@pytest.mark.parametrize("count", [3, 40])
def test_corners_of_a_box_lie_in_it_and_nothing_beyond_does(count: int) -> None:
    """Also where many inputs are at their ends, or beyond them."""
    low = np.arange(count) / 8.0
    specification = specification_from_cases(
        [box_case(low, low + 1, (make_rows([({count: 1.0}, 0.0)]),))], output_size=1
    )
    for corner in (low, low + 1):
        assert specification.check(corner, [0.0]).holds
    for beyond in (np.nextafter(low, -np.inf), np.nextafter(low + 1, np.inf), low - 2):
        found = specification.check(beyond, [0.0])
        assert not found.holds and found.input_violation > 0
    one = low.copy()
    one[-1] = np.nextafter(low[-1] + 1, np.inf)
    assert not specification.check(one, [0.0]).holds


def test_interval_without_float32() -> None:
    specification = loads(unit("(assert (<= Y_0 0))", "0.1", "0.1"))
    lower, upper, mask = inward_float32(specification.cases[0])
    assert mask.tolist() == [True]
    assert lower[0] == upper[0] == np.float32(0.1)
    check = specification.check(lower, [0, 0])
    assert (check.holds, check.input_ulp) == (False, True)
    assert specification.check(lower, [0, 0], ulp=True).holds
    assert not specification.check(np.nextafter(lower, 1), [0, 0], ulp=True).holds


def test_best_case_and_disjunct_are_reported() -> None:
    right = "(and (>= X_0 0.75) (<= Y_0 -1)) (and (>= X_0 0.75) (<= Y_0 -9))"
    text = f"(assert (or (and (<= X_0 0.25) (<= Y_0 0)) {right}))"
    check = loads(unit(text)).check([0.7], [1, 0])
    assert (check.holds, check.case, check.disjunct, check.margins) == (False, 1, 0, (-2.0,))
    assert check.input_violation == pytest.approx(0.05)


def test_values_that_are_no_numbers_never_hold() -> None:
    specification = loads(unit("(assert (<= Y_0 1))"))
    assert not specification.check([np.nan], [0, 0]).holds
    assert not specification.check([0], [np.nan, 0]).holds
    assert not specification.check([0], [-np.inf, 0]).holds
    with pytest.raises(VnnlibError, match="expected 1 input values, got 2"):
        specification.check([0, 0], [0, 0])


numbers = st.floats(-4, 4, width=32) | st.integers(-3, 3).map(float)


@settings(max_examples=150, deadline=None)
@given(
    lower=st.lists(numbers, min_size=3, max_size=3),
    width=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=3, max_size=3),
    rows=st.lists(st.tuples(st.lists(numbers, min_size=5, max_size=5), numbers, st.booleans()), max_size=4),
    x=st.lists(numbers, min_size=3, max_size=3),
    y=st.lists(numbers, min_size=2, max_size=2),
)
def test_check_equals_fractions(
    lower: list[float],
    width: list[float],
    rows: list[tuple[list[float], float, bool]],
    x: list[float],
    y: list[float],
) -> None:
    upper = [a + b for a, b in zip(lower, width, strict=True)]
    disjuncts = [make_rows([(dict(enumerate(c)), rhs)], strict=strict) for c, rhs, strict in rows]
    specification = specification_from_cases([box_case(lower, upper, disjuncts)], output_size=2)
    inside = all(a <= v <= b for a, v, b in zip(lower, x, upper, strict=True))

    def holds(coefficients: list[float], rhs: float, strict: bool) -> bool:
        total = sum(
            (Fraction(c) * Fraction(v) for c, v in zip(coefficients, [*x, *y], strict=True)), Fraction(0)
        )
        return total < Fraction(rhs) if strict else total <= Fraction(rhs)

    check = specification.check(x, y)
    assert check.holds == (inside and any(holds(*row) for row in rows))
    assert (check.input_violation == 0) == inside


@settings(max_examples=200, deadline=None)
@given(st.decimals(-10, 10, places=9), st.decimals(0, 1, places=9))
def test_inward_float32_is_the_largest_inner_box(low, width) -> None:  # type: ignore[no-untyped-def]
    case = box_case([low], [low + width], [])
    lower, upper, mask = inward_float32(case)
    below, above = np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)
    exact_low, exact_high = Fraction(low), Fraction(low + width)
    if mask[0]:
        assert lower[0] == upper[0]
        distance = max(exact_low - Fraction(float(lower[0])), Fraction(float(lower[0])) - exact_high)
        for other in (below, above):
            assert distance <= max(
                exact_low - Fraction(float(other[0])), Fraction(float(other[0])) - exact_high
            )
    else:
        assert Fraction(float(below[0])) < exact_low <= Fraction(float(lower[0]))
        assert Fraction(float(upper[0])) <= exact_high < Fraction(float(above[0]))


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_a_large_point_is_checked_quickly() -> None:
    import time

    lower = np.linspace(0, 0.5, 3072)
    disjuncts = [make_rows([({3072 + i: 1.0, 3081: -1.0}, 0.0)]) for i in range(9)]
    specification = specification_from_cases([box_case(lower, lower + 0.1, disjuncts)], output_size=10)
    assert not specification.check(lower, np.arange(10, 0, -1)).holds
    start = time.perf_counter()
    for _ in range(20):
        specification.check(lower, np.arange(10, 0, -1))
    assert (time.perf_counter() - start) / 20 < 0.02


def test_without_cases_nothing_holds() -> None:
    check = check_cases((), np.zeros(1), np.zeros(1), (), ulp=True)
    assert not check.holds
    assert check.case is None and not check.input_ulp


def test_the_largest_of_many_violations_is_named() -> None:
    """More than sixteen inputs outside: in doubles, on either side."""
    case = box_case([0.0] * 20, [1.0] * 20, [make_rows([({20: 1.0}, 0.0)])])
    specification = specification_from_cases([case], output_size=1)
    for far, violation in ((5.0, 4.0), (-3.0, 3.0)):
        assert specification.check([far, *[2.0] * 19], [0.0]).input_violation == violation
