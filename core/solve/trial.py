"""The trial of one verifier on one query, inside a worker: reductions, context, and judging its claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome, Verdict, Witness
from verifolio.model.problem import Problem
from verifolio.plugin.choice import build
from verifolio.plugin.verifier import Context, Verifier
from verifolio.reductions import Reduced, reduce_for
from verifolio.run import Link
from verifolio.run.budget import Budget
from verifolio.run.memory import allow
from verifolio.solve.messages import Found, Note
from verifolio.solve.report import Report, merge_stats
from verifolio.solve.sharing import SharedEvidence
from verifolio.solve.task import AttemptTask
from verifolio.solve.warm import warm_query
from verifolio.trust.audit import SHARE, inside, refutes_exactly, refuting_candidates
from verifolio.trust.referee import Rejection, confirm, replay

Array = NDArray[np.float64]
RESERVE = 0.05  # of the time is kept for judging and sending


class Trial:
    """One verifier on one query."""

    def __init__(self, task: AttemptTask, link: Link) -> None:
        allow(task.memory)
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
        if self.task.early and not self.query.plain:
            return Report(
                Verdict.UNKNOWN, "refuses: the network is not evaluated without torch", refused=True
            )
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
            return Report(Verdict.UNKNOWN, f"refuses: {refusal}", refused=True)
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
        self.evidence.only = plans[0].problem if len(plans) == 1 else None
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
