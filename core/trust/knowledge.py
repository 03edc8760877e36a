"""What earlier answers imply: a proof covers every smaller input set, a witness every larger one."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.model.problem import Region, condition_key
from verifolio.model.query import Query
from verifolio.trust.conflict import contradict
from verifolio.trust.referee import in_ball
from verifolio.vnnlib import Case
from verifolio.vnnlib.check import row_margins

MAX_WITNESSES = 256  # the latest of one condition; each is compared with every query on it
MAX_HINTS = 4  # the nearest; every member that attacks evaluates them first
Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Proof:
    """A region from which a condition is unreachable, and who says so."""

    region: Region
    member: str


class Knowledge:
    """Proofs and witnesses per network and output condition; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._proofs: dict[Key, list[Proof]] = defaultdict(list)
        self._witnesses: dict[Key, list[Witness]] = defaultdict(list)

    def infer(self, query: Query) -> Answer | None:
        """The answer that follows from what is known, if one does."""
        witness = self._witness_in(query)
        if witness is not None:
            flags = witness.flags | {Flag.INFERRED}
            return Answer(Verdict.SAT, "inference", "a known witness lies in this input set", witness, flags)
        cases = live_cases(query)
        with self._lock:
            covered = [self._covering(query, case) for case in cases]
        if cases and all(p is not None for p in covered):
            members = "+".join(sorted({p.member for p in covered if p is not None}))
            reason = f"{members} proved it for a larger input set"
            return Answer(Verdict.UNSAT, "inference", reason, flags=frozenset({Flag.INFERRED}))
        return None

    def learn(self, query: Query, answer: Answer) -> Answer:
        """Remember an answer; gives it back, flagged if it contradicts something known."""
        if Flag.INFERRED in answer.flags:
            return answer
        if answer.verdict is Verdict.UNSAT:
            return self._learn_proof(query, answer)
        if answer.verdict is Verdict.SAT and answer.witness is not None:
            return self._learn_witness(query, answer, answer.witness)
        return answer

    def hints(self, query: Query) -> list[Witness]:
        """Known witnesses of the same condition close to the input set: good points to start from."""
        near: list[tuple[float, int, Witness]] = []
        for case in live_cases(query):
            with self._lock:
                known = list(self._witnesses[key_of(query, case)])
            reach = float((case.upper - case.lower).max(initial=0.0))
            gaps = [(gap(case, w), k, w) for k, w in enumerate(known)]
            near += [g for g in gaps if g[0] <= reach]
        return [w for _, _, w in sorted(near, key=lambda g: (g[0], -g[1]))[:MAX_HINTS]]

    def _learn_proof(self, query: Query, answer: Answer) -> Answer:
        witness = self._witness_in(query)
        if witness is not None:
            sat = Answer(Verdict.SAT, "inference", "", witness, witness.flags, answer.seconds)
            return contradict(query, replace(sat, attempts=answer.attempts), witness, [answer.verifier])
        with self._lock:
            for case in live_cases(query):
                region = Region.of(case, query.ball)
                proofs = self._proofs[key_of(query, case)]
                proofs[:] = [p for p in proofs if not p.region.within(region)]
                proofs.append(Proof(region, answer.verifier))
        return answer

    def _learn_witness(self, query: Query, answer: Answer, witness: Witness) -> Answer:
        """A witness belongs to the case it satisfies: its exact evaluation is about no other condition."""
        check = query.specification.check(witness.x, witness.y, ulp=True)
        if not check.holds or check.case is None:
            return answer
        key = key_of(query, query.specification.cases[check.case])
        with self._lock:
            self._witnesses[key] = [*self._witnesses[key][-(MAX_WITNESSES - 1) :], witness]
            wrong = [p for p in self._proofs[key] if contains(p.region, witness)]
            self._proofs[key] = [p for p in self._proofs[key] if p not in wrong]
        refuted = sorted({p.member for p in wrong})
        return contradict(query, answer, witness, refuted) if refuted else answer

    def _witness_in(self, query: Query) -> Witness | None:
        known: list[Witness] = []
        for case in live_cases(query):
            with self._lock:
                candidates = list(self._witnesses[key_of(query, case)])
            known += [w for w in reversed(candidates) if gap(case, w) == 0.0]
        for witness in known:
            check = query.specification.check(witness.x, witness.y, ulp=True)
            if check.holds and (query.ball is None or in_ball(query.ball, witness.x)):
                # whether the point lies inside the bounds as written is a fact about this query's bounds
                ulp = {Flag.INPUT_ULP} if check.input_ulp else set()
                flags = frozenset((witness.flags - {Flag.INPUT_ULP}) | ulp)
                return replace(witness, margins=check.margins, flags=flags)
        return None

    def _covering(self, query: Query, case: Case) -> Proof | None:
        region = Region.of(case, query.ball)
        return next((p for p in self._proofs[key_of(query, case)] if region.within(p.region)), None)


def live_cases(query: Query) -> list[Case]:
    """The input regions that can hold a counterexample at all."""
    return [c for c in query.specification.cases if not c.empty and c.disjuncts]


def gap(case: Case, witness: Witness) -> float:
    """How far the witness's input is from a region's box, in the maximum norm."""
    return float(np.maximum(case.lower - witness.x, witness.x - case.upper).max(initial=0.0))


def key_of(query: Query, case: Case) -> Key:
    """The networks and the output condition, in the numbers as written; needs no graph."""
    networks = "+".join(n.sha256 for n in query.networks) + ("=" if query.shared_input else "")
    columns = repr((query.specification.monomials, [n.exposed for n in query.networks]))
    return networks + columns, _condition_of(case)


def _condition_of(case: Case) -> str:
    """The key of a region's condition, which is asked for several times per query."""
    known = _CONDITIONS.get(case)
    if known is None:
        known = _CONDITIONS[case] = condition_key(case.disjuncts)
    return known


_CONDITIONS: WeakKeyDictionary[Case, str] = WeakKeyDictionary()


def contains(region: Region, witness: Witness) -> bool:
    """Whether the witness's input lies in a region, exactly: a double is >= a number iff >= its rounding up."""
    x = witness.x.astype(np.float64)
    if bool((x < region.lower.above).any()) or bool((x > region.upper.below).any()):
        return False
    if region.ball is not None and not in_ball(region.ball, witness.x):
        return False
    return row_margins(region.rows, x)[1]
