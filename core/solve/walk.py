"""One query's way through a portfolio: stages in turn or side by side until an answer is validated."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from verifolio.errors import UnknownPlugin, VerifolioError
from verifolio.model.answer import Answer, Attempt, Verdict, Witness
from verifolio.model.query import Query
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.executor import Executor, Handle
from verifolio.portfolio.tree import Member, Portfolio, Race, Series, Stage, allot
from verifolio.run import End, Job, Limits, Link, Result
from verifolio.run.settings import Settings
from verifolio.solve.attempt import run_attempt
from verifolio.solve.judgement import ConfirmTask, run_confirm
from verifolio.solve.messages import Found, Note
from verifolio.solve.report import Report
from verifolio.solve.sharing import Learned
from verifolio.solve.survey import Opinion, SurveyTask, run_survey
from verifolio.solve.task import AttemptTask
from verifolio.solve.warm import strip
from verifolio.solve.working import describe
from verifolio.trust.conflict import MemberClaim
from verifolio.trust.referee import in_ball

LEAST_SECONDS = 0.01  # starting a member costs as much
CONFIRM_SECONDS = 10.0  # exact evaluation of the largest networks of the tests takes a second
FALSE_PROOF = "claimed a proof that its witness refutes"
# Seconds until the others' workers begin to start: easy queries take 0.1, the first worker's start the rest.
HEAD_START = 0.5
SMALL = 1 << 20  # bytes of networks: lowering them takes below 0.1 s, where torch takes above 1 s to import
LEAST_CONFIRM = 0.1  # where time is up; an exact evaluation of a small network takes less
# Beside a member's limit and grace: how long its supervisor may take to tell that it ended. A job that takes longer
# was not begun in time, because the machine is busy or a plugin takes for ever to import.
SLACK = 0.1
NOT_READY = "no worker was ready in time"
VERDICTS = {
    End.TIMEOUT: Verdict.TIMEOUT,
    End.MEMOUT: Verdict.MEMOUT,
    End.CRASH: Verdict.ERROR,
    End.ERROR: Verdict.ERROR,
    End.CANCELLED: Verdict.CANCELLED,
}


class Token:
    """Cancels the running jobs of one branch, and of the branches below it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: list[Handle | Token] = []
        self.cancelled = False

    def attach(self, thing: Handle | Token) -> None:
        with self._lock:
            self._things.append(thing)
            late = self.cancelled
        if late:
            thing.cancel()

    def detach(self, thing: Handle | Token) -> None:
        with self._lock:
            self._things.remove(thing)

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            things = list(self._things)
        for thing in things:
            thing.cancel()


