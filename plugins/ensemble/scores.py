"""Mutual errors, uniqueness scores and the replacement of members, as intervals where questions are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A number known to lie between two others."""

    lower: Fraction
    upper: Fraction

    def __str__(self) -> str:
        if self.lower == self.upper:
            return f"{100 * float(self.lower):.2f} %"
        return f"{100 * float(self.lower):.2f} .. {100 * float(self.upper):.2f} %"


@dataclass(frozen=True, eq=False)
class MutualErrors:
    """Per pair of networks (symmetric, nothing on the diagonal): balls with a mutual error, and open ones."""

    found: Counts
    open: Counts
    balls: int

    def score(self, a: int, b: int) -> Interval:
        """ME: the share of balls in which both err at one point."""
        low = int(self.found[a, b])
        return Interval(Fraction(low, self.balls), Fraction(low + int(self.open[a, b]), self.balls))

    def uniqueness(self, member: int, ensemble: Sequence[int]) -> Interval:
        """US: one minus the mean mutual error score with the other members."""
        others = [m for m in ensemble if m != member]
        if not others:
            return Interval(Fraction(1), Fraction(1))
        scores = [self.score(member, m) for m in others]
        low = sum((s.lower for s in scores), Fraction(0)) / len(others)
        high = sum((s.upper for s in scores), Fraction(0)) / len(others)
        return Interval(1 - high, 1 - low)

    def joint_errors(self, ensemble: Sequence[int]) -> int:
        """How many mutual errors the ensemble has in all; every replacement makes it smaller."""
        return sum(int(self.found[a, b]) for i, a in enumerate(ensemble) for b in ensemble[:i])


@dataclass(frozen=True)
class Swap:
    """A replacement and the uniqueness scores that justified it."""

    removed: int
    added: int
    before: Interval
    after: Interval
    ensemble: tuple[int, ...]
    joint_errors: int


def replace_members(
    errors: MutualErrors,
    start: Sequence[int],
    limit: int,
    reverse: bool = False,
    certified: bool = False,
) -> list[Swap]:
    """Replace the least unique member by the fresh network that would be the most unique, while that helps.

    Open questions count as no error (as if the attack had failed), unless `certified`: then a swap needs
    intervals that do not overlap. `reverse` replaces the most unique member by the worst candidate instead.
    """
    current = list(start)
    swaps: list[Swap] = []
    sign = -1 if reverse else 1
    for _ in range(limit):
        scores = {m: errors.uniqueness(m, current) for m in current}
        out = min(current, key=lambda m: (sign * scores[m].upper, m))
        fresh = [f for f in range(len(errors.found)) if f not in current]
        trials = {f: errors.uniqueness(f, [m if m != out else f for m in current]) for f in fresh}
        best = min(fresh, key=lambda f: (-sign * _claim(trials[f], reverse, certified), f), default=None)
        if best is None or not _better(trials[best], scores[out], reverse, certified):
            break
        current = [m if m != out else best for m in current]
        done = tuple(current)
        swaps.append(Swap(out, best, scores[out], trials[best], done, errors.joint_errors(done)))
    return swaps


def _claim(score: Interval, reverse: bool, certified: bool) -> Fraction:
    return score.lower if certified and not reverse else score.upper


def _better(new: Interval, old: Interval, reverse: bool, certified: bool) -> bool:
    if certified:
        return new.upper < old.lower if reverse else new.lower > old.upper
    return new.upper < old.upper if reverse else new.upper > old.upper
