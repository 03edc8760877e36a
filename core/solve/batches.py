"""Batches as the driver sees them: one job each, whose refereed findings become answers that name who found what."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import VerifolioError
from verifolio.model.answer import Answer, Attempt, Verdict, Witness
from verifolio.model.batch import Batch, Sighting
from verifolio.model.query import Query
from verifolio.model.radius import RadiusBounds, RadiusStart
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.manager import Plugins
from verifolio.portfolio.tree import Member, Portfolio
from verifolio.run import End, Job, Limits, Link, Result
from verifolio.run.settings import Settings
from verifolio.solve.batch_jobs import (
    BatchTask,
    NeuronTask,
    ReplayTask,
    run_attack_batch,
    run_bound_batch,
    run_neuron_bounds,
    run_replay_batch,
)
from verifolio.solve.computation import Computation, Computed, run_computation
from verifolio.solve.judgement import JudgeTask, run_judge
from verifolio.solve.messages import FalseProof, Hit, Margin, ProvedRadius
from verifolio.solve.radii import RadiusTask, run_radii
from verifolio.solve.walk import VERDICTS, end_reason
from verifolio.solve.warm import strip
from verifolio.trust.conflict import meet_proof
from verifolio.trust.referee import Rejection, in_ball

Float32 = NDArray[np.float32]
Starts = Mapping[int, Sequence[Float32]]
T = TypeVar("T")
P = ParamSpec("P")
Run = Callable[[Job], Result | None]


class Batches:
    """Batch jobs with one portfolio and one set of limits; `run` submits a job and waits for its result."""

    def __init__(self, portfolio: Portfolio, settings: Settings, run: Run, plugins: Plugins) -> None:
        self.portfolio, self.settings, self.run, self.plugins = portfolio, settings, run, plugins

    def attack(self, batch: Batch, seconds: float, starts: Starts) -> list[Answer]:
        member = self.portfolio.able("attack", self.plugins)
        if member is None or not len(batch):
            return [_nobody("attacks")] * len(batch)
        result = self._submit(run_attack_batch, self._task(batch, member, starts), batch, seconds)
        found = {m.entry: m.witness for m in result.messages if isinstance(m, Hit)}
        found |= result.value if isinstance(result.value, dict) else {}
        valid = {k: w for k, w in found.items() if _valid(batch, k, w)}
        return [self._answer(member, result, len(batch), valid.get(k)) for k in range(len(batch))]

    def bound(self, batch: Batch, seconds: float) -> list[Answer]:
        member = self.portfolio.able("bound", self.plugins)
        if member is None or not len(batch):
            return [_nobody("bounds")] * len(batch)
        result = self._submit(run_bound_batch, self._task(batch, member, {}), batch, seconds)
        for m in result.messages:
            if isinstance(m, FalseProof):
                meet_proof(batch.query(m.entry), m.witness, m.prover)
        margins = {m.entry: m.value for m in result.messages if isinstance(m, Margin)}
        return [self._answer(member, result, len(batch), None, margins.get(k)) for k in range(len(batch))]

    def neurons(self, query: Query, seconds: float) -> Bounds | None:
        member = self.portfolio.able("bound", self.plugins)
        if member is None:
            return None
        task = NeuronTask(strip(query), member.verifier, self.settings.cores, self.settings.device)
        affinity = "".join(n.sha256 for n in query.networks)
        value = _done(self.run(self._job(run_neuron_bounds, task, seconds, affinity))).value
        return value if isinstance(value, Bounds) else None

    def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        task = Computation(function, args, kwargs)
        result = _done(self.run(self._job(run_computation, task, math.inf, task.affinity)))
        if not isinstance(result.value, Computed):
            name = getattr(function, "__name__", "a value")
            raise VerifolioError(f"{name} could not be computed: {end_reason(result, self.settings)}")
        value: T = result.value.value
        return value

    def judge(self, query: Query, x: NDArray[np.floating], seconds: float) -> Witness | None:
        affinity = "".join(n.sha256 for n in query.networks)
        task = JudgeTask(strip(query), np.asarray(x))
        result = _done(self.run(self._job(run_judge, task, seconds, affinity)))
        if isinstance(result.value, Rejection):
            return None
        if not isinstance(result.value, Witness):  # it must not pass for a point that is none
            why = end_reason(result, self.settings)
            raise VerifolioError(f"{query.name or 'a point'}: it could not be judged: {why}")
        return result.value

    def replay(
        self, batch: Batch, points: Sequence[tuple[int, NDArray[np.floating]]], seconds: float
    ) -> list[Sighting]:
        if not points:
            return []
        result = self._submit(run_replay_batch, ReplayTask(batch, tuple(points)), batch, seconds)
        if not isinstance(result.value, list):  # it must not pass for points that satisfy nothing
            raise VerifolioError(f"points could not be replayed: {end_reason(result, self.settings)}")
        return result.value

    def radii(
        self, starts: Sequence[RadiusStart], tolerance: float, seconds: float, radii: int, again: bool
    ) -> list[RadiusBounds]:
        attack, closest = (
            self.portfolio.able("attack", self.plugins),
            self.portfolio.able("approach", self.plugins),
        )
        bounder = self.portfolio.able("bound", self.plugins) if radii else None
        attacker = closest or attack
        if attacker is None and bounder is None:
            return [RadiusBounds(s.lower, reason="nobody here attacks or bounds many radii") for s in starts]
        task = RadiusTask(
            tuple(starts),
            tolerance,
            None if attacker is None else attacker.verifier,
            None if bounder is None else bounder.verifier,
            closest is not None,
            attack is not None and attack is attacker,
            self.settings.cores,
            self.settings.device,
            radii,
            again,
        )
        result = self.run(self._job(run_radii, task, seconds, starts[0].around.affinity))
        names = ["" if m is None else m.name for m in (attacker, bounder)]
        return [_radius(_done(result), k, start, names, len(starts)) for k, start in enumerate(starts)]

    def _task(self, batch: Batch, member: Member, starts: Starts) -> BatchTask:
        s = self.settings
        return BatchTask(batch, member.verifier, starts, s.seed, s.memory, s.cores, s.device)

    def _submit(
        self, function: Callable[[Any, Link], Any], task: object, batch: Batch, seconds: float
    ) -> Result:
        affinity = "".join(n.sha256 for n in batch.networks)
        return _done(self.run(self._job(function, task, seconds, affinity)))

    def _job(self, function: Callable[[Any, Link], Any], task: object, seconds: float, affinity: str) -> Job:
        s, limit = self.settings, max(seconds, 0.0) if math.isfinite(seconds) else None
        return Job(function, task, Limits(limit, s.memory, s.cores, s.grace), affinity)

    def _answer(
        self, member: Member, result: Result, count: int, witness: Witness | None, margin: float | None = None
    ) -> Answer:
        """One question's answer; the job's time is divided equally between its questions."""
        verdict, reason = Verdict.UNKNOWN, ""
        if witness is not None:
            verdict = Verdict.SAT
        elif margin is not None and margin > 0:
            verdict = Verdict.UNSAT
        elif result.end is not End.DONE:
            verdict, reason = VERDICTS[result.end], end_reason(result, self.settings)
        seconds = result.seconds / count
        attempt = Attempt(member.name, verdict, reason, seconds, result.peak_memory)
        flags = frozenset() if witness is None else witness.flags
        return Answer(verdict, member.name, reason, witness, flags, seconds, margin, attempts=(attempt,))


def _nobody(what: str) -> Answer:
    return Answer(Verdict.UNKNOWN, reason=f"nobody in the portfolio {what} many questions at once")


def _done(result: Result | None) -> Result:
    """The result, where bad input is the user's to see at once."""
    if result is None:
        return Result(End.CANCELLED, detail="no result")
    if isinstance(result.value, VerifolioError):
        raise result.value
    return result


