"""Questions about sets of networks at points, decided through the oracle: recalled, attacked, bounded, asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verifolio.errors import InputError, SoundnessAlarm
from verifolio.model.answer import Answer, Flag, Verdict
from verifolio.model.batch import Atom, Batch, Sighting
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import OracleLike
from verifolio.trust.referee import confirmed

from .joint import JointOptions, SimultaneousMisclassification, class_counts, dnf
from .keep import keep_query
from .lattice import Lattice, SetStatus, bits, members
from .ledger import EnsembleLedger, Fact, set_key
from .spot import Float32, Spot

SetQuestion = tuple[int, int]  # spot, set of networks


@dataclass(frozen=True, eq=False)
class Point:
    """An input to be replayed at a spot, where it came from, and the set that it should fool."""

    spot: int
    x: Float32
    source: str
    wanted: int = 0


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

    `keep` is a folder into which every question that reaches a verifier is written as VNN-LIB; `left` says how many
    seconds are left for everything. Facts go to the ledger as soon as they are known.
    """

    networks: Sequence[Network]
    spots: Sequence[Spot]
    oracle: OracleLike
    ledger: EnsembleLedger = field(default_factory=EnsembleLedger)
    joint: JointOptions = field(default_factory=JointOptions)
    keep: Path | None = None
    left: Callable[[], float] = lambda: math.inf
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        for spot in self.spots:
            class_counts(self.networks, spot.reference)
        self.sizes = [n.output_size for n in self.networks]
        self.lattices = [Lattice(len(self.networks)) for _ in self.spots]
        self.gaps: dict[SetQuestion, float] = {}  # what bounds said, positive where they prove safety
        self.attacked = False  # whether anybody attacks batches
        self._clean: list[tuple[int, Float32]] = []
        self._tried: dict[SetQuestion, frozenset[int]] = {}
        self.property = SimultaneousMisclassification(self.joint)
        hashes = [n.sha256 for n in self.networks]
        if len(set(hashes)) < len(hashes):
            again = next(n for k, n in enumerate(self.networks) if n.sha256 in hashes[:k])
            raise InputError("ensemble", "different networks", f"{again.path.name} again", "leave it out")
        self.recall()

    def stop(self) -> bool:
        """Whether the time for everything is over."""
        return self.left() <= 0

    def key(self, mask: int) -> str:
        return set_key(self.networks[c].sha256 for c in members(mask))

    def status(self, spot: int, mask: int) -> SetStatus:
        return self.lattices[spot].status(mask)

    def open(self, questions: Sequence[SetQuestion]) -> list[SetQuestion]:
        return [(j, mask) for j, mask in questions if self.status(j, mask) is SetStatus.OPEN]

    def batch(self, questions: Sequence[SetQuestion]) -> Batch:
        """The questions in the oracle's compact form; every network at every spot in it is an atom."""
        places = {j: k for k, j in enumerate(dict.fromkeys(j for j, _ in questions))}
        conditions: dict[tuple[int, int], int] = {}
        atoms = []
        for j, k in places.items():
            label = self.spots[j].reference.label
            for c, size in enumerate(self.sizes):
                atoms.append(Atom((c,), k, conditions.setdefault((size, label), len(conditions))))
        inputs, count = len(self.spots[0].lower), len(self.networks)
        return Batch(
            tuple(self.networks),
            tuple(self.spots[j].domain for j in places),
            tuple(dnf((size,), label, inputs) for size, label in conditions),
            tuple(atoms),
            tuple(tuple(places[j] * count + c for c in members(mask)) for j, mask in questions),
        )

    def see(self, points: Sequence[tuple[int, Float32]]) -> list[tuple[int, Float32] | None]:
        """By place the set of networks that each point fools, and the point as it was replayed inside its ball."""
        spots = list(dict.fromkeys(j for j, _ in points))
        batch = self.batch([(j, 0) for j in spots])
        where = {j: k for k, j in enumerate(spots)}
        found = self.oracle.replay(batch, [(where[j], x) for j, x in points])
        return [self._seen(s) for s in found]

    def _seen(self, found: Sighting) -> tuple[int, Float32] | None:
        count = len(self.networks)
        if found.point is None:
            return None
        self.tally.numerical += sum(Flag.FLOAT_ONLY in w.flags for w in found.witnesses.values())
        return sum(1 << (atom % count) for atom in found.witnesses), found.point

    def recall(self) -> None:
        """Take over whatever the ledger knows about these networks at these spots."""
        places = {spot.sha256: j for j, spot in enumerate(self.spots)}
        bit = {network.sha256: 1 << c for c, network in enumerate(self.networks)}
        points = []
        for fact in list(self.ledger):
            hashes = fact.networks.split("+")
            if fact.spot not in places or not all(h in bit for h in hashes):
                continue
            j, mask = places[fact.spot], sum(bit[h] for h in hashes)
            self.tally.stored += 1
            if fact.verdict is Verdict.UNSAT:
                self.lattices[j].add_proof(mask)
            elif fact.verdict is Verdict.SAT and fact.x is not None:
                points.append(Point(j, fact.x, fact.source, mask))
            elif fact.timeout >= self.oracle.timeout:
                self.lattices[j].add_unknown(mask)
        self.learn(points)

    def learn(self, points: Sequence[Point]) -> list[bool]:
        """Replay points on every network; says of each whether it fools all that was wanted."""
        if not points:
            return []
        seen = self.see([(p.spot, p.x) for p in points])
        return [self._learn(p, s) for p, s in zip(points, seen, strict=True)]

    def _learn(self, point: Point, seen: tuple[int, Float32] | None) -> bool:
        if seen is None:
            return False
        pattern, x = seen
        if self.adopt(point.spot, pattern, x):
            self.ledger.add([self._fact(point.spot, pattern, Verdict.SAT, point.source, x)])
        return point.wanted & ~pattern == 0

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
            found = self.oracle.judge(self.query(spot, mask), point)
            if found is not None and confirmed(found):
                names = ", ".join(self.networks[c].path.name for c in members(mask))
                raise SoundnessAlarm(f"a proof that {names} cannot be fooled together meets a witness")
            self.tally.numerical += 1

    def _fact(self, spot: int, mask: int, verdict: Verdict, source: str, x: Float32 | None = None) -> Fact:
        timeout = 0.0 if verdict.decided else self.oracle.timeout
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
        if not self._clean:
            points = [spot.reference.x.astype(np.float32) for spot in self.spots]
            seen = self.see(list(enumerate(points)))
            self._clean = [s or (0, x) for s, x in zip(seen, points, strict=True)]
        return self._clean[spot]

    def attack(self, questions: Sequence[SetQuestion]) -> None:
        """Attacks on the open questions, started from what fools parts of the set already.

        What was attacked from the same points before is left out: it would end in the same way.
        """
        todo = []
        for j, mask in self.open(questions):
            known = frozenset(s for s in self.lattices[j].fooled if s & mask)
            if self._tried.get((j, mask)) != known:
                self._tried[j, mask] = known
                todo.append((j, mask))
        if not todo or self.stop():
            return
        starts = {k: self._starts(j, mask) for k, (j, mask) in enumerate(todo)}
        answers = self.oracle.attack(self.batch(todo), self.left(), starts)
        self.attacked = self.attacked or any(a.verifier for a in answers)
        pairs = zip(todo, answers, strict=True)
        points = [Point(j, a.witness.x, a.verifier, mask) for (j, mask), a in pairs if a.witness is not None]
        self.tally.attacked += sum(self.learn(points))

    def _starts(self, spot: int, mask: int) -> list[Float32]:
        """The point itself, and up to two known points that fool most of the set."""
        known = self.lattices[spot].fooled
        ranked = sorted(known, key=lambda s: -(s & mask).bit_count())
        centre = self.spots[spot].reference.x.astype(np.float32)
        return [centre, *(known[s] for s in ranked[:2] if s & mask)]

    def bound(self, questions: Sequence[SetQuestion]) -> None:
        """Proofs by bounds alone: first for every single network involved, then for what stays open."""
        singles = {(j, bit) for j, mask in self.open(questions) for bit in bits(mask)}
        self._bound(self.open(sorted(singles)))
        self._bound([(j, mask) for j, mask in self.open(questions) if mask.bit_count() > 1])

    def _bound(self, questions: Sequence[SetQuestion]) -> None:
        todo = [q for q in dict.fromkeys(questions) if q not in self.gaps]
        if not todo or self.stop():
            return
        answers = self.oracle.bound(self.batch(todo), self.left())
        facts = []
        for (j, mask), answer in zip(todo, answers, strict=True):
            self.gaps[j, mask] = -math.inf if answer.bound is None else answer.bound
            if answer.verdict is Verdict.UNSAT:
                self.lattices[j].add_proof(mask)
                facts.append(self._fact(j, mask, Verdict.UNSAT, answer.verifier))
        self.tally.bounded += len(facts)
        self.ledger.add(facts)

    def query(self, spot: int, mask: int) -> Query:
        chosen = [self.networks[c] for c in members(mask)]
        return self.property.query(chosen, self.spots[spot].reference)

    def verify(self, questions: Sequence[SetQuestion], timeout: float | None = None) -> None:
        """Ask the oracle about what is still open after another attack, smaller sets first."""
        self.attack(questions)
        todo = sorted(self.open(questions), key=lambda q: q[1].bit_count())
        asked: list[SetQuestion] = []
        queries = self._queries(todo, asked)
        for index, answer in self.oracle.ask_many(queries, timeout, attacked=self.attacked):
            j, mask = asked[index]
            self._take(j, mask, answer)
            if self.stop():
                return

    def _queries(self, todo: Sequence[SetQuestion], asked: list[SetQuestion]) -> Iterator[Query]:
        """Queries one by one, leaving out what has been decided meanwhile."""
        for j, mask in todo:
            if self.status(j, mask) is not SetStatus.OPEN or self.stop():
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
        if answer.witness is not None and all(self.learn([Point(spot, answer.witness.x, name, mask)])):
            self.tally.verified += 1
            return
        if answer.verdict is not Verdict.CANCELLED:
            self.tally.undecided += 1
            self.lattices[spot].add_unknown(mask)
            self.ledger.add([self._fact(spot, mask, Verdict.UNKNOWN, name)])

    def decide(self, questions: Sequence[SetQuestion]) -> None:
        """Everything in order of price: attacks, bounds, queries."""
        self.attack(questions)
        self.bound(questions)
        self.verify(questions)
