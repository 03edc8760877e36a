"""A search over radii by a stranger: `doubling` doubles a radius until it is refuted, then halves the gap."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from verifolio import InputError, OracleLike, Verdict, hookimpl
from verifolio.plugins.distribution.radius_search import (
    Critical,
    RadiusQuestion,
    RadiusSearch,
    SearchStatus,
    SearchStep,
    make_step,
)
from verifolio.properties.verdict import follow

if TYPE_CHECKING:
    from verifolio import Estimator, Registry
    from verifolio.plugin.estimator import Progress


@dataclass(frozen=True)
class DoublingOptions:
    """`first`: the radius to begin with; `queries`: how many to ask at most."""

    first: float = 0.01
    queries: int = 40

    def __post_init__(self) -> None:
        if not self.first > 0:
            raise InputError("option first", "a positive radius", str(self.first))


def quiet(done: int, total: int, message: str) -> None:
    """No progress."""


class Doubling(RadiusSearch):
    """Exponential search (Bentley and Yao 1976) for the critical radius: one query at a time."""

    name: ClassVar[str] = "doubling"
    Options: ClassVar[type] = DoublingOptions
    options: DoublingOptions

    def run(self, request: RadiusQuestion, oracle: OracleLike, progress: Progress = quiet) -> Critical:
        began, family = time.monotonic(), request.family
        top = min(request.largest or family.largest, family.largest)
        lower, upper, steps = 0.0, None, list[SearchStep](request.history)
        for step in request.history:
            lower = max(lower, step.proved or 0.0)
            upper = step.distance if step.distance and step.distance < (upper or top) else upper
        while len(steps) < self.options.queries and (upper or top) - lower > request.tolerance:
            left = request.budget - (time.monotonic() - began)
            if left <= 0:
                break
            radius = min(2 * lower or self.options.first, top) if upper is None else (lower + upper) / 2
            finding = follow(family.inquiry(radius), partial(oracle.ask, timeout=min(request.timeout, left)))
            step = make_step(family, radius, finding, request.timeout, time.monotonic() - began)
            steps.append(step)
            request.log(step)
            progress(len(steps), self.options.queries, f"{lower:g}")
            if step.verdict is Verdict.UNSAT:
                lower = radius
            elif step.distance is not None:
                upper = min(step.distance, upper or top)
            else:
                break
        return self._critical(lower, upper, steps, request.tolerance, top, time.monotonic() - began)

    def _critical(
        self,
        lower: float,
        upper: float | None,
        steps: list[SearchStep],
        tolerance: float,
        top: float,
        seconds: float,
    ) -> Critical:
        closed = (upper or top) - lower <= tolerance
        best = min(
            (s for s in steps if s.distance is not None), key=lambda s: s.distance or 0.0, default=None
        )
        return Critical(
            lower,
            upper,
            SearchStatus.CLOSED if closed else SearchStatus.OPEN,
            None if best is None else best.witness,
            upper,
            seconds=seconds,
            queries=len(steps),
            reason="" if closed else "a query had no answer",
            steps=tuple(steps),
        )


@hookimpl
def register_estimators(registry: Registry[Estimator]) -> None:
    registry.add(Doubling)
