"""Numbers of many digits as several doubles, and linear maps of them without rounding.

A number is a sum of limbs: limb k is a multiple of 2^(-BITS (level + k)) and at most half of the grid before.
Products of two limbs are then whole multiples of a common grid, and so many of them fit into the 53 bits of a double
that a convolution or a matrix product of limbs is exact in any order of summation (the error-free splitting of Ozaki
et al. 2012, *Error-free transformations of matrix multiplication*). What is cut off at the end is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

# Limbs are at most 2^17 units, so MOST_PRODUCTS of them (terms of a sum times pairs of limbs) take 2 * 17 + 17 bits.
BITS = 18
# With the carries of `normal` sums stay below the 53 bits of a double; 25 088 terms, VGG16's most, leave 5 pairs.
MOST_PRODUCTS = 1 << 17
MOST_LIMBS = 8  # 144 bits, three times those of a weight in single precision
DEEPEST = 50  # levels: 2^-900 and 2^900 are far from where doubles end


class OutOfRange(ValueError):
    """Numbers for which doubles as limbs do not do."""


@dataclass(frozen=True)
class Limbs:
    """`parts` (limbs, ...) add up to the numbers."""

    parts: Tensor
    level: int

    @property
    def value(self) -> Tensor:
        """The nearest doubles, but for some roundings of the last bit."""
        total = torch.zeros_like(self.parts[0])
        for part in self.parts.flip(0):
            total = total + part
        return total

    def largest(self) -> list[float]:
        return [float(part.abs().max()) if part.numel() else 0.0 for part in self.parts]


def grid(level: int) -> float:
    return 2.0 ** (-BITS * level)


def level_of(top: float) -> int:
    """The level of the first limb of numbers of at most this size."""
    if not top < grid(-DEEPEST):
        raise OutOfRange("numbers are too large for doubles as limbs")
    level = 0
    while grid(level) * 2 ** (BITS - 1) < top:
        level -= 1
    while top and grid(level + 1) * 2 ** (BITS - 1) >= top:
        level += 1
    return level


def split(values: Tensor, most: int = MOST_LIMBS, level: int | None = None) -> tuple[Limbs, float]:
    """Doubles as limbs, and a bound on what `most` of them leave out of each."""
    if level is None:
        level = level_of(float(values.abs().max()) if values.numel() else 0.0)
    parts, left = [], values
    for k in range(most):
        unit = grid(level + k)
        part = torch.round(left / unit) * unit
        parts.append(part)
        left = left - part  # exact: a multiple of the double's last bit, and no larger than it was
        if not bool(left.any()):
            break
    return Limbs(torch.stack(parts), level), float(left.abs().max()) if left.numel() else 0.0


def of_fractions(values: Sequence[Fraction], most: int) -> tuple[Limbs, float]:
    """Exact numbers, cut after about twice the digits of a double."""
    high = [float(v) for v in values]
    low = torch.tensor(
        [float(v - Fraction(h)) for v, h in zip(values, high, strict=True)], dtype=torch.float64
    )
    first, lost = split(torch.tensor(high, dtype=torch.float64), most)
    rest, more = split(low, most)
    both, cut = added([(1.0, first), (1.0, rest)], most)
    # a double's own rounding of the rest: 2^-53 of it
    return both, lost + more + cut + 2.0**-52 * (float(low.abs().max()) if len(low) else 0.0)


def added(terms: Sequence[tuple[float, Limbs]], most: int) -> tuple[Limbs, float]:
    """A sum with small whole coefficients, and a bound on what is cut off."""
    first = min(t.level for _, t in terms)
    last = max(t.level + len(t.parts) for _, t in terms)
    sums = [torch.zeros_like(terms[0][1].parts[0]) for _ in range(last - first)]
    for coefficient, term in terms:
        for k, part in enumerate(term.parts):
            sums[term.level + k - first] = sums[term.level + k - first] + coefficient * part
    return normal(sums, first, most)


def normal(sums: list[Tensor], level: int, most: int) -> tuple[Limbs, float]:
    """Sums on the grids from `level` on as limbs: what exceeds a limb is carried to the one before."""
    made, k = list(sums), len(sums) - 1
    while k > 0 or bool((made[0].abs() > grid(level - 1) / 2).any()):
        if k == 0:
            made.insert(0, torch.zeros_like(made[0]))
            level, k = level - 1, 1
        unit = grid(level + k - 1)
        carry = torch.round(made[k] / unit) * unit
        made[k], made[k - 1] = made[k] - carry, made[k - 1] + carry
        k -= 1
    while len(made) > 1 and not bool(made[0].any()):
        made, level = made[1:], level + 1
    kept = made[:most]
    while len(kept) > 1 and not bool(kept[-1].any()):
        kept = kept[:-1]
    lost = sum(float(part.abs().max()) for part in made[most:] if part.numel())
    return Limbs(torch.stack(kept), level), lost


def products(
    weight: Limbs, x: Limbs, apply: Callable[[Tensor, Tensor], Tensor], terms: int, most: int
) -> tuple[list[Tensor], float]:
    """A linear map of at most `terms` products per sum: its sums on the grids from weight.level + x.level on.

    `apply(weights, stacked limbs)` computes one part. Products beyond the first `most` grids are left out; the second
    result bounds what they add up to.
    """
    if terms * min(len(weight.parts), len(x.parts)) > MOST_PRODUCTS:
        raise ValueError(f"sums of {terms} products may not fit into a double")
    if max(abs(weight.level), abs(x.level), abs(weight.level + x.level)) + 2 * MOST_LIMBS > DEEPEST:
        raise OutOfRange("numbers are too large or too small for doubles as limbs")
    sums: dict[int, Tensor] = {}
    sizes, lost = (weight.largest(), x.largest()), 0.0
    for i, part in enumerate(weight.parts):
        lost += sum(terms * sizes[0][i] * s for s in sizes[1][max(0, most - i) :])
        if i < most and (sizes[0][i] or not sums):
            for j, found in enumerate(apply(part, x.parts[: most - i])):
                sums[i + j] = sums[i + j] + found if i + j in sums else found
    zero = torch.zeros_like(sums[0])
    return [sums.get(k, zero) for k in range(max(sums) + 1)], 1.01 * lost


def mapped(
    weight: Limbs, x: Limbs, apply: Callable[[Tensor, Tensor], Tensor], terms: int, most: int
) -> tuple[Limbs, float]:
    """The map as limbs, and a bound on what is left out and cut off."""
    sums, lost = products(weight, x, apply, terms, most)
    limbs, cut = normal(sums, weight.level + x.level, most)
    return limbs, lost + cut
