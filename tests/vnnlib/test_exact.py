"""Exact numbers: their roundings, and comparisons that no rounding decides."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from verifolio.vnnlib.exact import ExactNumbers, round_up

TENTH = Fraction(1, 10)
ULP = Fraction(math.ulp(0.1))
# a double, a decimal and fractions that all round to it, in order; the first two are equal
CLOSE = (
    Fraction(0.1) - ULP / 3,
    Decimal("0.1"),
    TENTH,
    Decimal("0.1000000000000000001"),
    0.1,
    Decimal.from_float(0.1),
    Fraction(0.1) + ULP / 3,
)


@pytest.mark.parametrize(
    "value", [*CLOSE, *(-v for v in CLOSE), Fraction(1, 3), Decimal("1e300"), Fraction(0)]
)
def test_roundings_enclose_a_number_and_are_next_to_it(value: Fraction | Decimal | float) -> None:
    exact, numbers = Fraction(value), ExactNumbers([value])
    below, above = float(numbers.below[0]), float(numbers.above[0])
    assert Fraction(below) <= exact <= Fraction(above)
    assert above == (below if Fraction(below) == exact else math.nextafter(below, math.inf))
    assert round_up(exact) == above
    assert numbers[0] == exact and numbers[:1] == (exact,) and len(numbers) == 1
    assert not numbers.below.flags.writeable and not numbers.above.flags.writeable


@pytest.mark.parametrize(("a", "b"), list(itertools.product(CLOSE, repeat=2)))
def test_numbers_of_one_rounding_are_compared_exactly(
    a: Fraction | Decimal | float, b: Fraction | Decimal | float
) -> None:
    rest: list[Decimal | Fraction | float] = [Decimal("-0.5"), Fraction(1, 3)]
    assert ExactNumbers([*rest, a]).at_most(ExactNumbers([*rest, b])) is (Fraction(a) <= Fraction(b))
    assert ExactNumbers([a, *rest]).at_most(ExactNumbers([b, *rest])) is (Fraction(a) <= Fraction(b))


def test_one_number_that_is_larger_is_enough() -> None:
    values = np.linspace(-1, 1, 40)
    numbers = ExactNumbers(values.copy())
    assert numbers.at_most(numbers) and numbers.at_most(ExactNumbers(values.copy()))
    for k in (0, 17, 39):
        for step in (1e-3, math.ulp(values[k])):
            larger = values.copy()
            larger[k] += step
            assert numbers.at_most(ExactNumbers(larger)) and not ExactNumbers(larger).at_most(numbers)


def test_pieces_and_other_orders_hold_the_same_numbers() -> None:
    values = [Fraction(k, 7) for k in range(-6, 6)]
    numbers = ExactNumbers(values)
    assert [tuple(part) for part in numbers.split(4)] == [tuple(values[k : k + 4]) for k in (0, 4, 8)]
    for part, start in zip(numbers.split(4), (0, 4, 8), strict=True):
        assert part.below.tolist() == numbers.below[start : start + 4].tolist()
        assert part.above.tolist() == numbers.above[start : start + 4].tolist()
    order = np.array([3, 0, 11, 5])
    picked = numbers.pick(order)
    assert list(picked) == [values[k] for k in order]
    assert picked.below.tolist() == numbers.below[order].tolist()
    assert picked.above.tolist() == numbers.above[order].tolist()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(3, 25), "0.12"),
        (Fraction(1, 8), "0.125"),
        (Fraction(-7, 40), "-0.175"),
        (Fraction(12), "12.0"),
        (Fraction(1, 3), None),
        (Decimal("0.1000"), "0.1000"),
        (0.1, "0.1000000000000000055511151231257827021181583404541015625"),
    ],
)
def test_numbers_are_written_exactly(value: Fraction | Decimal | float, text: str | None) -> None:
    assert ExactNumbers([value]).written(0) == text
    assert text is None or Fraction(text) == Fraction(value)
