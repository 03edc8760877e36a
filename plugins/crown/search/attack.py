"""Attacks inside a search: a first one before any splitting, then a small share of the search's time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verifolio.attacks import AttackSettings, attack_many, unattackable
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context

Array = NDArray[np.float64]
# Parts of the time. Choices: a proof gains nothing from attacks, so they may cost it a tenth; more would find some
# counterexamples sooner.
SHARE = 0.1  # of the search's time
FIRST = 0.03  # of the time that is left, for an attack before the search
BRIEF, LONGEST = (
    0.2,
    2.0,
)  # seconds, of the first attack inside a search and of any; each is twice as long as the one before


class InterleavedAttack:
    """Descents from the points at which the bounds are attained; each time from other random starts too.

    An `eager` one begins before the search, unless attacks are known to find nothing.
    """

    def __init__(self, problem: Problem, context: Context, eager: bool) -> None:
        self.problem, self.context = problem, context
        self.able = unattackable(problem) is None
        self.eager = eager and not context.evidence.attacked
        self.began = time.monotonic()
        self.spent = 0.0
        self.rounds = 0

    def due(self) -> bool:
        """Whether the next attack is worth its time now."""
        if self.eager and not self.rounds:
            return self.able
        return self.able and self.spent + self._seconds() < SHARE * (time.monotonic() - self.began)

    def _seconds(self) -> float:
        """How long the next attack may take: ever longer."""
        if self.eager and not self.rounds:
            return float(min(LONGEST, FIRST * max(self.context.budget.remaining, 1.0)))
        return float(min(LONGEST, BRIEF * 2.0**self.rounds))

    def run(self, candidates: Sequence[Array]) -> Array | None:
        """A counterexample that replays, or None."""
        started = time.monotonic()
        budget = self.context.budget.share(self._seconds())
        (attacked,) = attack_many(
            [self.problem],
            lambda _, x: self.context.check(x),
            budget,
            AttackSettings(),
            seed=self.context.seed + self.rounds,
            candidates=candidates,
            device=self.context.device,
        )
        self.rounds += 1
        self.spent += time.monotonic() - started
        if attacked.point is None and attacked.nearest is not None:
            self.context.evidence.add_candidate(attacked.nearest)
        return attacked.point
