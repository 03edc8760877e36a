"""Numbers of many digits: they add up to what they stand for, and maps of them are exact but for what is said."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from verifolio.plugins.crown.propagate.limbs import (
    BITS,
    Limbs,
    added,
    grid,
    mapped,
    normal,
    of_fractions,
    split,
)


def exact(limbs: Limbs) -> list[Fraction]:
    return [sum((Fraction(float(v)) for v in column), Fraction(0)) for column in limbs.parts.flatten(1).T]


def wild(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Doubles of very different sizes."""
    return torch.as_tensor(rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 10, shape))


def check_grids(limbs: Limbs) -> None:
    for k, part in enumerate(limbs.parts):
        units = part / grid(limbs.level + k)
        assert torch.equal(units, units.round())
        assert (units.abs() <= 2 ** (BITS - 1)).all()


@pytest.mark.parametrize("most", [1, 2, 8])
def test_doubles_are_the_sum_of_their_limbs(most: int) -> None:
    values = wild(np.random.default_rng(most), 200)
    limbs, lost = split(values, most)
    check_grids(limbs)
    gaps = [abs(a - Fraction(float(v))) for a, v in zip(exact(limbs), values, strict=True)]
    assert max(gaps) <= lost
    assert most < 8 or lost == 0


def test_fractions_keep_twice_the_digits_of_a_double() -> None:
    values = [Fraction(k, 7) * Fraction(10) ** (k % 5 - 2) for k in range(-20, 20)]
    limbs, lost = of_fractions(values, 7)
    check_grids(limbs)
    gap = max(abs(a - v) for a, v in zip(exact(limbs), values, strict=True))
    assert 0 < gap <= lost < 1e-27


def test_sums_carry() -> None:
    """Values whose limbs are at their ends, added up: exactly, and limbs stay within theirs."""
    edge = torch.tensor([2.0**17 - 0.5, -(2.0**17), 2.0**17, 3.5], dtype=torch.float64)
    less = torch.tensor([1e-9, 1.0, 2.0, 3.0], dtype=torch.float64)
    one, _ = split(edge)
    total, lost = added([(2.0, one), (1.0, one), (-1.0, split(less)[0])], 8)
    check_grids(total)
    wanted = [3 * Fraction(float(a)) - Fraction(b) for a, b in zip(edge, (1e-9, 1.0, 2.0, 3.0), strict=True)]
    assert lost == 0 and exact(total) == wanted
    cut, lost = added([(1.0, total)], 2)
    assert max(abs(a - b) for a, b in zip(exact(cut), wanted, strict=True)) <= lost


@pytest.mark.parametrize("most", [2, 4, 14])
def test_products_are_exact_but_for_what_is_said(most: int) -> None:
    rng = np.random.default_rng(3)
    weight, x = wild(rng, 20, 300), wild(rng, 300)
    first, second = split(weight)[0], split(x)[0]
    found, lost = mapped(first, second, lambda w, v: v @ w.T, 300, most)
    check_grids(found)
    wanted = [
        sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, x, strict=True)), Fraction(0))
        for row in weight
    ]
    gap = max(abs(a - b) for a, b in zip(exact(found), wanted, strict=True))
    assert gap <= lost
    assert (gap == 0) if most == 14 else (gap > 0)


def test_full_limbs_do_not_overflow() -> None:
    """The largest limbs, all of one sign: the sum of the most products that are allowed is still exact."""
    full = Limbs(torch.full((2, 1, 1 << 16), 2.0**17, dtype=torch.float64), 0)
    full.parts[1] *= grid(1)
    found, lost = mapped(full, Limbs(full.parts[:, 0], 0), lambda w, v: v @ w.T, 1 << 16, 4)
    one = Fraction(2**17) + Fraction(2**17) * Fraction(grid(1))
    assert lost == 0 and exact(found) == [one * one * (1 << 16)]
    with pytest.raises(ValueError, match="may not fit"):
        mapped(full, Limbs(full.parts[:, 0], 0), lambda w, v: v @ w.T, (1 << 16) + 1, 4)
    with pytest.raises(ValueError, match="too large or too small"):
        mapped(Limbs(full.parts, 40), Limbs(full.parts[:, 0], 0), lambda w, v: v @ w.T, 1 << 16, 4)


def test_leading_noughts_are_dropped() -> None:
    limbs, _ = normal([torch.zeros(2).double(), torch.tensor([grid(1), -grid(1)]).double()], 0, 7)
    assert limbs.level == 1 and len(limbs.parts) == 1
