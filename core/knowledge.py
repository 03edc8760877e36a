"""What earlier answers imply: a proof covers every smaller input set, a witness every larger one."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from verifolio.answer import Answer, Flag, Verdict, Witness
from verifolio.conflict import contradict
from verifolio.problem import Domain, rows_key
from verifolio.query import Query
from verifolio.referee import in_ball
from verifolio.vnnlib import Case, Rows

MAX_WITNESSES = 256
MAX_HINTS = 4
Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Proof:
    """A domain from which a condition is unreachable, and who says so."""

    domain: Domain
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
                domain = domain_of(query, case)
                proofs = self._proofs[key_of(query, case)]
                proofs[:] = [p for p in proofs if not p.domain.within(domain)]
                proofs.append(Proof(domain, answer.verifier))
        return answer

    def _learn_witness(self, query: Query, answer: Answer, witness: Witness) -> Answer:
        refuted: list[str] = []
        with self._lock:
            for case in live_cases(query):
                key = key_of(query, case)
                self._witnesses[key] = [*self._witnesses[key][-(MAX_WITNESSES - 1) :], witness]
                wrong = [
                    p for p in self._proofs[key] if contains(p.domain, witness) and _meets(case, witness)
                ]
                refuted += [p.member for p in wrong]
                self._proofs[key] = [p for p in self._proofs[key] if p not in wrong]
        return contradict(query, answer, witness, sorted(set(refuted))) if refuted else answer

    def _witness_in(self, query: Query) -> Witness | None:
        known: list[Witness] = []
        for case in live_cases(query):
            with self._lock:
                candidates = list(self._witnesses[key_of(query, case)])
            known += [w for w in reversed(candidates) if gap(case, w) == 0.0]
        for witness in known:
            inside = query.ball is None or in_ball(query.ball, witness.x)
            if inside and query.specification.check(witness.x, witness.y, ulp=True).holds:
                return witness
        return None

    def _covering(self, query: Query, case: Case) -> Proof | None:
        domain = domain_of(query, case)
        return next((p for p in self._proofs[key_of(query, case)] if domain.within(p.domain)), None)


def live_cases(query: Query) -> list[Case]:
    """The input regions that can hold a counterexample at all."""
    return [c for c in query.specification.cases if not c.empty and c.disjuncts]


def gap(case: Case, witness: Witness) -> float:
    """How far the witness's input is from a region's box, in the maximum norm."""
    return float(np.maximum(case.lower - witness.x, witness.x - case.upper).max(initial=0.0))


def domain_of(query: Query, case: Case) -> Domain:
    return Domain(case.lower, case.upper, case.input_rows, query.ball)


def key_of(query: Query, case: Case) -> Key:
    """The networks and the output condition; needs no graph."""
    networks = "+".join(n.sha256 for n in query.networks) + ("=" if query.shared_input else "")
    parts = b"|".join(rows_key(r) for r in case.disjuncts)
    return networks, hashlib.sha256(parts).hexdigest()


def contains(domain: Domain, witness: Witness) -> bool:
    """Whether the witness's input lies in a domain."""
    x = witness.x.astype(np.float64)
    if bool((x < domain.lower).any()) or bool((x > domain.upper).any()):
        return False
    if domain.ball is not None and not in_ball(domain.ball, witness.x):
        return False
    return domain.rows is None or _rows_hold(domain.rows, x)


def _meets(case: Case, witness: Witness) -> bool:
    point = np.concatenate([witness.x.astype(np.float64), witness.y.astype(np.float64)])
    return any(_rows_hold(rows, point) for rows in case.disjuncts)


def _rows_hold(rows: Rows, point: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    from verifolio.vnnlib.check import row_margins

    return row_margins(rows, point)[1]
