"""Robust accuracy of a whole ensemble whose outputs are averaged: how many points nobody can turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verifolio.attack import AttackSettings, attack_many
from verifolio.model.answer import Verdict, Witness
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import Progress, silent
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.property import Reference
from verifolio.run.budget import Budget
from verifolio.solve.oracle import Oracle
from verifolio.trust.audit import SHARE, refuting_candidates
from verifolio.trust.conflict import BOUNDER, meet_proof
from verifolio.trust.referee import judge_counterexample, replay

from .joint import average_query
from .ledger import Fact, Ledger, set_key
from .replay import Spot
from .scores import Interval

Array = NDArray[np.float64]
SETTINGS = AttackSettings(rounds=2, restarts=8, steps=20, samples=0, diversify_steps=2)
ATTACK_SECONDS = 0.5  # per point, at most


@dataclass(frozen=True)
class RobustAccuracy:
    """Points proved, points refuted (each with an input that turns the ensemble), points left open."""

    robust: int
    broken: int
    open: int

    @property
    def share(self) -> Interval:
        total = self.robust + self.broken + self.open
        return Interval(Fraction(self.robust, total), Fraction(total - self.broken, total))


def robust_accuracies(
    networks: Sequence[Network],
    references: Sequence[Sequence[Reference]],
    oracle: Oracle,
    ledger: Ledger,
    stop: Callable[[], bool],
    progress: Progress = silent,
) -> tuple[RobustAccuracy, ...]:
    """For every radius, ascending, given its references: the same points each time, wrong ones are broken.

    Attacks on all points together, bounds, then the oracle. An input that turns the ensemble serves all larger
    radii, a proof all smaller ones.
    """
    work = _Work(networks, references, oracle, ledger, stop)
    work.recall()
    work.clean()
    work.attack()
    work.bound()
    work.verify(progress)
    return tuple(work.count(e) for e in range(len(references)))


class _Work:
    """The queries of one ensemble and their verdicts so far (None: open); k = radius * points + point."""

    def __init__(
        self,
        networks: Sequence[Network],
        references: Sequence[Sequence[Reference]],
        oracle: Oracle,
        ledger: Ledger,
        stop: Callable[[], bool],
    ) -> None:
        self.oracle, self.ledger, self.stop = oracle, ledger, stop
        self.key = "average+" + set_key(n.sha256 for n in networks)
        self.points, self.radii = len(references[0]), len(references)
        every = [r for row in references for r in row]
        self.spots = [Spot(r).sha256 for r in every]
        self.queries: list[Query] = [average_query(networks, r) for r in every]
        self.centres = [r.x for r in every]
        self.verdicts: list[Verdict | None] = [None] * len(every)
        self.asked_in_vain = set[int]()

    def count(self, radius: int) -> RobustAccuracy:
        part = self.verdicts[radius * self.points : (radius + 1) * self.points]
        robust, broken = (part.count(v) for v in (Verdict.UNSAT, Verdict.SAT))
        return RobustAccuracy(robust, broken, len(part) - robust - broken)

    def open(self, radius: int | None = None) -> list[int]:
        """Questions that neither have an answer nor were asked in vain."""
        every = range(len(self.verdicts))
        if radius is not None:
            every = range(radius * self.points, (radius + 1) * self.points)
        return [k for k in every if self.verdicts[k] is None and k not in self.asked_in_vain]

    def problem(self, k: int) -> Problem:
        return self.queries[k].problems[0]

    def settle(self, k: int, verdict: Verdict, source: str, witness: Witness | None = None) -> None:
        """Keep an answer, here for all radii that it serves, in the ledger for its own."""
        x = None if witness is None else witness.x
        timeout = 0.0 if verdict.decided else self.oracle.settings.timeout
        self.ledger.add([Fact(self.key, self.spots[k], verdict, source, x, timeout)])
        if verdict.decided:
            self.spread(k, verdict)
        else:
            self.asked_in_vain.add(k)

    def spread(self, k: int, verdict: Verdict) -> None:
        larger = range(k, len(self.verdicts), self.points)
        smaller = range(k, -1, -self.points)
        for i in larger if verdict is Verdict.SAT else smaller:
            self.verdicts[i] = self.verdicts[i] or verdict

    def recall(self) -> None:
        for k, spot in enumerate(self.spots):
            fact = self.ledger.get(self.key, spot, self.oracle.settings.timeout)
            if fact is not None and fact.verdict is Verdict.SAT:
                if fact.x is not None:  # replayed: it may be of an earlier version
                    self._try(k, fact.x.astype(np.float64), fact.source)
            elif fact is not None and fact.verdict is Verdict.UNSAT:
                self.spread(k, fact.verdict)
            elif fact is not None:
                self.asked_in_vain.add(k)

    def clean(self) -> None:
        """The points themselves."""
        for k in self.open(0):
            self._try(k, self.centres[k], "clean")

    def attack(self) -> None:
        """Descents in shared batches, from the smallest radius on."""
        for e in range(self.radii):
            todo = self.open(e)
            if not todo or self.stop():
                continue
            budget = Budget(ATTACK_SECONDS * len(todo), stop=self.stop)
            problems = [self.problem(k) for k in todo]
            attack_many(problems, partial(self._offer, todo), budget, SETTINGS)

    def _offer(self, todo: Sequence[int], i: int, x: Array) -> bool:
        return self._try(todo[i], x, "search")

    def _try(self, k: int, x: Array, source: str) -> bool:
        found = replay(self.queries[k], x)
        if isinstance(found, Witness):
            self.settle(k, Verdict.SAT, source, found)
            return True
        return False

    def bound(self) -> None:
        """Bounds in batches, from the largest radius on."""
        for e in range(self.radii - 1, -1, -1):
            todo = self.open(e)
            if not todo or self.stop():
                continue
            bounder = current_plugins().all_bounders().best(self.problem(todo[0]), at_most=10)
            if bounder is None:
                return
            began = time.monotonic()
            problems = {k: self.problem(k) for k in todo}
            bounds = zip(problems.items(), bounder.bound(list(problems.values())), strict=True)
            done = [k for (k, p), b in bounds if b.least_margin(p) > 0]
            wrong = refuting_candidates([problems[k] for k in done], SHARE * (time.monotonic() - began))
            for i, k in enumerate(done):
                if i not in wrong:
                    self.settle(k, Verdict.UNSAT, "bounds")
                elif isinstance(found := judge_counterexample(self.queries[k], wrong[i]), Witness):
                    meet_proof(self.queries[k], found, f"{BOUNDER}{bounder.name}")

    def verify(self, progress: Progress) -> None:
        """The oracle decides the rest: again and again the middle one of a point's open radii."""
        total = len(self.open())
        while not self.stop():
            left: dict[int, list[int]] = {}
            for k in self.open():
                left.setdefault(k % self.points, []).append(k)
            todo = [radii[len(radii) // 2] for radii in left.values()]
            progress(total - len(self.open()), total, "robust accuracy")
            if not todo or not self._ask(todo):
                return

    def _ask(self, todo: Sequence[int]) -> bool:
        """Says whether every question has an answer, be it that there is none."""
        for index, answer in self.oracle.ask_many([self.queries[k] for k in todo], attacked=True):
            if answer.verdict is Verdict.CANCELLED:
                return False
            self.settle(todo[index], answer.verdict, answer.verifier, answer.witness)
            if self.stop():
                return False
        return True
