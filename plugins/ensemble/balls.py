"""Balls of several radii around the same points, and the mutual errors of all pairs of networks in them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from .falsify import Method
from .lattice import Status
from .scores import MutualErrors

if TYPE_CHECKING:
    from verifolio.plugin.estimator import Progress

    from .survey import Question, Survey


class Balls:
    """The survey of all pairs in all balls; ball e * points + p is the one of point p with radius e."""

    def __init__(self, survey: Survey, points: int, radii: int, together: int = 2) -> None:
        self.survey, self.points, self.radii, self.together = survey, points, radii, together
        count = len(survey.networks)
        self.singles = [1 << a for a in range(count)]
        self.pairs = [1 << a | 1 << b for a, b in combinations(range(count), 2)]
        larger = combinations(range(count), together) if together > 2 else ()
        self.groups = [sum(1 << m for m in group) for group in larger]

    def decide(self, progress: Progress) -> None:
        """Single networks to the end before pairs: where one is safe, so is every pair that it is in.

        Bounds are for single networks: of the pairs that are left then they close next to none.
        """
        self.spread()
        progress(0, 0, "bounds of networks")
        self.prove(self.singles)
        for masks, what in ((self.singles, "networks"), (self.pairs, "pairs"), (self.groups, "larger sets")):
            if masks:
                progress(0, 0, f"attacks on {what}")
                self.attack(masks, "search")
                self.verify(masks, progress)

    def try_attack(self, method: Method) -> None:
        """Gradient attacks alone, but not where the bounds of a network say that there is nothing to find."""
        self.prove(self.singles)
        for e in range(self.radii):
            self.survey.attack(self.questions(e, [*self.pairs, *self.groups]), method)

    def questions(self, radius: int, masks: Sequence[int]) -> list[Question]:
        first = radius * self.points
        return [(j, mask) for j in range(first, first + self.points) for mask in masks]

    def spread(self) -> None:
        """A point that fools serves every larger ball, a proof every smaller one."""
        lattices, m = self.survey.lattices, self.points
        for p in range(m):
            for e in range(1, self.radii):
                for pattern, x in lattices[(e - 1) * m + p].fooled.items():
                    self.survey.adopt(e * m + p, pattern, x)
            for e in range(self.radii - 1, 0, -1):
                for mask in lattices[e * m + p].safe:
                    lattices[(e - 1) * m + p].add_proof(mask)

    def attack(self, masks: Sequence[int], method: Method) -> None:
        """From the smallest radius on, so that what is found serves the larger ones."""
        for e in range(self.radii):
            self.survey.attack(self.questions(e, masks), method)
            self.spread()

    def prove(self, masks: Sequence[int]) -> None:
        """Bounds, from the largest radius on, so that what is proved serves the smaller ones."""
        for e in range(self.radii - 1, -1, -1):
            self.survey.bound(self.questions(e, masks))
            self.spread()

    def verify(self, masks: Sequence[int], progress: Progress) -> None:
        """The oracle decides the rest: again and again the middle one of the open radii of a point and a set."""
        left = self.open(masks)
        total = sum(len(radii) for radii in left.values())
        while left and not self.survey.stop():
            count = sum(len(radii) for radii in left.values())
            progress(total - count, total, f"{count} questions open")
            self.survey.verify([(radii[len(radii) // 2], mask) for (_, mask), radii in left.items()])
            self.spread()
            before, left = left, self.open(masks)
            if left == before:
                return

    def open(self, masks: Sequence[int]) -> dict[Question, list[int]]:
        """For every point and set the balls in which it is open, if there are any, in ascending order."""
        found: dict[Question, list[int]] = {}
        for e in range(self.radii):
            for j, mask in self.survey.open(self.questions(e, masks)):
                found.setdefault((j % self.points, mask), []).append(j)
        return found

    def errors(self, radius: int) -> MutualErrors:
        count = len(self.survey.networks)
        found, left = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
        for a, b in combinations(range(count), 2):
            found[a, b], left[a, b] = self._count(radius, 1 << a | 1 << b)
        groups = {mask: self._count(radius, mask) for mask in self.groups}
        return MutualErrors(found + found.T, left + left.T, self.points, self.together, groups)

    def _count(self, radius: int, mask: int) -> tuple[int, int]:
        """Balls in which the set errs at one point, and open ones."""
        states = [self.survey.status(j, mask) for j, _ in self.questions(radius, [mask])]
        left = sum(state in (Status.OPEN, Status.UNKNOWN) for state in states)
        return states.count(Status.SAT), left
