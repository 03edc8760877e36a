"""Properties decided through the oracle: proved, refuted or open, which are never mixed up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, cast

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Answer, Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import OracleLike
from verifolio.plugin.property import Asking, Property, Reference, T
from verifolio.properties.kept import keep
from verifolio.trust import referee


class PropertyStatus(StrEnum):
    """What is known about a property around one reference."""

    PROVED = "proved"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True)
class Finding:
    """The status and the answer it rests on; a refutation has a witness that violates the property.

    `answers` are those of all queries that were asked, in order.
    """

    status: PropertyStatus
    answer: Answer
    reason: str = ""
    answers: tuple[Answer, ...] = ()

    @property
    def witness(self) -> Witness | None:
        return self.answer.witness if self.status is PropertyStatus.REFUTED else None


def inquire(prop: Property, networks: Sequence[Network], reference: Reference) -> Asking[Finding]:
    """The one way from a property around a reference to what is known: yields queries, is sent the answers.

    First come points that the definition suggests, then the simpler queries it may know, then its query. A
    property whose query asks for more than it needs is asked a second time where the first answer is no proof:
    only a counterexample of its `refutation`, or one at which the property fails, refutes it.
    """
    found = at_sight(prop, networks, reference)
    if found is not None:
        return found
    answers: list[Answer] = []
    settled = yield from _noting(prop.settle(networks, reference), answers)
    if settled is not None and settled.verdict.decided:
        status = PropertyStatus.PROVED if settled.verdict is Verdict.UNSAT else PropertyStatus.REFUTED
        return Finding(status, settled, answers=tuple(answers))
    finding = yield from _noting(_asked(prop, networks, reference), answers)
    return replace(finding, answers=tuple(answers))


def _asked(prop: Property, networks: Sequence[Network], reference: Reference) -> Asking[Finding]:
    """The property's query, and its refutation where that leaves it open."""
    answer = yield prop.query(networks, reference)
    if answer.verdict is Verdict.UNSAT:
        return Finding(PropertyStatus.PROVED, answer)
    second = prop.refutation(networks, reference)
    if second is None:
        status = PropertyStatus.REFUTED if answer.verdict is Verdict.SAT else PropertyStatus.OPEN
        return Finding(status, answer, answer.reason)
    if violates(prop, networks, reference, answer.witness):
        return Finding(PropertyStatus.REFUTED, answer)
    if answer.verdict is Verdict.CANCELLED:
        return Finding(PropertyStatus.OPEN, answer, answer.reason)
    other = yield second
    if other.verdict is Verdict.SAT:
        return Finding(PropertyStatus.REFUTED, other)
    both = answer.verdict.decided and other.verdict.decided
    reason = "between what can be proved and what can be refuted" if both else answer.reason or other.reason
    return Finding(PropertyStatus.OPEN, other if answer.verdict.decided else answer, reason)


def _noting(asking: Asking[T], answers: list[Answer]) -> Asking[T]:
    """The same questions, with the answers noted."""
    try:
        query = next(asking)
        while True:
            answer = yield query
            answers.append(answer)
            query = asking.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def violates(
    prop: Property, networks: Sequence[Network], reference: Reference, witness: Witness | None
) -> bool:
    """Whether a counterexample of the property's query violates the property itself."""
    return witness is not None and not prop.holds(witness.y, reference.with_outputs(networks), witness.x)


def at_sight(prop: Property, networks: Sequence[Network], reference: Reference) -> Finding | None:
    """A violation among the points the property itself suggests, replayed like any other counterexample."""
    for x in prop.candidates(networks, reference):
        witness = judged(prop.candidate_query(networks, reference, x), x)
        if isinstance(witness, Witness):
            answer = Answer(Verdict.SAT, "at sight", witness=witness, flags=witness.flags)
            return Finding(PropertyStatus.REFUTED, answer)
    return None


def judged(query: Query, x: NDArray[np.floating]) -> Witness | referee.Rejection:
    """A point judged where the query's networks are (see `Network.compute`)."""
    return query.networks[0].compute(referee.judge_counterexample, replace(query), x)


class Inquiry(Generic[T]):
    """A generator of questions, one step at a time: `query` is the next one, None once there is a `result`."""

    def __init__(self, asking: Asking[T]) -> None:
        self._asking = asking
        self.query: Query | None = None
        self.result: T | None = None
        self._step(None)

    def answer(self, answer: Answer) -> None:
        self._step(answer)

    def _step(self, answer: Answer | None) -> None:
        try:
            self.query = next(self._asking) if answer is None else self._asking.send(answer)
        except StopIteration as end:
            self.query, self.result = None, end.value


def follow(asking: Asking[T], ask: Callable[[Query], Answer]) -> T:
    """Ask one question after the other; gives what they came to."""
    inquiry = Inquiry(asking)
    while inquiry.query is not None:
        inquiry.answer(ask(inquiry.query))
    return cast(T, inquiry.result)


def decide(oracle: OracleLike, prop: Property, networks: Sequence[Network], reference: Reference) -> Finding:
    """Decide one property around one reference; the oracle's workers evaluate what the property asks for."""
    bound = [n.computed_by(oracle.compute) for n in networks]
    finding = follow(inquire(prop, bound, reference), oracle.ask)
    keep(oracle, prop, networks, reference, finding)
    return finding


def decide_many(
    oracle: OracleLike, prop: Property, networks: Sequence[Network], references: Sequence[Reference]
) -> Iterator[tuple[int, Finding]]:
    """Decide many; gives (position, finding) as they finish, and keeps them where the oracle has a store."""
    bound = [n.computed_by(oracle.compute) for n in networks]
    for k, finding in _decide_many(oracle, prop, bound, references):
        keep(oracle, prop, networks, references[k], finding)
        yield k, finding


def _decide_many(
    oracle: OracleLike, prop: Property, networks: Sequence[Network], references: Sequence[Reference]
) -> Iterator[tuple[int, Finding]]:
    started = ((k, Inquiry(inquire(prop, networks, r))) for k, r in enumerate(references))
    waiting: Iterator[tuple[int, Inquiry[Finding]]] = started
    while True:
        asked: list[tuple[int, Inquiry[Finding]]] = []
        done: list[tuple[int, Finding]] = []
        again: list[tuple[int, Inquiry[Finding]]] = []
        for position, answer in oracle.ask_many(_queries(waiting, asked, done)):
            k, inquiry = asked[position]
            inquiry.answer(answer)
            if inquiry.result is not None:
                yield k, inquiry.result
            else:
                again.append((k, inquiry))
        yield from done
        if not again:
            return
        waiting = iter(again)


def _queries(
    waiting: Iterator[tuple[int, Inquiry[Finding]]],
    asked: list[tuple[int, Inquiry[Finding]]],
    done: list[tuple[int, Finding]],
) -> Iterator[Query]:
    """The next question of each inquiry; those that need none are done."""
    for k, inquiry in waiting:
        if inquiry.query is not None:
            asked.append((k, inquiry))
            yield inquiry.query
        elif inquiry.result is not None:
            done.append((k, inquiry.result))
