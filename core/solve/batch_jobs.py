"""Batches in a worker: attacks and bounds on many questions, and points that are judged; all refereed here."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import VerifolioError
from verifolio.model.answer import Flag, Witness
from verifolio.model.batch import Batch, Sighting
from verifolio.model.joint import Joint
from verifolio.model.problem import Problem, condition_key
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.choice import Choice, build
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.verifier import Verifier
from verifolio.run import Link
from verifolio.run.budget import Budget
from verifolio.solve.messages import FalseProof, Hit, Margin
from verifolio.trust.audit import SHARE, refuting_candidates
from verifolio.trust.conflict import BOUNDER
from verifolio.trust.referee import judge_counterexample, snap

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
RESERVE = 0.05  # of the time is kept for judging and sending
CHUNK = 64  # questions bounded between two looks at the clock
Judged = tuple[tuple[Network, ...], str, str, bytes]  # networks, domain, condition, point
REMEMBERED = 10_000  # judgements, because what an attack found is mostly replayed next
_JUDGED: dict[Judged, Witness | None] = {}


@dataclass(frozen=True, eq=False)
class BatchTask:
    """Questions, who works on them, and points to begin with by question."""

    batch: Batch
    verifier: Choice | Verifier
    starts: Mapping[int, Sequence[Float32]] = field(default_factory=dict)
    seed: int = 0
    memory: int | None = None
    cores: int = 1
    device: str = "cpu"

    def context(self, link: Link, **more: object) -> BatchContext:
        budget = Budget(link.remaining() * (1 - RESERVE), self.memory, self.cores, stop=link.cancelled)
        return BatchContext(budget, self.seed, self.device, **more)  # type: ignore[arg-type]


class BatchReferee:
    """Judges points by the original files and the exact bounds; a point is judged once per process and atom."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._questions: dict[int, Query] = {}
        self._conditions: dict[int, str] = {}

    def snap(self, domain: int, x: NDArray[np.floating]) -> Float32 | None:
        """The float32 point of a domain nearest to x, if there is one near it."""
        ball = self.batch.domains[domain].ball
        return snap(self.batch.region(domain), np.asarray(x, np.float64).ravel(), ball)

    def judge(self, atom: int, point: Float32) -> Witness | None:
        key = self._key(atom, point)
        if key not in _JUDGED:
            if atom not in self._questions:
                self._questions[atom] = self.batch.question(atom)
            found = judge_counterexample(self._questions[atom], point)
            while len(_JUDGED) >= REMEMBERED:
                _JUDGED.pop(next(iter(_JUDGED)), None)
            _JUDGED[key] = found if isinstance(found, Witness) else None
        return _JUDGED[key]

    def _key(self, atom: int, point: Float32) -> Judged:
        """Everything that decides a judgement, by its content."""
        a = self.batch.atoms[atom]
        if a.condition not in self._conditions:
            self._conditions[a.condition] = condition_key(self.batch.conditions[a.condition])
        networks = tuple(self.batch.networks[n] for n in a.networks)
        return networks, self.batch.domains[a.domain].sha256, self._conditions[a.condition], point.tobytes()

    def together(self, entry: int, x: NDArray[np.floating]) -> Witness | None:
        """One point that satisfies all atoms of a question, or None."""
        point = self.snap(self.batch.atoms[self.batch.entries[entry][0]].domain, x)
        found: list[Witness] = []
        for atom in self.batch.entries[entry] if point is not None else ():
            witness = None if point is None else self.judge(atom, point)
            if witness is None:
                return None
            found.append(witness)
        return combined(found) if found else None


def combined(found: Sequence[Witness]) -> Witness:
    """The witness of several atoms at one point: all outputs, and what is to be known of any."""
    if len(found) == 1:
        return found[0]
    flags: frozenset[Flag] = frozenset().union(*(w.flags for w in found))
    margins = tuple(m for w in found for m in w.margins)
    return Witness(found[0].x, np.concatenate([w.y for w in found]), margins, flags)


def run_attack_batch(task: BatchTask, link: Link) -> dict[int, Witness] | VerifolioError:
    """The function a worker calls: witnesses by question."""
    referee, found = BatchReferee(task.batch), dict[int, Witness]()

    try:
        verifier = build(task.verifier)
        questions = {k: task.batch.joint(k) for k in range(len(task.batch))}
        willing = [k for k, q in questions.items() if not _refused(verifier, q)]

        def offer(i: int, x: Array) -> bool:
            k = willing[i]
            witness = referee.together(k, x)
            if witness is not None and k not in found:
                found[k] = witness
                link.send(Hit(witness, entry=k))
            return witness is not None

        starts = {i: [x.astype(np.float64) for x in task.starts.get(k, ())] for i, k in enumerate(willing)}
        verifier.attack_many([questions[k] for k in willing], task.context(link, offer=offer, starts=starts))
    except VerifolioError as error:
        return error
    return found


