"""The estimators `binary` and `k-binary`: critical radii on a grid, with k queries at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.plugin.estimator import AskingLike, Estimator, OracleLike, Progress, silent
from verifolio.plugin.options import described
from verifolio.properties.verdict import Finding, Inquiry, PropertyStatus

from .grid import Scheduler
from .radius_search import (
    Critical,
    RadiusQuestion,
    RadiusSearch,
    SearchClock,
    SearchStatus,
    SearchStep,
    keep_query,
    make_step,
)


@dataclass(frozen=True)
class KBinaryOptions:
    """Options of `k-binary`."""

    k: int = described(2, "How many radii are asked at the same time.")


class KBinary(RadiusSearch):
    """k-binary search (Bosman et al. 2025): answers narrow the range and cancel what became pointless."""

    name: ClassVar[str] = "k-binary"
    Options: ClassVar[type] = KBinaryOptions
    grid: ClassVar[bool] = True

    @property
    def k(self) -> int:
        return int(self.options.k)

    @property
    def lanes(self) -> int:
        return self.k

    def run(self, request: RadiusQuestion, oracle: OracleLike, progress: Progress = silent) -> Critical:
        if not request.radii or sorted(set(request.radii)) != list(request.radii):
            raise InputError(
                "radii", "an increasing grid of radii", f"{len(request.radii)} values", "give --epsilons"
            )
        if self.k < 1:
            raise InputError("k", "at least 1", str(self.k))
        return _GridSearch(request, oracle, self.k).run(progress)


class Binary(KBinary):
    """Plain binary search: one query at a time."""

    name: ClassVar[str] = "binary"
    Options: ClassVar[type] = Estimator.Options

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)

    @property
    def k(self) -> int:
        return 1


class _GridSearch(SearchClock):
    """One search: the scheduler decides, the oracle answers, every step is logged."""

    def __init__(self, question: RadiusQuestion, oracle: OracleLike, k: int) -> None:
        self.question, self.oracle = question, oracle
        self.scheduler = Scheduler(len(question.radii), k)
        self.open: list[AskingLike] = []  # running, or cancelled and not yet ended
        self.inquiries: dict[int, Inquiry[Finding]] = {}
        self.ended = False  # nothing more is asked
        self.steps: list[SearchStep] = [s for s in question.history if s.kind == "query"]
        self.before = max((s.elapsed for s in self.steps), default=0.0)
        self.started = time.monotonic()
        positions = {r: i for i, r in enumerate(question.radii)}
        self.scheduler.recall((positions[s.radius], s.verdict) for s in self.steps if s.radius in positions)

    def run(self, progress: Progress) -> Critical:
        try:
            while not self.scheduler.done and self.left > 0:
                for index in self.scheduler.launch():
                    self._begin(index)
                if self.open:
                    self._listen(self.left)
                progress(len(self.steps), 0, f"{self.scheduler.lo + 1} .. {self.scheduler.hi}")
        finally:
            self.ended = True
            for asking in self.open:
                asking.cancel()
        while self.open:  # cancelled queries are logged with the time they took
            self._listen(None)
        return self._result()

    def _begin(self, index: int) -> None:
        self.inquiries[index] = Inquiry(self.question.family.inquiry(self.question.radii[index]))
        self._go_on(index)

    def _go_on(self, index: int) -> None:
        """Submit the next query of a radius, or take what its queries came to."""
        inquiry = self.inquiries[index]
        if inquiry.query is None:
            if inquiry.result is not None:
                self._take(index, inquiry.result)
            return
        keep_query(self.question.keep, inquiry.query)
        timeout = min(self.question.timeout, max(self.left, 0.0))
        self.open.append(self.oracle.submit(inquiry.query, timeout, index))

    def _listen(self, seconds: float | None) -> None:
        """Wait for answers and act on them."""
        patience = None if seconds is None or seconds > 1e6 else seconds
        for asking in self.oracle.wait(self.open, patience):
            self.open.remove(asking)
            answer = asking.answer()
            if answer.verdict is Verdict.CANCELLED or (self.left <= 0 and not answer.verdict.decided):
                self._take(asking.index, Finding(PropertyStatus.OPEN, answer, answer.reason, (answer,)))
            else:
                self.inquiries[asking.index].answer(answer)
                self._go_on(asking.index)

    def _take(self, index: int, finding: Finding) -> None:
        """Log what is known of a radius, and cancel what that makes pointless."""
        family, timeout = self.question.family, self.question.timeout
        step = make_step(family, self.question.radii[index], finding, timeout, self.elapsed)
        self.steps.append(step)
        self.question.log(step)
        pointless = self.scheduler.answer(index, step.verdict)
        for other in self.open:
            if other.index in pointless:
                other.cancel()

    def _result(self) -> Critical:
        radii, scheduler = self.question.radii, self.scheduler
        found = [s for s in self.steps if s.distance is not None and s.witness is not None]
        best = min(found, key=lambda s: s.distance or 0.0, default=None)
        verdicts = [s.verdict for s in self.steps]
        undecided = sum(not v.decided and v is not Verdict.CANCELLED for v in verdicts)
        return Critical(
            lower=radii[scheduler.lo] if scheduler.lo >= 0 else 0.0,
            upper=radii[scheduler.hi] if scheduler.hi < len(radii) else None,
            status=SearchStatus.CLOSED if scheduler.closed else SearchStatus.OPEN,
            witness=None if best is None else best.witness,
            distance=None if best is None else best.distance,
            flags=frozenset() if best is None else best.flags,
            seconds=self.elapsed,
            queries=len(self.steps),
            cancelled=verdicts.count(Verdict.CANCELLED),
            reason="" if scheduler.closed else f"{undecided} queries without an answer",
            steps=tuple(self.steps),
        )
