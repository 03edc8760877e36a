"""The estimator `bracket`: the critical radius between a proof and a counterexample, to a tolerance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from verifolio.errors import InputError, UnknownPlugin
from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.model.query import Query
from verifolio.model.radius import RadiusStart
from verifolio.plugin.estimator import OracleLike, Progress, silent
from verifolio.plugin.options import described
from verifolio.properties.verdict import follow

from .closest import MINIMISE, ask_closest
from .look import LOOK, look, seed_of
from .radius_search import (
    KNOWN,
    Critical,
    RadiusQuestion,
    RadiusSearch,
    SearchClock,
    SearchStatus,
    SearchStep,
    conflict,
    keep_query,
    make_step,
)

LEAST = 0.2  # seconds; a shorter query is not worth asking
SURE = 0.97  # a proof this part of the tolerance below the upper side closes the bracket
BOLD = 0.25  # of the time that is left goes to the first query, which would close the bracket at once
TOP = 0.65  # and to a later one that would
LAST = 0.85  # and to one below a failure that should need half of it
LATE = 0.8  # of its time: a query that took more was stopped by the clock
AGAIN = 1.25  # a radius is asked again if so many times the seconds it had are left
PARTS = 16  # radii below a failed one lie on a grid, so that a clock's noise does not show in them


@dataclass(frozen=True)
class BracketOptions:
    """How the budget is spent."""

    quick: float = described(
        12.0, "Seconds for the first look by attacks and bounds; at most a fifth of the budget."
    )
    radii: int = described(12, "Radii that are bounded together.")
    share: float = described(
        0.4,
        "The part of the remaining budget that one query may use; the one that would close the bracket may use more.",
    )
    neurons: int = described(
        24, "Up to so many unstable neurons a verifier that minimises distances is asked first."
    )


class Bracket(RadiusSearch):
    """Attack for the upper side, bounds for the lower, then queries in between."""

    name: ClassVar[str] = "bracket"
    Options: ClassVar[type] = BracketOptions
    continues: ClassVar[bool] = True
    options: BracketOptions

    def run(self, request: RadiusQuestion, oracle: OracleLike, progress: Progress = silent) -> Critical:
        if not request.tolerance > 0:
            raise InputError("tolerance", "a positive number", str(request.tolerance))
        search = _Bracketing(request, oracle, self.options)
        search.recall()
        for phase in (search.squeeze, search.minimise, search.divide, search.polish):
            phase()
            progress(len(search.steps), 0, search.text())
            if search.closed:
                break
        return search.result()


class _Bracketing(SearchClock):
    """The two sides and everything spent on them; all of it follows from the steps, whoever made them."""

    def __init__(self, question: RadiusQuestion, oracle: OracleLike, options: BracketOptions) -> None:
        self.question, self.oracle, self.options = question, oracle, options
        self.family = question.family
        self.top = min(question.largest or math.inf, self.family.largest)
        self.lower, self.upper = 0.0, math.inf
        self.best: SearchStep | None = None
        self.flags: set[Flag] = set()
        self.unstable: int | None = None
        # radii without an answer: seconds in vain, inf if more would be no use
        self.failures: dict[float, float] = {}
        self.effort = 0.0  # seconds of the last proof by a query
        self.hits = 0  # counterexamples that queries found since then
        self.moved = False  # by a query, so far that an attack should look around its point
        self.closest = math.inf  # of all logged distances
        self.steps: list[SearchStep] = []
        self.before = 0.0
        self.started = time.monotonic()

    @property
    def ceiling(self) -> float:
        """The upper side, or where looking ends."""
        return min(self.upper, self.top)

    @property
    def closed(self) -> bool:
        if math.isinf(self.upper):
            return self.lower >= self.top
        return self.upper - self.lower <= self.question.tolerance

    @property
    def trusted(self) -> bool:
        """Whether the attack seems to have found the closest point: then only a proof is missing."""
        attacked = any(s.kind == LOOK and s.distance is not None for s in self.steps)
        return attacked and self.family.exact and math.isfinite(self.upper) and not self.hits

    def text(self) -> str:
        return f"[{self.lower:.5g}, {self.upper:.5g}]"

    def recall(self) -> None:
        """Proofs and witnesses of earlier runs; a stored witness is replayed before it counts."""
        for step in self.question.history:
            self._count(step)
            self.lower = max(self.lower, step.proved or 0.0)
            self.before = max(self.before, step.elapsed)
        known = [s for s in self.steps if s.witness is not None and s.distance is not None]
        for step in sorted(known, key=lambda s: s.distance or 0.0):
            if step.witness is None:
                continue
            witness = self.oracle.judge(self.family.candidate_query(step.witness), step.witness)
            if witness is not None:
                self._take(replace(step, distance=self.family.distance(witness.x), witness=witness.x))
                self._agree(witness)
                break

    def _count(self, step: SearchStep) -> None:
        """What a step says about the effort so far."""
        self.steps.append(step)
        before, self.closest = self.closest, min(self.closest, step.distance or math.inf)
        if step.kind == LOOK:
            self.moved = False
            self.unstable = step.unstable if self.unstable is None else self.unstable
        if step.kind != "query":
            return
        if step.verdict is Verdict.SAT:
            self.hits += 1
            self.moved = before - self.closest > self.question.tolerance
        elif step.verdict is Verdict.UNSAT:
            self.hits, self.effort = 0, step.seconds
        elif step.verdict is not Verdict.CANCELLED:
            late = step.seconds >= LATE * step.timeout
            self.failures[step.radius] = step.seconds if late else math.inf

    def squeeze(self) -> None:
        """Attacks and bounds on many radii at once, in a worker."""
        if not self.closed and not any(s.kind == LOOK for s in self.steps):
            self._squeeze(self.options.quick, self.options.radii)

    def _squeeze(self, quick: float, radii: int = 0, again: bool = False) -> None:
        seconds = min(quick, self.question.budget / 5, self.left)
        if seconds < LEAST or not self.family.fixed or not self.family.disjuncts:
            return  # bounds and attacks use one condition for all radii
        witness = None if self.best is None else self.best.witness
        seed = seed_of(self.oracle, self.steps)
        start = RadiusStart(self.family.around, self.lower, self.ceiling, seed, witness)
        for step, found in look([start], self.oracle, self.question.tolerance, seconds, radii, again):
            self._note(replace(step, elapsed=self.elapsed), found)

    def minimise(self) -> None:
        """Where few neurons are undecided, a verifier that minimises finds the closest point itself."""
        few = self.unstable is not None and self.unstable <= self.options.neurons and self.family.exact
        tried = any(s.kind == MINIMISE for s in self.steps)
        if not few or tried or self.closed or self.left < LEAST:
            return
        timeout = min(self.question.timeout, self.left * self.options.share / 2)
        try:
            asked = ask_closest(self.question, self.oracle, self.ceiling, timeout)
        except (InputError, UnknownPlugin):  # nobody in the portfolio minimises
            return
        if asked is not None:
            self._note(replace(asked[0], elapsed=self.elapsed), asked[1])

    def divide(self) -> None:
        """Queries between the two sides until they meet, or the budget is spent."""
        while not self.closed and self.left > max(LEAST, self.effort / 2):
            if self.moved:
                self._squeeze(self.options.quick / 4)  # the new point can be moved closer
                self.moved = False
                continue
            radius = self._next()
            if radius is None:
                return
            timeout = self._patience(radius)
            finding = follow(self.family.inquiry(radius), self._asker(timeout))
            self._note(make_step(self.family, radius, finding, timeout, self.elapsed), finding.witness)

    def _asker(self, timeout: float) -> Callable[[Query], Answer]:
        """Asks the queries of one radius, which share its time."""
        end = time.monotonic() + timeout

        def ask(query: Query) -> Answer:
            keep_query(self.question.keep, query)
            left = max(LEAST / 10, end - time.monotonic())
            return self.oracle.ask(query, min(timeout, left), self.trusted)

        return ask

    def _patience(self, radius: float) -> float:
        """Seconds for a query."""
        return min(self.question.timeout, max(LEAST, self.left * self._share_of(radius)))

    def _share_of(self, radius: float) -> float:
        if self.failures:
            return LAST if self.effort else self.options.share
        if not self.effort and math.isfinite(self.upper):
            return BOLD
        if self.left <= 2 * self.effort:
            return 1.0
        return TOP if self.ceiling - radius <= self.question.tolerance else self.options.share

    def polish(self) -> None:
        """What is left when no proof is in reach goes to the attack."""
        if math.isfinite(self.left):
            self._squeeze(self.left, again=True)

    def _next(self) -> float | None:
        """The next radius, None where nothing is left to gain.

        The attack's point is mostly the closest there is, so a proof just below it closes the bracket: that
        is asked first. Without a point, half the way. Above a radius that had no answer proofs are harder
        still, so the search goes on below it.
        """
        tolerance = self.question.tolerance
        failed = min((r for r in self.failures if self.lower < r < self.ceiling), default=math.inf)
        if math.isfinite(failed):
            return None if failed - self.lower <= tolerance / 4 else self._below(failed)
        middle = (self.lower + self.ceiling) / 2
        if math.isfinite(self.upper):
            return max(self.ceiling - SURE * tolerance * 2.0**self.hits, middle)
        return middle if self.ceiling - self.lower > 2 * tolerance else self.ceiling

    def _below(self, failed: float) -> float | None:
        """A radius whose proof should take half of what is left, if times grow exponentially with the radius.

        A radius that had no answer is thought to need twice the time it had; where that is left, or a proof came
        close, or no radius below it is in reach either, it is asked again if it can have more time. Half the way,
        as long as nothing is known about the time of proofs.
        """
        had, left = self.failures[failed], min(self.left, 2 * self.question.timeout)
        if not self.effort or math.isinf(left) or math.isinf(had):
            return (self.lower + failed) / 2
        quick = max(self.effort, LEAST / 10)
        slow = max(2 * had, 2 * quick)
        part = math.log(left / 2 / quick) / math.log(slow / quick)
        part = round(PARTS * part) / PARTS
        close = part >= 1 or failed - self.lower <= self.question.tolerance
        if (close or part <= 0) and min(self.left, self.question.timeout) > AGAIN * had:
            return failed
        return self.lower + (failed - self.lower) * min(part, 0.8) if part > 0 else None

    def _note(self, step: SearchStep, witness: Witness | None) -> None:
        self._count(step)
        self.question.log(step)
        if step.proved is not None:
            self.lower = max(self.lower, step.proved)
        if step.distance is not None:
            self._take(step)
        self._agree(witness)

    def _agree(self, witness: Witness | None) -> None:
        if 0 < self.lower >= self.upper:  # 0: nothing is proved yet, and the input itself may be a witness
            conflict(self.family, self.lower, self.upper, witness)
            self.flags.add(Flag.NUMERICAL)

    def _take(self, step: SearchStep) -> None:
        """A witness closer than the best one is the new upper side."""
        if step.distance is not None and step.distance < self.upper:
            self.upper, self.best = step.distance, step

    def result(self) -> Critical:
        found, best = math.isfinite(self.upper), self.best
        verdicts = [s.verdict for s in self.steps]
        reason = "" if self.closed else f"{len(self.failures)} queries without an answer"
        return Critical(
            lower=min(self.lower, self.upper),
            upper=self.upper if found else None,
            status=SearchStatus.CLOSED if self.closed else SearchStatus.OPEN,
            witness=None if best is None else best.witness,
            distance=self.upper if found else None,
            flags=frozenset(self.flags | (best.flags if best is not None else frozenset())),
            seconds=self.elapsed,
            queries=sum(s.kind != KNOWN for s in self.steps),
            cancelled=verdicts.count(Verdict.CANCELLED),
            reason=reason,
            steps=tuple(self.steps),
        )
