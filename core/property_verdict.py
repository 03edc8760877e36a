"""Properties decided through the oracle: proved, refuted or open, which are never mixed up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from verifolio import referee
from verifolio.answer import Answer, Verdict, Witness
from verifolio.network import Network
from verifolio.oracle import Oracle
from verifolio.property import Property, Reference
from verifolio.query import Query


class Status(StrEnum):
    """What is known about a property around one reference."""

    PROVED = "proved"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True)
class Finding:
    """The status and the answer it rests on; a refutation has a witness that violates the property."""

    status: Status
    answer: Answer
    reason: str = ""

    @property
    def witness(self) -> Witness | None:
        return self.answer.witness if self.status is Status.REFUTED else None


def decide(oracle: Oracle, prop: Property, networks: Sequence[Network], reference: Reference) -> Finding:
    """Decide one property around one reference."""
    return next(iter(decide_many(oracle, prop, networks, [reference])))[1]


def decide_many(
    oracle: Oracle, prop: Property, networks: Sequence[Network], references: Sequence[Reference]
) -> Iterator[tuple[int, Finding]]:
    """Decide many; gives (position, finding) as they finish.

    A property whose query asks for more than the property needs is asked a second time where the first answer
    is no proof: only a counterexample of its `refutation`, or one that violates it at sight, refutes it.
    """
    unsettled: list[tuple[int, Answer]] = []
    seen: list[tuple[int, Finding]] = []
    asked: list[int] = []

    def queries() -> Iterator[Query]:
        for k, reference in enumerate(references):
            found = at_sight(prop, networks, reference) or settled(oracle, prop, networks, reference)
            if found is None:
                asked.append(k)
                yield prop.query(networks, reference)
            else:
                seen.append((k, found))

    for position, answer in oracle.ask_many(queries()):
        index = asked[position]
        finding = judge(prop, networks, references[index], answer)
        if finding is None:
            unsettled.append((index, answer))
        else:
            yield index, finding
    yield from seen
    second = [prop.refutation(networks, references[index]) for index, _ in unsettled]
    for position, answer in oracle.ask_many([q for q in second if q is not None]):
        if answer.verdict is Verdict.SAT:
            yield unsettled[position][0], Finding(Status.REFUTED, answer)
        else:
            yield unsettled[position][0], Finding(Status.OPEN, answer, "neither provable nor refutable")


def settled(
    oracle: Oracle, prop: Property, networks: Sequence[Network], reference: Reference
) -> Finding | None:
    """A decision by the simpler queries that the property may know."""
    answer = prop.settle(networks, reference, oracle.ask)
    if answer is None or not answer.verdict.decided:
        return None
    return Finding(Status.PROVED if answer.verdict is Verdict.UNSAT else Status.REFUTED, answer)


def at_sight(prop: Property, networks: Sequence[Network], reference: Reference) -> Finding | None:
    """A violation among the points the property itself suggests, replayed like any other counterexample."""
    for x in prop.suspects(networks, reference):
        witness = referee.judge(prop.accusation(networks, reference, x), x)
        if isinstance(witness, Witness):
            answer = Answer(Verdict.SAT, "at sight", witness=witness, flags=witness.flags)
            return Finding(Status.REFUTED, answer)
    return None


def judge(
    prop: Property, networks: Sequence[Network], reference: Reference, answer: Answer
) -> Finding | None:
    """What the answer to `prop.query` settles; None where the property's refutation has to be asked."""
    if answer.verdict is Verdict.UNSAT:
        return Finding(Status.PROVED, answer)
    if prop.refutation(networks, reference) is None:
        status = Status.REFUTED if answer.verdict is Verdict.SAT else Status.OPEN
        return Finding(status, answer, answer.reason)
    witness = answer.witness
    if witness is not None and not prop.holds(witness.y, reference.with_outputs(networks), witness.x):
        return Finding(Status.REFUTED, answer)
    return None
