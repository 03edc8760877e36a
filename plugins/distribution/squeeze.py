"""The quick look before any query: the largest radius that bounds prove, the closest point attacks find.

Runs as one job in a worker: attacks on many inputs are one batch, and so are bounds of many inputs and radii.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import VerifolioError
from verifolio.model.answer import Verdict, Witness
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds
from verifolio.run import Link
from verifolio.run.budget import Budget
from verifolio.solve.attempt import Found
from verifolio.trust.audit import SHARE, refuting_candidates
from verifolio.trust.conflict import BOUNDER
from verifolio.trust.referee import confirm, judge_counterexample, replay

from .family import Family

Array = NDArray[np.float64]
GAIN = 0.1  # attacks stop when they gain less than this part of the tolerance
STOP = 0.9  # of the time; the rest is for judging
ATTACK = 0.6  # of the time
PASSES = 3
CHEAP = 10  # tightness of the bounder that looks first
GUESS = (
    6.0  # times what bounds prove: an attack that begins too far out comes closer, not the other way round
)
PULLS = 8
ATTACKED = 8  # radii attacked together


@dataclass(frozen=True, eq=False)
class Start:
    """An input and what is known about it: `lower` is proved, `upper` has a witness or is where to look."""

    family: Family
    lower: float
    upper: float
    seed: int = 0
    witness: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class SqueezeTask:
    """Inputs of one network and how many radii of each are bounded together (0: none).

    `again`: also look in another way, because the first one has seen the obvious.
    """

    starts: tuple[Start, ...]
    tolerance: float
    cores: int = 1
    device: str = "cpu"
    radii: int = 12
    again: bool = False


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
    """Message: bounds alone prove this radius around input number `place`."""

    place: int
    radius: float


@dataclass(frozen=True)
class FalseProof(Found):
    """Message: bounds claimed this radius around input number `place`, and the witness lies in it."""

    place: int = 0
    radius: float = 0.0
    prover: str = ""


@dataclass(frozen=True)
class Near(Found):
    """Message: a replayed counterexample to input number `place`."""

    place: int = 0


def run_squeeze(task: SqueezeTask, link: Link) -> list[Squeezed]:
    """The function a worker calls; one result per input."""
    import torch

    torch.set_num_threads(task.cores)
    try:
        return _Squeeze(task, link).run()
    except VerifolioError as error:
        return [Squeezed(s.lower, error=error) for s in task.starts]


class _Side:
    """One input of the job: `lower` grows by proofs, `best` shrinks by replayed points."""

    def __init__(self, start: Start, place: int, link: Link) -> None:
        self.start, self.place, self.link, self.family = start, place, link, start.family
        largest = start.family.largest
        self.widest: Query = start.family.refutation(largest)  # what replayed points are judged by
        self.attacked: Problem = self.widest.problems[0]
        exact = start.family.refuting_disjuncts is None
        self.proved: Problem = self.attacked if exact else start.family.query(largest).problems[0]
        self.lower, self.upper = start.lower, start.upper
        self.best: Witness | None = None
        self.unstable: int | None = None
        low, high = self.family.box(0.0)
        self.centre: Array = (low + high) / 2
        if start.witness is not None:
            self.offer(start.witness.astype(np.float64))

    def problems(self, radii: Array, template: Problem) -> list[Problem]:
        return [self.family.problem(float(r), template) for r in radii]

    def offer(self, point: Array) -> bool:
        """Replay a point; the closest one that is a counterexample is kept."""
        found = replay(self.widest, point)
        if not isinstance(found, Witness):
            return False
        distance = self.family.distance(found.x)
        if self.best is None or distance < self.family.distance(self.best.x):
            self.best = found
            self.upper = min(self.upper, distance)
            self.link.send(Near(found, place=self.place))
        return True

    def prove(self, radius: float) -> None:
        if radius > self.lower:
            self.lower = radius
            self.link.send(Proved(self.place, radius))

    def refute(self, radius: float, point: Array, prover: str) -> None:
        """Bounds claimed this radius; the driver hears of a point that replays in it."""
        found = judge_counterexample(self.family.query(radius), point)
        if isinstance(found, Witness):
            self.link.send(FalseProof(found, True, self.place, radius, prover))

    def pull(self) -> None:
        """Move the best point towards the centre as long as it stays a counterexample."""
        if self.best is None:
            return
        far, low, high = self.best.x.astype(np.float64), 0.0, 1.0
        for _ in range(PULLS):
            middle = (low + high) / 2
            if self.offer(self.centre + middle * (far - self.centre)):
                high = middle
            else:
                low = middle

    def squeezed(self, reason: str) -> Squeezed:
        witness = None if self.best is None else confirm(self.widest, self.best)
        return Squeezed(self.lower, witness, self.unstable, reason)


class _Squeeze:
    """One job on all its inputs."""

    def __init__(self, task: SqueezeTask, link: Link) -> None:
        self.task = task
        self.budget = Budget(link.remaining() * STOP, None, task.cores, stop=link.cancelled)
        self.sides = [_Side(s, k, link) for k, s in enumerate(task.starts)]
        self.gain = GAIN * task.tolerance

    def run(self) -> list[Squeezed]:
        bounder = self._bounder()
        if bounder is not None and self.task.radii:
            self._scale(bounder)
        self._approach()
        for side in self.sides:
            if side.best is None or self.task.again:
                self._attack(side)
        if bounder is not None and self.task.radii:
            self._bound(bounder)
        reason = "" if bounder is not None else "no bounder wants this problem"
        return [side.squeezed(reason) for side in self.sides]

    def _bounder(self) -> Bounder | None:
        from verifolio.plugin.manager import current_plugins

        return current_plugins().all_bounders().best(self.sides[0].proved, at_most=CHEAP)

    def _approach(self) -> None:
        """The attack that minimises distances; it knows the maximum norm only."""
        from verifolio.attack import unattackable

        from .nearest import Spot, approach

        sides = [s for s in self.sides if math.isinf(s.family.norm) and unattackable(s.attacked) is None]
        if not sides:
            return
        ones = np.ones(len(sides[0].centre))
        spots = [
            Spot(
                s.attacked,
                s.centre,
                ones if s.family.std is None else s.family.std,
                s.upper,
                None if s.best is None else s.best.x,
                s.start.seed,
                min(GUESS * s.lower, s.upper) if s.lower > 0 else s.upper / 10,
            )
            for s in sides
        ]
        share = self.budget.share(self.budget.seconds * ATTACK)
        approach(spots, lambda k, x: sides[k].offer(x), self.gain, share, self.task.device)
        for side in sides:
            side.pull()

    def _attack(self, side: _Side) -> None:
        """Attacks inside balls of several radii at once, the first time widely, then just below the best point."""
        from verifolio.attack import AttackSettings, attack_many, unattackable

        if unattackable(side.attacked) is not None:
            return
        failed, idle = side.lower, 0
        for k in range(8):
            if idle > 1 or self.budget.elapsed > ATTACK * self.budget.seconds or self.budget.expired():
                return
            span, before = side.upper - failed, side.upper
            radii = failed + span * (np.linspace(0.1, 0.97, ATTACKED) ** (1.0 if k else 2.0))
            results = attack_many(
                side.problems(radii, side.attacked),
                lambda _, x: side.offer(x),
                self.budget.share(self.budget.seconds * ATTACK - self.budget.elapsed),
                AttackSettings(rounds=2 + k // 2, restarts=8, steps=40, samples=0, few_inputs=0),
                seed=side.start.seed + k,
                candidates=[] if side.best is None else [side.best.x.astype(np.float64)],
                device=self.task.device,
            )
            side.pull()
            missed = [r for r, a in zip(radii, results, strict=True) if a.point is None and r < side.upper]
            failed = max([failed, *missed])
            idle = 0 if k == 0 or before - side.upper >= self.gain else idle + 1
            if side.upper - failed < self.gain:
                failed = side.lower + (side.upper - side.lower) * 0.7  # failures prove nothing: look again

    def _scale(self, bounder: Bounder) -> None:
        """Radii that halve from one to the next: the proved one says where an attack should begin."""
        halves = np.exp2(-np.arange(self.task.radii, 0, -1, dtype=np.float64))
        self._prove(bounder, {k: s.upper * halves for k, s in enumerate(self.sides) if not s.lower})

    def _bound(self, bounder: Bounder) -> None:
        """Batches of radii of all inputs, the next one between the last proof and the first failure."""
        high = [s.upper for s in self.sides]
        steps = np.arange(1, self.task.radii + 1) / (self.task.radii + 1)
        for number in range(PASSES):
            live = [k for k, s in enumerate(self.sides) if high[k] - s.lower > self.gain]
            radii = {k: self.sides[k].lower + (high[k] - self.sides[k].lower) * steps for k in live}
            found = self._prove(bounder, radii)
            for k, bounds in found.items():
                side = self.sides[k]
                side.unstable = side.unstable if number else undecided(bounds[-1])
                high[k] = min([float(r) for r in radii[k] if r > side.lower], default=high[k])

    def _prove(self, bounder: Bounder, radii: dict[int, Array]) -> dict[int, list[Bounds]]:
        """The bounds of these radii of these inputs, in one call; whatever they prove is kept."""
        if not radii or self.budget.expired():
            return {}
        problems = [
            p for k, part in radii.items() for p in self.sides[k].problems(part, self.sides[k].proved)
        ]
        began = time.monotonic()
        bounds, found = iter(zip(problems, bounder.bound(problems, self.budget), strict=True)), {}
        proved: dict[int, tuple[float, Problem]] = {}
        for k, part in radii.items():
            pairs = list(itertools.islice(bounds, len(part)))
            found[k] = [one for _, one in pairs]
            done = [(float(r), p) for r, (p, one) in zip(part, pairs, strict=True) if one.least_margin(p) > 0]
            if done:
                proved[k] = max(done, key=lambda pair: pair[0])
        self._accept(proved, f"{BOUNDER}{bounder.name}", SHARE * (time.monotonic() - began))
        return found

    def _accept(self, proved: dict[int, tuple[float, Problem]], prover: str, seconds: float) -> None:
        """Keep the largest radius proved for each input, unless a second look refutes it."""
        places = list(proved)
        wrong = refuting_candidates([proved[k][1] for k in places], seconds)
        for i, k in enumerate(places):
            if i in wrong:
                self.sides[k].refute(proved[k][0], wrong[i], prover)
            else:
                self.sides[k].prove(proved[k][0])


def undecided(bounds: Bounds) -> int:
    """How many bounded values may have either sign."""
    return int(sum(int(((bounds.lower[i] < 0) & (bounds.upper[i] > 0)).sum()) for i in bounds.lower))


def verdict_of(found: Squeezed, upper: float) -> Verdict:
    """How the job is logged."""
    if found.witness is not None:
        return Verdict.SAT
    return Verdict.UNSAT if found.lower >= upper else Verdict.UNKNOWN
