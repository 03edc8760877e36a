"""Mutual errors, uniqueness scores and the replacement of members, as intervals where questions are open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

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
    """Per pair of networks (symmetric, nothing on the diagonal): balls with a mutual error, and open ones.

    Where more than two are taken `together`, `groups` holds both numbers for every set of so many networks, and
    the scores are about those sets.
    """

    found: Counts
    open: Counts
    balls: int
    together: int = 2
    groups: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def counts(self, group: Iterable[int]) -> tuple[int, int]:
        """Balls in which all of the group err at one point, and open ones."""
        chosen = tuple(group)
        if self.together == 2:
            return int(self.found[chosen]), int(self.open[chosen])
        return self.groups[sum(1 << m for m in chosen)]

    def score(self, *group: int) -> Interval:
        """ME: the share of balls in which all of them err at one point."""
        low, left = self.counts(group)
        return Interval(Fraction(low, self.balls), Fraction(low + left, self.balls))

    def uniqueness(self, member: int, ensemble: Sequence[int]) -> Interval:
        """US: one minus the mean mutual error score with the other members."""
        others = [m for m in ensemble if m != member]
        scores = [self.score(member, *company) for company in combinations(others, self.together - 1)]
        if not scores:
            return Interval(Fraction(1), Fraction(1))
        low = sum((s.lower for s in scores), Fraction(0)) / len(scores)
        high = sum((s.upper for s in scores), Fraction(0)) / len(scores)
        return Interval(1 - high, 1 - low)

    def joint_errors(self, ensemble: Sequence[int]) -> int:
        """How many mutual errors the ensemble has in all; every replacement makes it smaller."""
        return sum(self.counts(group)[0] for group in combinations(ensemble, self.together))


def add_up(errors: Sequence[MutualErrors]) -> MutualErrors:
    """The errors in all balls."""
    first = errors[0]
    groups = {
        mask: (sum(e.groups[mask][0] for e in errors), sum(e.groups[mask][1] for e in errors))
        for mask in first.groups
    }
    found, left = (np.sum([getattr(e, name) for e in errors], axis=0) for name in ("found", "open"))
    return MutualErrors(found, left, sum(e.balls for e in errors), first.together, groups)


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
