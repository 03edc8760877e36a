"""One attempt: what runs inside a worker. Rebuilds the query, runs one verifier, judges its claims."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import VerifolioError
from verifolio.model.answer import Outcome, Stats, Verdict, Witness
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.plugin.choice import Choice, build
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.verifier import Context, Verifier
from verifolio.reductions import Reduced, reduce_for
from verifolio.run import Link
from verifolio.run.budget import Budget
from verifolio.solve.sharing import SharedEvidence
from verifolio.trust.audit import SHARE, inside, refutes_exactly, refuting_candidates
from verifolio.trust.referee import Rejection, confirm, judge_counterexample, replay

Array = NDArray[np.float64]
REFUSES = "refuses: "
RESERVE = 0.05  # of the time is kept for judging and sending


@dataclass(frozen=True)
class AttemptTask:
    """Everything a worker needs; small, because networks travel as path and hash."""

    query: Query
    verifier: Choice | Verifier
    evidence: Evidence = field(default_factory=Evidence)
    seed: int = 0
    memory: int | None = None
    cores: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Found:
    """Message: a replayed counterexample; its exact evaluation may still be missing.

    `claimed`: its finder had claimed a proof, which the witness refutes.
    """

    witness: Witness
    claimed: bool = False


@dataclass(frozen=True)
class Note:
    """Message: a line for people; a warning is for everybody."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Report:
    """What one attempt came to.

    `refused`: the member did not want the problem, in any form. `distance`: where asked, the proved distance
    below which there is no counterexample. `false_proof`: the member claimed a proof, which the witness refutes.
    """

    verdict: Verdict
    reason: str = ""
    witness: Witness | None = None
    bound: float | None = None
    stats: Stats = field(default_factory=dict)
    refused: bool = False
    distance: float | None = None
    error: VerifolioError | None = None
    false_proof: bool = False


class _Keyed:
    """A query that is equal to another one of the same content."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def __hash__(self) -> int:
        return hash(self.query.sha256)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.query.sha256 == other.query.sha256


@lru_cache(maxsize=4)
def _warm(keyed: _Keyed) -> Query:
    return keyed.query


def warm_query(query: Query) -> Query:
    """The same query as this worker saw it before, with its graph and problems, or this one."""
    return _warm(_Keyed(query))


class Trial:
    """One verifier on one query."""

    def __init__(self, task: AttemptTask, link: Link) -> None:
        self.task, self.link = task, link
        self.query = warm_query(task.query)
        self.evidence = SharedEvidence(task.evidence, link)
        self.witness: Witness | None = None
        self.rejections: list[Rejection] = []
        self.false_proof = False
        self.started = time.monotonic()

    def run(self) -> Report:
        verifier = build(self.task.verifier)
        self.evidence.proves = verifier.can_prove
        problems = self.query.problems
        if not problems:
            return Report(Verdict.UNSAT, "no input region can hold a counterexample")
        open_problems = [p for p in problems if not self.evidence.refutes(p)]
        outcomes, refusal = self._decide(verifier, open_problems)
        wrong = "" if refusal else self._second_look(open_problems, outcomes)
        if wrong:
            return Report(Verdict.ERROR, wrong, stats=merge_stats(outcomes))
        if self.witness is not None:
            witness = confirm(self.query, self.witness)
            stats = merge_stats(outcomes)
            return Report(Verdict.SAT, witness=witness, stats=stats, false_proof=self.false_proof)
        if refusal:
            return Report(Verdict.UNKNOWN, f"{REFUSES}{refusal}", refused=True)
        return self._conclude(verifier, outcomes, len(open_problems))

    def _second_look(self, problems: Sequence[Problem], outcomes: Sequence[Outcome]) -> str:
        """Try to refute what was just proved; why the proof is wrong where no witness can say so."""
        if self.witness is not None or not _all_proved(outcomes, len(problems)):
            return ""
        seconds = min(SHARE * (time.monotonic() - self.started), self.link.remaining())
        last = self.evidence.candidates[-1:]
        starts = {k: x for k, p in enumerate(problems) for x in last if inside(p.domain, x)}
        for k, x in refuting_candidates(problems, seconds, starts).items():
            found = replay(self.query, x)
            if isinstance(found, Witness):
                self._refute_own(found)
                return ""
            if refutes_exactly(problems[k], x):
                return f"claimed a proof that a point refutes in exact arithmetic; {found.reason}"
        return ""

    def _decide(self, verifier: Verifier, problems: list[Problem]) -> tuple[list[Outcome], str]:
        """One outcome per problem, and why some problem was refused."""
        plans = [reduce_for(verifier.refuses, p) for p in problems]
        refusals = [p for p in plans if isinstance(p, str)]
        if refusals and (not verifier.can_falsify or len(refusals) == len(plans)):
            return [], refusals[0]
        accepted = [p for p in plans if not isinstance(p, str)]
        if accepted and not refusals and all(len(p) == 1 and not p[0].steps for p in accepted):
            return self._run_native(verifier, [p[0] for p in accepted]), ""
        outcomes = []
        for parts in accepted:
            outcomes.append(self._run_parts(verifier, parts))
            if self.witness is not None or self.link.cancelled():
                break
        return outcomes, refusals[0] if refusals else ""

    def _run_native(self, verifier: Verifier, plans: Sequence[Reduced]) -> list[Outcome]:
        """All problems through `run_many`; what follows a rejected point is tried again."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(plans) and not self.link.cancelled():
            rest = plans[len(outcomes) :]
            got = verifier.run_many([p.problem for p in rest], self.context(rest[0]))[: len(rest)]
            outcomes += [self._examine(p, o) for p, o in zip(rest, got, strict=False)]
            if self.witness is not None or not got:
                break
        return outcomes

    def _run_parts(self, verifier: Verifier, parts: Sequence[Reduced]) -> Outcome:
        """The problems that replace one problem: it is refuted if all of them are."""
        outcomes: list[Outcome] = []
        for part in parts:
            outcomes.append(self._examine(part, verifier.run(part.problem, self.context(part))))
            if self.witness is not None:
                return outcomes[-1]
        undecided = [o for o in outcomes if o.verdict is not Verdict.UNSAT]
        return undecided[0] if undecided else outcomes[0]

    def _examine(self, plan: Reduced, outcome: Outcome) -> Outcome:
        """Replay a claimed point; a claim that fails leaves the problem undecided."""
        if outcome.point is not None and self.witness is None:
            self.check(plan, outcome.point)
        if outcome.verdict is Verdict.UNSAT and outcome.point is not None and self.witness is not None:
            self._refute_own(self.witness)
        if self.witness is None and outcome.verdict is Verdict.SAT:
            reason = self.rejections[-1].reason if outcome.point is not None else "without a point"
            return replace(outcome, verdict=Verdict.UNKNOWN, reason=f"claimed a counterexample: {reason}")
        return outcome

    def _refute_own(self, witness: Witness) -> None:
        """The member claimed a proof, and this witness refutes it."""
        self.witness, self.false_proof = witness, True
        self.link.send(Found(witness, claimed=True))

    def check(self, plan: Reduced, point: Array) -> bool:
        found = replay(self.query, plan.lift(np.asarray(point, np.float64).ravel()))
        if isinstance(found, Rejection):
            self.rejections = [*self.rejections[-8:], found]
            return False
        if self.witness is None:
            self.witness = found
            self.link.send(Found(found))
        return True

    def context(self, plan: Reduced) -> Context:
        from verifolio.plugin.manager import current_plugins

        task, left = self.task, self.link.remaining()
        budget = Budget(left * (1 - RESERVE), task.memory, task.cores, stop=self.link.cancelled)
        return Context(
            budget=budget,
            evidence=self.evidence,
            bounders=current_plugins().all_bounders(),
            seed=task.seed,
            check=lambda x: self.check(plan, x),
            report=lambda text: self.link.send(Note(text)),
            warn=lambda text: self.link.send(Note(text, warning=True)),
            device=task.device,
            query=None if plan.steps else self.query,
        )

    def _conclude(self, verifier: Verifier, outcomes: list[Outcome], expected: int) -> Report:
        stats = merge_stats(outcomes)
        bounds = [o.bound for o in outcomes if o.bound is not None]
        bound = min(bounds) if len(bounds) == len(outcomes) and bounds else None
        if _all_proved(outcomes, expected):
            if not verifier.can_prove and expected:
                return Report(Verdict.ERROR, "claimed a proof but declares can_prove = False")
            return Report(Verdict.UNSAT, bound=bound, stats=stats)
        undecided = [o for o in outcomes if o.verdict is not Verdict.UNSAT]
        verdicts = {o.verdict for o in undecided}
        verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.UNKNOWN
        reasons = dict.fromkeys(o.reason for o in undecided if o.reason)
        reason = "; ".join(list(reasons)[:3]) or "stopped before every input region was decided"
        return Report(verdict, reason, bound=bound, stats=stats)