def _valid(batch: Batch, entry: int, witness: Witness) -> bool:
    """The driver's own look at the worker's numbers, against the exact bounds."""
    start = 0
    for atom in batch.entries[entry]:
        query = batch.question(atom)
        size = query.specification.output_size
        y, start = witness.y[start : start + size], start + size
        if not query.specification.check(witness.x, y, ulp=True).holds:
            return False
    ball = batch.domain(entry).ball
    return ball is None or in_ball(ball, witness.x)


def _radius(result: Result, place: int, start: RadiusStart, names: Sequence[str], count: int) -> RadiusBounds:
    """What a job came to for one input, or what it had said before it was stopped; an alarm if it was wrong."""
    for m in result.messages:
        if isinstance(m, FalseProof) and m.entry == place:
            meet_proof(start.around.query(m.radius), m.witness, m.prover)
    proved = [m.radius for m in result.messages if isinstance(m, ProvedRadius) and m.entry == place]
    near = [m.witness for m in result.messages if isinstance(m, Hit) and m.entry == place]
    reason = result.detail.splitlines()[0] if result.detail else str(result.end)
    found = RadiusBounds(max([start.lower, *proved]), near[-1] if near else None, None, reason)
    if isinstance(result.value, list):
        found = result.value[place]
    finder, prover = names
    each = result.seconds / count
    return RadiusBounds(found.lower, found.witness, found.unstable, found.reason, finder, prover, each)
