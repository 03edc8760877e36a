"""Where questions about sets of networks at points are decided: recalled, attacked, bounded, verified."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verifolio.errors import InputError, SoundnessAlarm
from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.solve.oracle import Oracle
from verifolio.trust.audit import SHARE
from verifolio.trust.conflict import meet_proof
from verifolio.trust.referee import confirmed, judge_counterexample

from .falsify import Falsifier, Method, Plan, Task
from .joint import JointOptions, SimultaneousMisclassification
from .keep import keep_query
from .lattice import Lattice, Status, bits, members
from .ledger import Fact, Ledger, set_key
from .proofs import Prover
from .replay import Float32, Referee, Spot

Question = tuple[int, int]  # spot, set of networks


@dataclass
class Tally:
    """How questions were decided."""

    clean: int = 0
    attacked: int = 0
    bounded: int = 0
    verified: int = 0
    stored: int = 0
    undecided: int = 0
    numerical: int = 0


@dataclass(eq=False)
class Survey:
    """Networks, spots, and what is known about every set at every spot.

    `keep` is a folder into which every question that reaches a verifier is written as VNN-LIB. Facts go to
    the ledger as soon as they are known.
    """

    networks: Sequence[Network]
    spots: Sequence[Spot]
    oracle: Oracle
    ledger: Ledger = field(default_factory=Ledger)
    plan: Plan = field(default_factory=Plan)
    joint: JointOptions = field(default_factory=JointOptions)
    keep: Path | None = None
    stop: Callable[[], bool] = lambda: False
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.referee = Referee(self.networks)
        for spot in self.spots:
            self.referee.check(spot.reference)
        self.lattices = [Lattice(len(self.networks)) for _ in self.spots]
        self.falsifier = Falsifier(self.networks, self.plan)
        self.prover = Prover(self.networks)
        self.gaps: dict[Question, float] = {}  # what bounds said, positive where they prove safety
        self._clean: dict[int, tuple[int, Float32]] = {}
        self._tried: dict[tuple[int, int, Method], frozenset[int]] = {}
        self.property = SimultaneousMisclassification(self.joint)
        hashes = [n.sha256 for n in self.networks]
        if len(set(hashes)) < len(hashes):
            again = next(n for k, n in enumerate(self.networks) if n.sha256 in hashes[:k])
            raise InputError("ensemble", "different networks", f"{again.path.name} again", "leave it out")
        self.recall()

    def key(self, mask: int) -> str:
        return set_key(self.networks[c].sha256 for c in members(mask))

    def status(self, spot: int, mask: int) -> Status:
        return self.lattices[spot].status(mask)

    def open(self, questions: Sequence[Question]) -> list[Question]:
        return [(j, mask) for j, mask in questions if self.status(j, mask) is Status.OPEN]

    def recall(self) -> None:
        """Take over whatever the ledger knows about these networks at these spots."""
        places = {spot.sha256: j for j, spot in enumerate(self.spots)}
        bit = {network.sha256: 1 << c for c, network in enumerate(self.networks)}
        for fact in list(self.ledger):
            hashes = fact.networks.split("+")
            if fact.spot not in places or not all(h in bit for h in hashes):
                continue
            j, mask = places[fact.spot], sum(bit[h] for h in hashes)
            self.tally.stored += 1
            if fact.verdict is Verdict.UNSAT:
                self.lattices[j].add_proof(mask)
            elif fact.verdict is Verdict.SAT and fact.x is not None:
                self.learn(j, fact.x, fact.source, mask)
            elif fact.timeout >= self.oracle.settings.timeout:
                self.lattices[j].add_unknown(mask)

    def learn(self, spot: int, x: Float32, source: str, wanted: int = 0) -> bool:
        """Replay a point on every network; says whether it fools all that was wanted."""
        seen = self.referee.seen(self.spots[spot], x)
        if seen is None:
            return False
        pattern, point = seen
        if self.adopt(spot, pattern, point):
            self.ledger.add([self._fact(spot, pattern, Verdict.SAT, source, point)])
        return wanted & ~pattern == 0

    def adopt(self, spot: int, pattern: int, point: Float32) -> bool:
        """Take over a point of the ball that was replayed and fools exactly `pattern`; says whether it is news."""
        lattice = self.lattices[spot]
        false = [s for s in lattice.safe if s & ~pattern == 0]
        if false:
            self._contradicted(spot, false, point)
        return lattice.add_witness(pattern, point)

    def _contradicted(self, spot: int, proofs: list[int], point: Float32) -> None:
        """A witness meets a proof: an alarm if exact arithmetic confirms it, a tie of rounding otherwise."""
        for mask in proofs:
            found = judge_counterexample(self.query(spot, mask), point)
            if isinstance(found, Witness) and confirmed(found):
                names = ", ".join(self.networks[c].path.name for c in members(mask))
                raise SoundnessAlarm(f"a proof that {names} cannot be fooled together meets a witness")
            self.tally.numerical += 1

    def _fact(self, spot: int, mask: int, verdict: Verdict, source: str, x: Float32 | None = None) -> Fact:
        timeout = 0.0 if verdict.decided else self.oracle.settings.timeout
        return Fact(self.key(mask), self.spots[spot].sha256, verdict, source, x, timeout)

    def look(self) -> None:
        """What the points themselves fool, without any attack."""
        for j in range(len(self.spots)):
            pattern, x = self.clean(j)
            if self.adopt(j, pattern, x):
                self.ledger.add([self._fact(j, pattern, Verdict.SAT, "clean", x)])
            self.tally.clean += bool(self.lattices[j].fooled)

    def clean(self, spot: int) -> tuple[int, Float32]:
        """What the point itself fools, and the point, replayed once; nothing where it is not in its ball."""
        if spot not in self._clean:
            x = self.spots[spot].reference.x.astype(np.float32)
            self._clean[spot] = self.referee.seen(self.spots[spot], x) or (0, x)
        return self._clean[spot]

    def attack(self, questions: Sequence[Question], method: Method = "search") -> None:
        """Gradient attacks on the open questions, started from what fools parts of the set already.

        What was attacked from the same points before is left out: it would end in the same way.
        """
        todo = []
        for j, mask in self.open(questions):
            known = frozenset(s for s in self.lattices[j].fooled if s & mask)
            if self._tried.get((j, mask, method)) != known:
                self._tried[j, mask, method] = known
                todo.append((j, mask))
        if not todo:
            return
        tasks = [Task(self.spots[j], mask, self._starts(j, mask)) for j, mask in todo]
        for (j, mask), x in zip(todo, self.falsifier.attack(tasks, method, self.stop), strict=True):
            if x is not None and self.learn(j, x, method, mask):
                self.tally.attacked += 1

    def _starts(self, spot: int, mask: int) -> tuple[Float32, ...]:
        """Up to two known points that fool most of the set."""
        known = self.lattices[spot].fooled
        ranked = sorted(known, key=lambda s: -(s & mask).bit_count())
        return tuple(known[s] for s in ranked[:2] if s & mask)

    def bound(self, questions: Sequence[Question]) -> None:
        """Proofs by bounds alone: first for every single network involved, then for what stays open."""
        singles = {(j, bit) for j, mask in self.open(questions) for bit in bits(mask)}
        self._bound(self.open(sorted(singles)))
        self._bound([(j, mask) for j, mask in self.open(questions) if mask.bit_count() > 1])

    def _bound(self, questions: Sequence[Question]) -> None:
        by_mask: dict[int, list[int]] = defaultdict(list)
        for j, mask in questions:
            if (j, mask) not in self.gaps:
                by_mask[mask].append(j)
        for mask, places in by_mask.items():
            began = time.monotonic()
            found = self.prover.gaps([self.spots[j] for j in places], mask, self.stop)
            self.gaps.update({(j, mask): gap for j, gap in zip(places, found, strict=True)})
            done = [j for j, gap in zip(places, found, strict=True) if gap > 0]
            done = self._unrefuted(done, mask, SHARE * (time.monotonic() - began))
            for j in done:
                self.lattices[j].add_proof(mask)
            self.tally.bounded += len(done)
            self.ledger.add([self._fact(j, mask, Verdict.UNSAT, "bounds") for j in done])

    def _unrefuted(self, places: Sequence[int], mask: int, seconds: float) -> list[int]:
        """The spots at which a second look does not refute what bounds say about a set; an alarm if one does."""
        wrong = self.prover.refuting_candidates([self.spots[j] for j in places], mask, seconds)
        for k, x in wrong.items():
            query = self.query(places[k], mask)
            found = judge_counterexample(query, x)
            if isinstance(found, Witness):
                meet_proof(query, found, self.prover.name(self.spots[places[k]], mask))
                self.tally.numerical += 1
        return [j for k, j in enumerate(places) if k not in wrong]

    def query(self, spot: int, mask: int) -> Query:
        chosen = [self.networks[c] for c in members(mask)]
        return self.property.query(chosen, self.spots[spot].reference)

    def verify(self, questions: Sequence[Question], timeout: float | None = None) -> None:
        """Ask the oracle about what is still open after another attack, smaller sets first."""
        self.attack(questions)
        todo = sorted(self.open(questions), key=lambda q: q[1].bit_count())
        asked: list[Question] = []
        for index, answer in self.oracle.ask_many(self._queries(todo, asked), timeout, attacked=True):
            j, mask = asked[index]
            self._take(j, mask, answer)
            if self.stop():
                return

    def _queries(self, todo: Sequence[Question], asked: list[Question]) -> Iterator[Query]:
        """Queries one by one, leaving out what has been decided meanwhile."""
        for j, mask in todo:
            if self.status(j, mask) is not Status.OPEN or self.stop():
                continue
            asked.append((j, mask))
            query = self.query(j, mask)
            if self.keep is not None:
                chosen = [self.networks[c] for c in members(mask)]
                keep_query(self.keep, f"point{j}-set{mask}", chosen, self.spots[j].reference)
            yield query

    def _take(self, spot: int, mask: int, answer: Answer) -> None:
        name = answer.verifier or "oracle"
        if answer.verdict is Verdict.UNSAT:
            self.tally.verified += 1
            self.lattices[spot].add_proof(mask)
            self.ledger.add([self._fact(spot, mask, Verdict.UNSAT, name)])
            return
        if answer.witness is not None and self.learn(spot, answer.witness.x, name, mask):
            self.tally.verified += 1
            self.tally.numerical += int(Flag.FLOAT_ONLY in answer.flags)
            return
        if answer.verdict is not Verdict.CANCELLED:
            self.tally.undecided += 1
            self.lattices[spot].add_unknown(mask)
            self.ledger.add([self._fact(spot, mask, Verdict.UNKNOWN, name)])

    def decide(self, questions: Sequence[Question], attacked: bool = True) -> None:
        """Everything in order of price: attacks, bounds, the oracle."""
        if attacked:
            self.attack(questions)
        self.bound(questions)
        self.verify(questions)
