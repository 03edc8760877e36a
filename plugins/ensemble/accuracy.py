"""Robust accuracy of a whole ensemble whose outputs are averaged: how many points nobody can turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from verifolio.model.answer import Answer, Verdict, Witness
from verifolio.model.batch import Atom, Batch
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import OracleLike, Progress, silent
from verifolio.plugin.property import Reference

from .joint import average_condition, average_query
from .ledger import EnsembleLedger, Fact, set_key
from .scores import Interval
from .spot import Float32, Spot

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
    oracle: OracleLike,
    ledger: EnsembleLedger,
    left: Callable[[], float],
    progress: Progress = silent,
) -> tuple[RobustAccuracy, ...]:
    """For every radius, ascending, given its references: the same points each time, wrong ones are broken.

    Attacks on all points together, bounds, then the oracle. An input that turns the ensemble serves all larger
    radii, a proof all smaller ones.
    """
    work = _Work(networks, references, oracle, ledger, left)
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
        oracle: OracleLike,
        ledger: EnsembleLedger,
        left: Callable[[], float],
    ) -> None:
        self.networks, self.oracle, self.ledger, self.left = tuple(networks), oracle, ledger, left
        self.key = "average+" + set_key(n.sha256 for n in networks)
        self.points, self.radii = len(references[0]), len(references)
        self.references = [r for row in references for r in row]
        self.spots = [Spot(r) for r in self.references]
        self.verdicts: list[Verdict | None] = [None] * len(self.spots)
        self.asked_in_vain = set[int]()
        self.attacked = False  # whether anybody attacks batches

    def stop(self) -> bool:
        return self.left() <= 0

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

    def batch(self, todo: Sequence[int]) -> Batch:
        """These questions in the oracle's compact form."""
        labelled = {self.references[k].label: self.references[k] for k in todo}
        labels = list(labelled)
        conditions = tuple(average_condition(self.networks, r) for r in labelled.values())
        every = tuple(range(len(self.networks)))
        atoms = [Atom(every, i, labels.index(self.references[k].label)) for i, k in enumerate(todo)]
        domains = tuple(self.spots[k].domain for k in todo)
        return Batch(self.networks, domains, conditions, tuple(atoms), tuple((i,) for i in range(len(todo))))

    def settle(self, k: int, verdict: Verdict, source: str, witness: Witness | None = None) -> None:
        """Keep an answer, here for all radii that it serves, in the ledger for its own."""
        x = None if witness is None else witness.x
        timeout = 0.0 if verdict.decided else self.oracle.timeout
        self.ledger.add([Fact(self.key, self.spots[k].sha256, verdict, source, x, timeout)])
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
        known: dict[int, tuple[Float32, str]] = {}
        for k, spot in enumerate(self.spots):
            fact = self.ledger.get(self.key, spot.sha256, self.oracle.timeout)
            if fact is not None and fact.verdict is Verdict.SAT:
                if fact.x is not None:  # replayed: it may be of an earlier version
                    known[k] = fact.x, fact.source
            elif fact is not None and fact.verdict is Verdict.UNSAT:
                self.spread(k, fact.verdict)
            elif fact is not None:
                self.asked_in_vain.add(k)
        self._replay(known)

    def clean(self) -> None:
        """The points themselves."""
        self._replay({k: (self.references[k].x.astype(np.float32), "clean") for k in self.open(0)})

    def _replay(self, points: Mapping[int, tuple[Float32, str]]) -> None:
        if not points:
            return
        inputs = [(i, x) for i, (x, _) in enumerate(points.values())]
        seen = self.oracle.replay(self.batch(list(points)), inputs)
        for (k, (_, source)), found in zip(points.items(), seen, strict=True):
            for witness in found.witnesses.values():
                self.settle(k, Verdict.SAT, source, witness)

    def attack(self) -> None:
        """Attacks on all points of a radius together, from the smallest radius on."""
        for e in range(self.radii):
            todo = self.open(e)
            if todo and not self.stop():
                seconds = min(self.left(), ATTACK_SECONDS * len(todo))
                answers = self.oracle.attack(self.batch(todo), seconds)
                self.attacked = self.attacked or any(a.verifier for a in answers)
                self._decided(todo, answers)

    def bound(self) -> None:
        """Bounds in batches, from the largest radius on."""
        for e in range(self.radii - 1, -1, -1):
            todo = self.open(e)
            if todo and not self.stop():
                self._decided(todo, self.oracle.bound(self.batch(todo), self.left()))

    def _decided(self, todo: Sequence[int], answers: Sequence[Answer]) -> None:
        for k, answer in zip(todo, answers, strict=True):
            if answer.verdict.decided:
                self.settle(k, answer.verdict, answer.verifier, answer.witness)

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
        queries = [average_query(self.networks, self.references[k]) for k in todo]
        for index, answer in self.oracle.ask_many(queries, attacked=self.attacked):
            if answer.verdict is Verdict.CANCELLED:
                return False
            self.settle(todo[index], answer.verdict, answer.verifier, answer.witness)
            if self.stop():
                return False
        return True