def _all_proved(outcomes: Sequence[Outcome], expected: int) -> bool:
    return len(outcomes) == expected and all(o.verdict is Verdict.UNSAT for o in outcomes)


def merge_stats(outcomes: Sequence[Outcome]) -> Stats:
    """Numbers of several outcomes added up, texts kept from the last."""
    merged: dict[str, float | int | str] = {}
    for outcome in outcomes:
        for name, value in outcome.stats.items():
            before = merged.get(name)
            added = isinstance(before, int | float) and isinstance(value, int | float)
            merged[name] = before + value if added else value  # type: ignore[operator]
    return merged


def run_attempt(task: AttemptTask, link: Link) -> Report:
    """The function a worker calls. Errors of ours and of the verifier become reports, not crashes."""
    return guarded(Trial, task, link)


def guarded(kind: type[Trial], task: AttemptTask, link: Link) -> Report:
    """Run a trial to a report, whatever happens in it."""
    trial: Trial | None = None
    try:
        trial = kind(task, link)
        return trial.run()
    except VerifolioError as error:
        return Report(Verdict.ERROR, str(error), error=error)
    except MemoryError:
        return Report(Verdict.MEMOUT, "out of memory")
    except Exception as error:  # a verifier may raise anything; the attempt ends, the query goes on
        traceback.print_exc(file=sys.stderr)
        return Report(Verdict.ERROR, one_line(error))
    finally:
        if trial is not None:
            trial.evidence.close()


@dataclass(frozen=True)
class ConfirmTask:
    """A witness whose finder was stopped before it could be evaluated exactly."""

    query: Query
    witness: Witness


def run_confirm(task: ConfirmTask, link: Link) -> Witness:
    """The function a worker calls to complete the judgement of a replayed witness."""
    return confirm(warm_query(task.query), task.witness)


@dataclass(frozen=True)
class JudgeTask:
    """A point that was a witness once."""

    query: Query
    x: NDArray[np.float32]


def run_judge(task: JudgeTask, link: Link) -> Witness | Rejection:
    """The function a worker calls to judge a point from the start."""
    return judge_counterexample(warm_query(task.query), task.x)


def one_line(error: BaseException) -> str:
    """An exception as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def strip(query: Query) -> Query:
    """The query without cached graphs, so that it is cheap to send."""
    return replace(query)
