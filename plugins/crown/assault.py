"""Attacks inside a search: a first one before any splitting, then a small share of the search's time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verifolio.attack import AttackSettings, attack_many, unattackable
from verifolio.problem import Problem
from verifolio.verifier import Context

Array = NDArray[np.float64]
SHARE = 0.1  # of the search's time
FIRST = 0.03  # of the time that is left
LONGEST = 2.0  # seconds


class Assault:
    """Descents from the points at which the bounds are attained; each time from other random starts too."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.began = time.monotonic()
        self.spent = 0.0
        self.rounds = 0
        # somebody has attacked before: begin with the share
        self.able = unattackable(problem) is None
        self.tried_before = bool(context.evidence.candidates)

    def due(self) -> bool:
        """Whether the next attack is worth its time now."""
        if self.rounds == 0 and not self.tried_before:
            return self.able
        return self.able and self.spent < SHARE * (time.monotonic() - self.began) - self._next()

    def _next(self) -> float:
        """Seconds that the next attack may take."""
        return min(LONGEST, FIRST * max(self.context.budget.remaining, 1.0))

    def run(self, candidates: Sequence[Array]) -> Array | None:
        """A counterexample that replays, or None."""
        started = time.monotonic()
        budget = self.context.budget.share(self._next())
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
