"""Robust accuracy of a whole ensemble whose outputs are averaged: how many points nobody can turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verifolio.answer import Verdict, Witness
from verifolio.attack import AttackSettings, attack_many
from verifolio.budget import Budget
from verifolio.network import Network
from verifolio.oracle import Oracle
from verifolio.problem import Problem
from verifolio.property import Reference
from verifolio.query import Query
from verifolio.referee import replay
from verifolio.registry import installed

from .joint import average_query
from .ledger import Fact, Ledger, set_key
from .replay import Spot
from .scores import Interval

Array = NDArray[np.float64]
SETTINGS = AttackSettings(rounds=2, restarts=8, steps=20, samples=0, diversify_steps=2)
ATTACK_SECONDS = 0.5  # per point, at most


@dataclass(frozen=True, eq=False)
class RobustAccuracy:
    """Points proved, points refuted (each with an input that turns the ensemble), points left open."""

    robust: int
    broken: int
    open: int

    @property
    def share(self) -> Interval:
        total = self.robust + self.broken + self.open
        return Interval(Fraction(self.robust, total), Fraction(total - self.broken, total))


def robust_accuracy(
    networks: Sequence[Network],
    references: Sequence[Reference],
    oracle: Oracle,
    ledger: Ledger,
    stop: Callable[[], bool],
) -> RobustAccuracy:
    """Attacks on all points together, bounds, then the oracle; a point that is wrong anyway is broken."""
    work = _Work(networks, references, oracle, ledger)
    work.recall()
    work.attack(stop)
    work.bound(stop)
    work.verify(stop)
    counts = [sum(v is wanted for v in work.verdicts) for wanted in (Verdict.UNSAT, Verdict.SAT)]
    return RobustAccuracy(counts[0], counts[1], len(references) - sum(counts))


class _Work:
    """The queries of one ensemble, and their verdicts so far (None: open)."""

    def __init__(
        self, networks: Sequence[Network], references: Sequence[Reference], oracle: Oracle, ledger: Ledger
    ) -> None:
        self.oracle, self.ledger = oracle, ledger
        self.key = "average+" + set_key(n.sha256 for n in networks)
        self.spots = [Spot(r).sha256 for r in references]
        self.queries: list[Query] = [average_query(networks, r) for r in references]
        self.centres = [r.x for r in references]
        self.verdicts: list[Verdict | None] = [None] * len(references)

    def open(self) -> list[int]:
        return [k for k, v in enumerate(self.verdicts) if v is None]

    def problem(self, k: int) -> Problem:
        return self.queries[k].problems[0]

    def settle(self, k: int, verdict: Verdict, source: str, witness: Witness | None = None) -> None:
        x = None if witness is None else witness.x
        self.verdicts[k] = verdict if verdict.decided else None
        timeout = 0.0 if verdict.decided else self.oracle.settings.timeout
        self.ledger.add([Fact(self.key, self.spots[k], verdict, source, x, timeout)])

    def recall(self) -> None:
        self.asked_in_vain = set[int]()
        for k in self.open():
            fact = self.ledger.get(self.key, self.spots[k], self.oracle.settings.timeout)
            if fact is not None and fact.verdict.decided:
                self.verdicts[k] = fact.verdict
            elif fact is not None:
                self.asked_in_vain.add(k)

    def attack(self, stop: Callable[[], bool]) -> None:
        """The points themselves, then descents in shared batches."""
        for k in self.open():
            self._try(k, self.centres[k], "clean")
        todo = self.open()
        if not todo or stop():
            return
        budget = Budget(ATTACK_SECONDS * len(todo), stop=stop)
        problems = [self.problem(k) for k in todo]
        attack_many(problems, lambda i, x: self._try(todo[i], x, "search"), budget, SETTINGS)

    def _try(self, k: int, x: Array, source: str) -> bool:
        found = replay(self.queries[k], x)
        if isinstance(found, Witness):
            self.settle(k, Verdict.SAT, source, found)
            return True
        return False

    def bound(self, stop: Callable[[], bool]) -> None:
        todo = self.open()
        if not todo or stop():
            return
        bounder = installed().all_bounders().best(self.problem(todo[0]), at_most=10)
        if bounder is None:
            return
        for k, bounds in zip(todo, bounder.bound([self.problem(k) for k in todo]), strict=True):
            if bounds.margins and all(len(m) > 0 and m.max() > 0 for m in bounds.margins):
                self.settle(k, Verdict.UNSAT, "bounds")

    def verify(self, stop: Callable[[], bool]) -> None:
        todo = [k for k in self.open() if k not in self.asked_in_vain]
        if not todo or stop():
            return
        for index, answer in self.oracle.ask_many([self.queries[k] for k in todo]):
            if answer.verdict is not Verdict.CANCELLED:
                self.settle(todo[index], answer.verdict, answer.verifier, answer.witness)
            if stop():
                return
