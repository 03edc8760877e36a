"""The closest counterexample: asks one verifier that minimises, and judges what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verifolio.errors import InputError, SoundnessAlarm
from verifolio.model.answer import Closest, Verdict, Witness
from verifolio.model.problem import Ball, Problem
from verifolio.model.query import Query
from verifolio.plugin.choice import Choice, build
from verifolio.plugin.manager import Plugins
from verifolio.plugin.verifier import Verifier
from verifolio.portfolio.tree import Portfolio, class_of
from verifolio.reductions import Reduced
from verifolio.run import Job, Limits, Link, Result
from verifolio.run.settings import Settings
from verifolio.solve.attempt import guarded
from verifolio.solve.messages import Found
from verifolio.solve.report import Report
from verifolio.solve.task import AttemptTask
from verifolio.solve.trial import Trial
from verifolio.solve.walk import end_reason
from verifolio.solve.warm import strip
from verifolio.trust.referee import Rejection, confirm, confirmed, replay

ROUNDING = 1e-9  # of computing a distance


@dataclass(frozen=True)
class ClosestTask(AttemptTask):
    """An attempt that minimises the distance to the ball's centre."""

    ball: Ball | None = None


class ClosestTrial(Trial):
    """One minimising verifier on one query; the closest of all replayed points wins."""

    def run(self) -> Report:
        task, verifier = self.task, build(self.task.verifier)
        if not isinstance(task, ClosestTask) or task.ball is None or not verifier.can_minimise:
            return Report(Verdict.ERROR, f"{verifier.name} does not minimise")
        self.evidence.proves = verifier.can_prove
        lower, reasons = math.inf, []
        for problem in self.query.problems:
            refusal = verifier.refuses(problem)
            if refusal is not None:
                return Report(Verdict.UNKNOWN, f"refuses: {refusal}", refused=True, distance=0.0)
            found, reason = self._minimise(verifier, problem, task.ball)
            lower = min(lower, found if verifier.can_prove else 0.0)
            reasons += [reason] if reason else []
        witness = None if self.witness is None else confirm(self.query, self.witness)
        verdict = Verdict.UNKNOWN if witness is None else Verdict.SAT
        return Report(verdict, "; ".join(dict.fromkeys(reasons)), witness, distance=lower)

    def _minimise(self, verifier: Verifier, problem: Problem, ball: Ball) -> tuple[float, str]:
        """The proved distance for one input region."""
        outcome = verifier.minimise(problem, ball, self.context(Reduced(problem)))
        if outcome.verdict is Verdict.UNSAT and outcome.point is None:
            return ball.radius if outcome.distance is None else outcome.distance, outcome.reason
        if outcome.point is not None:
            found = replay(self.query, outcome.point)
            if isinstance(found, Rejection):
                return outcome.distance or 0.0, found.reason
            best = math.inf if self.witness is None else distance_of(ball, self.witness)
            if distance_of(ball, found) < best:
                self.witness = found
                self.link.send(Found(found))
        return outcome.distance or 0.0, outcome.reason


def run_closest(task: ClosestTask, link: Link) -> Report:
    """The function a worker calls."""
    return guarded(ClosestTrial, task, link)


def find_closest(
    query: Query,
    ball: Ball,
    verifier: Choice | Verifier,
    run: Callable[[Job], Result | None],
    settings: Settings,
) -> Closest:
    """The closest counterexample within the ball, by one verifier; `run` submits a job and waits."""
    task = ClosestTask(
        strip(query), verifier, seed=settings.seed, memory=settings.memory, cores=settings.cores, ball=ball
    )
    seconds = settings.timeout if math.isfinite(settings.timeout) else None
    limits = Limits(seconds, settings.memory, settings.cores, settings.grace)
    affinity = "".join(n.sha256 for n in query.networks)
    result = run(Job(run_closest, task, limits, affinity))
    report = result.value if result is not None else None
    if result is None or not isinstance(report, Report):
        report = Report(Verdict.ERROR, "no result" if result is None else end_reason(result, settings))
    if report.error is not None:
        raise report.error
    said = [m.witness for m in (result.messages if result is not None else ()) if isinstance(m, Found)]
    witness = report.witness or (said[-1] if said else None)
    distance = math.inf if witness is None else distance_of(ball, witness)
    lower = report.distance or 0.0
    if witness is not None and lower > distance * (1 + ROUNDING) and confirmed(witness):
        message = (
            f"{verifier.name} claims nothing is closer than {lower:.9g}, but a witness is at {distance:.9g}"
        )
        raise SoundnessAlarm(message)
    return Closest(
        min(lower, distance),
        distance,
        witness,
        verifier.name,
        report.reason,
        result.seconds if result else 0.0,
    )


def distance_of(ball: Ball, witness: Witness) -> float:
    return ball.distance(witness.x.astype(np.float64))


def minimiser(portfolio: Portfolio, plugins: Plugins) -> Choice | Verifier:
    """The portfolio's first member that minimises."""
    for member in portfolio.members:
        cls = class_of(member.verifier, plugins)
        if cls is not None and cls.can_minimise:
            return member.verifier
    names = ", ".join(dict.fromkeys(m.name for m in portfolio.members))
    raise InputError("--verifier", "one that minimises distances", names, "see `verifolio plugins`")