class Walk:
    """The state of one query while it is being decided. `run` blocks; `cancel` may come from any thread.

    `listen(member, note)` hears what a member reported, once it has ended; `working` is around its work.
    """

    def __init__(
        self,
        query: Query,
        portfolio: Portfolio,
        executor: Executor,
        settings: Settings,
        evidence: Evidence | None = None,
        listen: Callable[[str, Note], None] = lambda _member, _note: None,
        working: Callable[[str, str], AbstractContextManager[None]] = lambda _member, _about: nullcontext(),
    ) -> None:
        self.listen, self.working = listen, working
        self.query, self.portfolio, self.executor, self.settings = query, portfolio, executor, settings
        self.evidence = Evidence() if evidence is None else evidence
        self.attempts: list[Attempt] = []
        self.claims: list[MemberClaim] = []
        self._light = strip(query)
        self._affinity = "".join(n.sha256 for n in query.networks)
        self._lock = threading.Lock()
        self._token = Token()
        self._opinions: dict[int, Opinion] = {}
        self._done: set[int] = set()  # early members
        self._started = time.monotonic()

    def cancel(self) -> None:
        self._token.cancel()

    @property
    def _left(self) -> float:
        return self.settings.timeout - (time.monotonic() - self._started)

    def run(self) -> Answer:
        """Walk the tree; the answer has every attempt in it."""
        self._started = time.monotonic()
        self._early()
        if not self.claims:
            self._survey()
            self._stage(self.portfolio.root, max(0.0, self._left), self._token, self.settings.total)
        seconds = time.monotonic() - self._started
        answer = self._answer(seconds)
        return replace(answer, seconds=seconds, attempts=tuple(self.attempts))

    def _answer(self, seconds: float) -> Answer:
        from verifolio.trust.conflict import settle

        if self.claims:
            return settle(self.query, [self._confirmed(c) for c in self.claims])
        tried = [a for a in self.attempts if not a.refused] or self.attempts
        verdict = summarise([a.verdict for a in tried], self._token.cancelled)
        if verdict is Verdict.UNKNOWN and seconds >= self.settings.timeout:
            verdict = Verdict.TIMEOUT
        said = [f"{a.verifier}: {a.reason or a.verdict}" for a in self.attempts]
        reason = "; ".join(said) or "the portfolio has no member that can be used here"
        verifier = self.attempts[0].verifier if len(self.attempts) == 1 else self.portfolio.name
        return Answer(verdict, verifier, reason)

    def _stage(self, stage: Stage, seconds: float, token: Token, cores: int) -> bool:
        """Run a stage for at most `seconds` on `cores` (0: no limit); True once the query is decided."""
        if isinstance(stage, Member):
            return self._member(stage, seconds, token, cores)
        if isinstance(stage, Race):
            return self._race(stage, seconds, token, cores)
        return self._series(stage, seconds, token, cores)

    def _series(self, series: Series, seconds: float, token: Token, cores: int) -> bool:
        deadline = time.monotonic() + seconds
        for k, stage in enumerate(series.stages):
            left = deadline - time.monotonic()
            if token.cancelled or self.claims:
                break
            if self._stage(stage, self._allot(stage, left, series.stages[k:]), token, cores):
                return True
        return False

    def _allot(self, stage: Stage, left: float, rest: Sequence[Stage]) -> float:
        """No time is kept for those after `stage` who refuse."""
        willing = [stage, *(s for s in rest[1:] if self._willing(s))]
        return allot(willing, left, self.settings.timeout)

    def _race(self, race: Race, seconds: float, token: Token, cores: int) -> bool:
        """Side by side on shared cores; with more branches than cores, in turns of equal time."""
        stages = sorted(race.stages, key=lambda s: not self._willing(s))  # who refuses takes nobody's turn
        count = sum(self._willing(s) for s in stages) or len(stages)
        # without a limit there is no time to divide into turns
        lanes = min(cores, count) if cores and math.isfinite(seconds) else count
        part = max(1, cores // lanes) if cores else 0
        deadline, rounds = time.monotonic() + seconds, -(-count // lanes)
        branches = [Token() for _ in stages]
        for branch in branches:
            token.attach(branch)

        def run(k: int, stage: Stage, branch: Token) -> bool:
            turn = (deadline - time.monotonic()) / max(1, rounds - k // lanes)
            own = stage.limit(self.settings.timeout) if isinstance(stage, Member) else None
            won = True  # an error ends the race as well
            try:
                won = self._stage(stage, turn if own is None else min(turn, own), branch, part)
            finally:
                for other in branches if won else []:
                    if other is not branch:
                        other.cancel()
            return won

        with ThreadPoolExecutor(lanes, "race") as threads:
            wins = list(threads.map(run, range(len(stages)), stages, branches))
        for branch in branches:
            token.detach(branch)
        return any(wins)

    def _early(self) -> None:
        """Members that may decide a small network's query before the others' workers are ready; unasked."""
        if not is_small(self.query):
            return
        for member in self.portfolio.early:
            seconds = min(max(0.0, self._left), member.limit(self.settings.timeout) or math.inf)
            decided = self._member(member, seconds, self._token, self.settings.total, early=True)
            self._done.add(id(member))
            if decided:
                break

    def _survey(self) -> None:
        """Ask every member whether it refuses, so that no time is kept for those that do."""
        members = tuple(m for m in self.portfolio.members if id(m) not in self._done)
        if len(members) < 2 or self._token.cancelled:
            return
        task = SurveyTask(self._light, members, self.settings.memory)
        result = self._await(self._limited(run_survey, task, max(0.0, self._left)), self._token)
        if result is not None and isinstance(result.value, VerifolioError):
            raise result.value
        if result is not None and result.end is End.DONE and isinstance(result.value, list):
            self._opinions = {id(m): o for m, o in zip(members, result.value, strict=True) if o is not None}

    def _willing(self, stage: Stage) -> bool:
        if isinstance(stage, Member):
            return id(stage) not in self._opinions
        return any(self._willing(s) for s in stage.stages)

    def _member(self, member: Member, seconds: float, token: Token, cores: int, early: bool = False) -> bool:
        if id(member) in self._done:
            return False
        opinion = self._opinions.get(id(member))
        if isinstance(opinion, str):
            self._note(Attempt(member.name, Verdict.UNKNOWN, f"refuses: {opinion}", 0.0, refused=True))
        if opinion is not None:
            return False
        if seconds < LEAST_SECONDS or token.cancelled:
            verdict = Verdict.CANCELLED if token.cancelled else Verdict.TIMEOUT
            self._note(Attempt(member.name, verdict, "cancelled" if token.cancelled else "no time left", 0.0))
            return False
        with self.working(member.name, describe(self.query)):
            result = self._await(self._job(member, seconds, cores or self.settings.cores, early), token)
        return result is not None and self._conclude(member, result)

    def _await(self, job: Job, token: Token) -> Result | None:
        """A job's result. Its limit counts from now: a job that no worker takes up in time is given up."""
        limits = job.limits
        most = None if limits.seconds is None else limits.seconds + limits.grace + SLACK
        if job.light:  # the start of the first worker takes no member's time
            most = None if math.isinf(self._left) else max(0.0, self._left)
        handle = self.executor.submit(job)
        token.attach(handle)
        result = handle.result(HEAD_START) if job.light else None
        if result is None:
            if job.light:
                self.executor.warm()
            result = handle.result(None if most is None else min(most, threading.TIMEOUT_MAX))
        if result is None and most is not None:
            handle.cancel()
            result = Result(End.TIMEOUT, detail=NOT_READY, seconds=most, messages=handle.messages())
        token.detach(handle)
        return result

    def _job(self, member: Member, seconds: float, cores: int, early: bool) -> Job:
        s = self.settings
        with self._lock:
            known = self.evidence.copy()
        task = AttemptTask(self._light, member.verifier, known, s.seed, s.memory, cores, s.device, early)
        return replace(self._limited(run_attempt, task, seconds, cores), light=early)

    def _limited(
        self, function: Callable[[Any, Link], Any], payload: object, seconds: float, cores: int = 1
    ) -> Job:
        s, limit = self.settings, None if math.isinf(seconds) else seconds
        return Job(function, payload, Limits(limit, s.memory, cores, s.grace), self._affinity)

    def _conclude(self, member: Member, result: Result) -> bool:
        """Take over what a job learned, record the attempt, keep a claim."""
        found = self._valid(self._gather(result))
        said = dict.fromkeys(m for m in result.messages if isinstance(m, Note))
        for note in said:
            self.listen(member.name, note)
        notes = [note.text for note in said]
        report = result.value if isinstance(result.value, Report) else None
        if report is not None and report.error is not None:
            self._raise(member, report.error)
            return False
        claim = _claim(member.name, report, found)
        false_proof = found is not None and any(isinstance(m, Found) and m.claimed for m in result.messages)
        if claim is not None:
            verdict, reason = claim.verdict, FALSE_PROOF if false_proof else ""
        elif report is not None and result.end is End.DONE:
            verdict, reason = report.verdict, report.reason
        else:
            verdict = VERDICTS.get(result.end, Verdict.ERROR)
            reason = report.reason if report is not None else ""
            reason = reason or end_reason(result, self.settings)
        stats = {} if report is None else dict(report.stats)
        stats |= {"notes": "; ".join(dict.fromkeys(notes))} if notes else {}
        log = result.log if verdict is Verdict.ERROR else ""
        refused = claim is None and report is not None and report.refused
        used = (result.seconds, result.peak_memory)
        self._note(Attempt(member.name, verdict, reason, *used, stats, log, refused))
        if claim is not None:
            with self._lock:
                self.claims += [claim, MemberClaim(member.name, Verdict.UNSAT)] if false_proof else [claim]
        return claim is not None

    def _confirmed(self, claim: MemberClaim) -> MemberClaim:
        """A witness of a member that was stopped still lacks the exact evaluation: a fresh worker does it."""
        witness = claim.witness
        if witness is None or not claim.salvaged:
            return claim
        seconds = min(CONFIRM_SECONDS, max(self._left, LEAST_CONFIRM))
        result = self._await(self._limited(run_confirm, ConfirmTask(self._light, witness), seconds), Token())
        value = None if result is None else result.value
        return replace(claim, witness=value) if isinstance(value, Witness) else claim

    def _valid(self, witness: Witness | None) -> Witness | None:
        """The driver's own look at the worker's numbers, against the text's decimals."""
        query = self.query
        if witness is None or not query.specification.check(witness.x, witness.y, ulp=True).holds:
            return None
        return witness if query.ball is None or in_ball(query.ball, witness.x) else None

    def _raise(self, member: Member, error: VerifolioError) -> None:
        """Bad input is the user's to see at once; a missing optional member is passed over."""
        if not (member.optional and isinstance(error, UnknownPlugin)):
            raise error

    def _gather(self, result: Result) -> Witness | None:
        """Merge the evidence a job sent; the last witness it announced."""
        witness = None
        for message in result.messages:
            if isinstance(message, Found):
                witness = message.witness
            elif isinstance(message, Learned):
                with self._lock:
                    self.evidence.merge(message.evidence)
        return witness

    def _note(self, attempt: Attempt) -> None:
        with self._lock:
            self.attempts.append(attempt)


def is_small(query: Query) -> bool:
    """Whether early members are worth the reading of its networks, which the other members' workers repeat."""
    try:
        return sum(network.path.stat().st_size for network in query.networks) <= SMALL
    except OSError:
        return False


def _claim(name: str, report: Report | None, found: Witness | None) -> MemberClaim | None:
    """What a member claims; a witness it announced before it was stopped counts."""
    stats = dict(report.stats) if report is not None else {}
    if found is not None:
        complete = report.witness if report is not None else None
        return MemberClaim(name, Verdict.SAT, complete or found, stats=stats, salvaged=complete is None)
    if report is not None and report.verdict is Verdict.UNSAT:
        return MemberClaim(name, Verdict.UNSAT, bound=report.bound, stats=stats)
    return None


def end_reason(result: Result, settings: Settings) -> str:
    """How a job ended, for people."""
    if result.end is End.TIMEOUT:
        return NOT_READY if result.detail == NOT_READY else f"stopped after {result.seconds:.1f} s"
    if result.end is End.MEMOUT:
        limit = f" (limit {settings.memory / 2**30:.1f} GB)" if settings.memory else ""
        return f"used {result.peak_memory / 2**30:.1f} GB{limit}"
    first = result.detail.splitlines()[0] if result.detail else ""
    return first or str(result.end)


def summarise(verdicts: Sequence[Verdict], cancelled: bool) -> Verdict:
    """One undecided verdict for what several members said."""
    if cancelled:
        return Verdict.CANCELLED
    kinds = set(verdicts)
    return kinds.pop() if len(kinds) == 1 else Verdict.UNKNOWN