def _refused(verifier: Verifier, question: Joint) -> bool:
    return any(verifier.refuses(p) is not None for p in question.parts)


def run_bound_batch(task: BatchTask, link: Link) -> dict[int, float] | VerifolioError:
    """The function a worker calls: by question a lower bound of how far it is from a counterexample.

    A positive one is a proof that a second look has not refuted.
    """
    found: dict[int, float] = {}
    try:
        verifier, context = build(task.verifier), task.context(link)
        for places in _chunks(task.batch):
            if context.budget.expired():
                break
            problems = {k: p for k in places if (p := task.batch.joint(k).problem) is not None}
            problems = {k: p for k, p in problems.items() if verifier.refuses(p) is None}
            for k, margin in _margins(task, verifier, problems, context, link).items():
                found[k] = margin
                link.send(Margin(k, margin))
    except VerifolioError as error:
        return error
    return found


def _chunks(batch: Batch) -> Iterator[list[int]]:
    """Places of questions about the same networks, so many at a time."""
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = defaultdict(list)
    for k, atoms in enumerate(batch.entries):
        groups[tuple(batch.atoms[a].networks for a in atoms)].append(k)
    for places in groups.values():
        for start in range(0, len(places), CHUNK):
            yield places[start : start + CHUNK]


def _margins(
    task: BatchTask, verifier: Verifier, problems: Mapping[int, Problem], context: BatchContext, link: Link
) -> dict[int, float]:
    """Bounds of some questions; a claimed proof that a point refutes is told to the driver, and not kept."""
    if not problems:
        return {}
    began = time.monotonic()
    bounds = verifier.bound_many(list(problems.values()), context)
    pairs = zip(problems.items(), bounds, strict=True)
    found = {k: b.least_margin(p) for (k, p), b in pairs}
    proved = [k for k, margin in found.items() if margin > 0]
    wrong = refuting_candidates([problems[k] for k in proved], SHARE * (time.monotonic() - began))
    for i, x in wrong.items():
        found[proved[i]] = -math.inf
        witness = BatchReferee(task.batch).together(proved[i], x)
        if witness is not None:
            link.send(FalseProof(witness, True, proved[i], f"{BOUNDER}{verifier.name}"))
    return found


@dataclass(frozen=True, eq=False)
class NeuronTask:
    """A query whose neurons are bounded, as tightly as the verifier's bounds alone can."""

    query: Query
    verifier: Choice | Verifier
    cores: int = 1
    device: str = "cpu"


def run_neuron_bounds(task: NeuronTask, link: Link) -> Bounds | VerifolioError | None:
    """The function a worker calls: bounds of the query's only input region."""
    try:
        problems, verifier = task.query.problems, build(task.verifier)
        if len(problems) != 1 or verifier.refuses(problems[0]) is not None:
            return None
        budget = Budget(link.remaining() * (1 - RESERVE), None, task.cores, stop=link.cancelled)
        return verifier.bound_many(problems, BatchContext(budget, device=task.device, effort=2))[0]
    except VerifolioError as error:
        return error


@dataclass(frozen=True, eq=False)
class ReplayTask:
    """Points, each with the number of the domain that it is a point of."""

    batch: Batch
    points: tuple[tuple[int, NDArray[np.floating]], ...]


def run_replay_batch(task: ReplayTask, link: Link) -> list[Sighting] | VerifolioError:
    """The function a worker calls: every point judged by all atoms of its domain."""
    referee, atoms = BatchReferee(task.batch), defaultdict[int, list[int]](list)
    for k, atom in enumerate(task.batch.atoms):
        atoms[atom.domain].append(k)
    try:
        return [_sighting(referee, domain, atoms[domain], x) for domain, x in task.points]
    except VerifolioError as error:
        return error


def _sighting(referee: BatchReferee, domain: int, atoms: Sequence[int], x: NDArray[np.floating]) -> Sighting:
    point = referee.snap(domain, x)
    if point is None:
        return Sighting(None)
    return Sighting(point, {atom: w for atom in atoms if (w := referee.judge(atom, point)) is not None})
