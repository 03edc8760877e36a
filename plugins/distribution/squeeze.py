"""The quick look before any query: the largest radius that bounds prove, the closest point attacks find.

Runs as one job in a worker: bounds of many radii are one batch, and so are attacks on many radii.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.answer import Verdict, Witness
from verifolio.attempt import Found
from verifolio.budget import Budget
from verifolio.errors import VerifolioError
from verifolio.evidence import Bounds
from verifolio.problem import Problem
from verifolio.query import Query
from verifolio.referee import confirm, replay
from verifolio.run import Link

from .family import Family

Array = NDArray[np.float64]
ROUNDS = 8
GAIN = 0.1  # attacks stop when they gain less than this part of the tolerance
BACK = 0.7  # of the way between both sides
STOP = 0.9  # of the time; the rest is for judging


@dataclass(frozen=True, eq=False)
class SqueezeTask:
    """What is known when the job starts: `lower` is proved, `upper` has a witness or is where to look."""

    family: Family
    lower: float
    upper: float
    tolerance: float
    seed: int = 0
    cores: int = 1
    device: str = "cpu"
    radii: int = 12
    start: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class Squeezed:
    """No counterexample within `lower`, `witness` is the closest found, `unstable` neurons have no sign."""

    lower: float
    witness: Witness | None = None
    unstable: int | None = None
    reason: str = ""
    error: VerifolioError | None = None


@dataclass(frozen=True)
class Proved:
    """Message: bounds alone prove this radius."""

    radius: float


def run_squeeze(task: SqueezeTask, link: Link) -> Squeezed:
    """The function a worker calls."""
    import torch

    torch.set_num_threads(task.cores)
    try:
        return _Squeeze(task, link).run()
    except VerifolioError as error:
        return Squeezed(task.lower, error=error)


class _Squeeze:
    """One job: `lower` grows by proofs, `best` shrinks by replayed points."""

    def __init__(self, task: SqueezeTask, link: Link) -> None:
        self.task, self.link, self.family = task, link, task.family
        self.budget = Budget(link.remaining() * STOP, None, task.cores, stop=link.cancelled)
        self.widest: Query = task.family.query(task.family.largest)
        self.template: Problem = self.widest.problems[0]
        self.lower, self.upper = task.lower, task.upper
        self.best: Witness | None = None
        self.unstable: int | None = None

    def run(self) -> Squeezed:
        if self.task.start is not None:
            self.offer(self.task.start.astype(np.float64))
        self._attack()
        reason = self._bound()
        witness = None if self.best is None else confirm(self.widest, self.best)
        return Squeezed(self.lower, witness, self.unstable, reason)

    def problems(self, radii: Array) -> list[Problem]:
        return [self.family.problem(float(r), self.template) for r in radii]

    def offer(self, point: Array) -> bool:
        """Replay a point; the closest one that is a counterexample is kept."""
        found = replay(self.widest, point)
        if not isinstance(found, Witness):
            return False
        distance = self.family.distance(found.x)
        if self.best is None or distance < self.family.distance(self.best.x):
            self.best = found
            self.upper = min(self.upper, distance)
            self.link.send(Found(found))
        return True

    def _attack(self) -> None:
        """Attacks at several radii at once, again and again between the last failure and the best point."""
        from verifolio.attack import AttackSettings, attack_many, unattackable

        if unattackable(self.template) is not None:
            return
        failed, count, idle = self.lower, max(4, self.task.radii * 2 // 3), 0
        for k in range(ROUNDS):
            span, before = self.upper - failed, self.upper
            # the first round looks widely; later ones just below the best point
            radii = failed + span * (np.linspace(0.1, 0.97, count) ** (1.0 if k else 2.0))
            effort = AttackSettings(rounds=2 + k // 2, restarts=8, steps=40, samples=0, few_inputs=0)
            results = attack_many(
                self.problems(radii),
                lambda _, x: self.offer(x),
                self.budget.share(self.budget.seconds * 0.6 - self.budget.elapsed),
                effort,
                seed=self.task.seed + k,
                candidates=[] if self.best is None else [self.best.x.astype(np.float64)],
                device=self.task.device,
            )
            self._pull()
            missed = [r for r, a in zip(radii, results, strict=True) if a.point is None and r < self.upper]
            failed = max([failed, *missed])
            gained = before - self.upper
            idle = 0 if k == 0 or gained >= GAIN * self.task.tolerance else idle + 1
            if self.upper - failed < GAIN * self.task.tolerance:
                failed = self.lower + (self.upper - self.lower) * BACK  # failures prove nothing: look again
            if idle > 1 or self.budget.elapsed > 0.6 * self.budget.seconds or self.budget.expired():
                return

    def _pull(self) -> None:
        """Move the best point towards the centre as long as it stays a counterexample."""
        if self.best is None:
            return
        centre, far = self.widest_centre(), self.best.x.astype(np.float64)
        low, high = 0.0, 1.0
        for _ in range(8):
            middle = (low + high) / 2
            if self.offer(centre + middle * (far - centre)):
                high = middle
            else:
                low = middle

    def widest_centre(self) -> Array:
        lower, upper = self.family.box(0.0)
        return (lower + upper) / 2

    def _bound(self) -> str:
        """Two passes over a batch of radii; the zero of the margins says where the second one looks."""
        from verifolio.registry import installed

        bounder = installed().all_bounders().best(self.template, at_most=10)
        if bounder is None:
            return "no bounder wants this problem"
        low, high = self.lower, self.upper
        for _ in range(3):
            if self.budget.expired() or high - low <= GAIN * self.task.tolerance:
                break
            radii = low + (high - low) * np.arange(1, self.task.radii + 1) / (self.task.radii + 1)
            bounds = bounder.bound(self.problems(radii), self.budget)
            proved = [float(r) for r, b in zip(radii, bounds, strict=True) if proves(b)]
            self._count(radii, bounds)
            if proved:
                low = max(proved)
                self.lower = max(self.lower, low)
                self.link.send(Proved(self.lower))
            high = min([float(r) for r in radii if r > low], default=high)
        return ""

    def _count(self, radii: Array, bounds: list[Bounds]) -> None:
        """How many neurons may have either sign at the largest radius that was bounded."""
        if self.unstable is None and len(radii):
            last = bounds[-1]
            self.unstable = int(
                sum(int(((last.lower[i] < 0) & (last.upper[i] > 0)).sum()) for i in last.lower)
            )


def proves(bounds: Bounds) -> bool:
    """Whether every disjunct has a row that cannot hold."""
    return bool(bounds.margins) and all(bool((m > 0).any()) for m in bounds.margins)


def verdict_of(found: Squeezed, upper: float) -> Verdict:
    """How the job is logged."""
    if found.witness is not None:
        return Verdict.SAT
    return Verdict.UNSAT if found.lower >= upper else Verdict.UNKNOWN
