"""Both sides of critical radii without any query: what bounds prove, and the closest points that attacks find.

Runs as one job in a worker: attacks on many inputs are one batch, and so are bounds of many inputs and radii.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import VerifolioError
from verifolio.model.answer import Witness
from verifolio.model.joint import Joint
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.model.radius import RadiusBounds, RadiusStart
from verifolio.plugin.batch import BatchContext, Spot
from verifolio.plugin.choice import Choice, build
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.verifier import Verifier
from verifolio.run import Link
from verifolio.run.budget import Budget
from verifolio.solve.messages import FalseProof, Hit, ProvedRadius
from verifolio.trust.audit import SHARE, refuting_candidates
from verifolio.trust.conflict import BOUNDER
from verifolio.trust.referee import confirm, judge_counterexample, replay

Array = NDArray[np.float64]
GAIN = 0.1  # attacks stop when they gain less than this part of the tolerance
STOP = 0.9  # of the time; the rest is for judging
ATTACK = 0.6  # of the time
PASSES = 3  # of bounds, each between the last one's largest proof and smallest failure
GUESS = (
    6.0  # times what bounds prove: an attack that begins too far out comes closer, not the other way round
)
PULLS = 8  # halvings of the way to the centre
ATTACKED = 8  # radii attacked together


@dataclass(frozen=True, eq=False)
class RadiusTask:
    """Inputs of one network, who attacks and who bounds, and how many radii of each are bounded together.

    `again`: also look in another way, because the first one has seen the obvious.
    """

    starts: tuple[RadiusStart, ...]
    tolerance: float
    attack: Choice | Verifier | None
    bounder: Choice | Verifier | None
    approaches: bool = False  # whether the attack minimises distances
    attacks: bool = False  # whether it attacks balls
    cores: int = 1
    device: str = "cpu"
    radii: int = 12  # bounded side by side they part a gap in thirteen, where halving takes four passes
    again: bool = False


def run_radii(task: RadiusTask, link: Link) -> list[RadiusBounds] | VerifolioError:
    """The function a worker calls; one result per input."""
    import torch

    torch.set_num_threads(task.cores)
    try:
        return _Radii(task, link).run()
    except VerifolioError as error:
        return error


class _Side:
    """One input of the job: `lower` grows by proofs, `best` shrinks by replayed points."""

    def __init__(self, start: RadiusStart, entry: int, link: Link) -> None:
        self.start, self.entry, self.link, self.around = start, entry, link, start.around
        largest = start.around.largest
        self.widest: Query = start.around.refutation(largest)  # what replayed points are judged by
        self.attacked: Problem = self.widest.problems[0]
        exact = start.around.refuting is None
        self.proved: Problem = self.attacked if exact else start.around.query(largest).problems[0]
        self.lower, self.upper = start.lower, start.upper
        self.best: Witness | None = None
        self.unstable: int | None = None
        self.centre: Array = start.around.centre
        if start.witness is not None:
            self.offer(start.witness.astype(np.float64))

    def problems(self, radii: Array, template: Problem) -> list[Problem]:
        return [self.around.problem(float(r), template) for r in radii]

    def offer(self, point: Array) -> bool:
        """Replay a point; the closest one that is a counterexample is kept."""
        found = replay(self.widest, point)
        if not isinstance(found, Witness):
            return False
        distance = self.around.distance(found.x)
        if self.best is None or distance < self.around.distance(self.best.x):
            self.best = found
            self.upper = min(self.upper, distance)
            self.link.send(Hit(found, entry=self.entry))
        return True

    def prove(self, radius: float) -> None:
        if radius > self.lower:
            self.lower = radius
            self.link.send(ProvedRadius(self.entry, radius))

    def refute(self, radius: float, point: Array, prover: str) -> None:
        """Bounds claimed this radius; the driver hears of a point that replays in it."""
        found = judge_counterexample(self.around.query(radius), point)
        if isinstance(found, Witness):
            self.link.send(FalseProof(found, True, self.entry, prover, radius))

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

    def result(self) -> RadiusBounds:
        witness = None if self.best is None else confirm(self.widest, self.best)
        return RadiusBounds(self.lower, witness, self.unstable)


class _Radii:
    """One job on all its inputs."""

    def __init__(self, task: RadiusTask, link: Link) -> None:
        self.task = task
        self.budget = Budget(link.remaining() * STOP, None, task.cores, stop=link.cancelled)
        self.sides = [_Side(s, k, link) for k, s in enumerate(task.starts)]
        self.gain = GAIN * task.tolerance
        self.attack = None if task.attack is None else build(task.attack)

    def run(self) -> list[RadiusBounds]:
        bounder = self._bounder()
        if bounder is not None:
            self._scale(bounder)
        if self.attack is not None:
            self._assail(self.attack)
        if bounder is not None:
            self._bound(bounder)
        return [side.result() for side in self.sides]

    def _bounder(self) -> Verifier | None:
        if self.task.bounder is None or not self.task.radii:
            return None
        bounder = build(self.task.bounder)
        return None if bounder.refuses(self.sides[0].proved) is not None else bounder

    def _assail(self, attack: Verifier) -> None:
        """Attacks on all inputs that the attack does not refuse."""
        willing = [s for s in self.sides if attack.refuses(s.attacked) is None]
        if self.task.approaches:
            self._approach(attack, [s for s in willing if math.isinf(s.around.norm)])
        for side in willing if self.task.attacks else []:
            if side.best is None or self.task.again:
                self._attack(attack, side)

    def _context(self, budget: Budget) -> BatchContext:
        return BatchContext(budget, device=self.task.device)

    def _approach(self, attack: Verifier, sides: list[_Side]) -> None:
        """The attack that minimises distances; it knows the maximum norm only."""
        if not sides:
            return
        ones = np.ones(len(sides[0].centre))
        spots = [
            Spot(
                s.attacked,
                s.centre,
                ones if s.around.std is None else s.around.std,
                s.upper,
                None if s.best is None else s.best.x,
                s.start.seed,
                min(GUESS * s.lower, s.upper) if s.lower > 0 else s.upper / 10,
            )
            for s in sides
        ]
        context = self._context(self.budget.share(self.budget.seconds * ATTACK))
        attack.approach_many(spots, self.gain, replace(context, offer=lambda k, x: sides[k].offer(x)))
        for side in sides:
            side.pull()

    def _attack(self, attack: Verifier, side: _Side) -> None:
        """Attacks inside balls of several radii at once, the first time widely, then just below the best point."""
        failed, idle = side.lower, 0
        for k in range(8):
            if idle > 1 or self.budget.elapsed > ATTACK * self.budget.seconds or self.budget.expired():
                return
            span, before = side.upper - failed, side.upper
            radii = failed + span * (np.linspace(0.1, 0.97, ATTACKED) ** (1.0 if k else 2.0))
            hit = self._attack_balls(attack, side, radii, k)
            side.pull()
            missed = [r for i, r in enumerate(radii) if i not in hit and r < side.upper]
            failed = max([failed, *missed])
            idle = 0 if k == 0 or before - side.upper >= self.gain else idle + 1
            if side.upper - failed < self.gain:
                failed = side.lower + (side.upper - side.lower) * 0.7  # failures prove nothing: look again

    def _attack_balls(self, attack: Verifier, side: _Side, radii: Array, number: int) -> set[int]:
        """One attack on several radii; the positions of those in which it found something."""
        hit: set[int] = set()

        def offer(i: int, x: Array) -> bool:
            found = side.offer(x)
            if found:
                hit.add(i)
            return found

        near = [] if side.best is None else [side.best.x.astype(np.float64)]
        budget = self.budget.share(self.budget.seconds * ATTACK - self.budget.elapsed)
        context = replace(
            self._context(budget),
            seed=side.start.seed + number,
            offer=offer,
            starts=dict.fromkeys(range(len(radii)), near),
            effort=1 + number // 2,
        )
        attack.attack_many([Joint((p,)) for p in side.problems(radii, side.attacked)], context)
        return hit

    def _scale(self, bounder: Verifier) -> None:
        """Radii that halve from one to the next: the proved one says where an attack should begin."""
        halves = np.exp2(-np.arange(self.task.radii, 0, -1, dtype=np.float64))
        self._prove(bounder, {k: s.upper * halves for k, s in enumerate(self.sides) if not s.lower})

    def _bound(self, bounder: Verifier) -> None:
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

    def _prove(self, bounder: Verifier, radii: Mapping[int, Array]) -> dict[int, list[Bounds]]:
        """The bounds of these radii of these inputs, in one call; whatever they prove is kept."""
        if not radii or self.budget.expired():
            return {}
        problems = [
            p for k, part in radii.items() for p in self.sides[k].problems(part, self.sides[k].proved)
        ]
        began = time.monotonic()
        bounds = bounder.bound_many(problems, self._context(self.budget))
        both, found = iter(zip(problems, bounds, strict=True)), {}
        proved: dict[int, tuple[float, Problem]] = {}
        for k, part in radii.items():
            pairs = list(itertools.islice(both, len(part)))
            found[k] = [one for _, one in pairs]
            done = [(float(r), p) for r, (p, one) in zip(part, pairs, strict=True) if one.least_margin(p) > 0]
            if done:
                proved[k] = max(done, key=lambda pair: pair[0])
        self._accept(proved, f"{BOUNDER}{bounder.name}", SHARE * (time.monotonic() - began))
        return found

    def _accept(self, proved: Mapping[int, tuple[float, Problem]], prover: str, seconds: float) -> None:
        """Keep the largest radius proved for each input, unless a second look refutes it."""
        places = list(proved)
        wrong = refuting_candidates([proved[k][1] for k in places], seconds)
        for i, k in enumerate(places):
            if i in wrong:
                self.sides[k].refute(proved[k][0], wrong[i], prover)
            else:
                self.sides[k].prove(proved[k][0])


def undecided(bounds: Bounds) -> int | None:
    """How many bounded values may have either sign; None where values were not bounded."""
    if not bounds.lower:
        return None
    return int(sum(int(((bounds.lower[i] < 0) & (bounds.upper[i] > 0)).sum()) for i in bounds.lower))
