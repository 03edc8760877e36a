"""The estimator `closest`: one question to a verifier that minimises distances, and nothing else.

`milp` proves how far its point is; `pointwise-lp` and `lbfgs` look near the input only (Bastani et al. 2016): their
distances are upper sides alone.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import ClassVar

from verifolio.errors import InputError
from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.plugin.estimator import OracleLike, Progress, silent
from verifolio.plugin.manager import current_plugins
from verifolio.portfolio.tree import Portfolio
from verifolio.properties.verdict import Finding, PropertyStatus
from verifolio.solve.closest import minimiser

from .family import Family
from .radius_search import (
    Critical,
    RadiusQuestion,
    RadiusSearch,
    SearchStatus,
    SearchStep,
    conflict,
    make_step,
)

MINIMISE = "minimise"


@dataclass(frozen=True)
class ClosestOptions:
    """There is nothing to choose: the verifier is the portfolio's."""


class ClosestSearch(RadiusSearch):
    """The distance of the point that one verifier finds, and the distance that it proves."""

    name: ClassVar[str] = "closest"
    Options: ClassVar[type] = ClosestOptions
    options: ClosestOptions

    def check(self, family: Family, portfolio: Portfolio) -> None:
        check_exact(family)
        minimiser(portfolio, current_plugins())

    def run(self, request: RadiusQuestion, oracle: OracleLike, progress: Progress = silent) -> Critical:
        started = time.monotonic()
        known = [s for s in request.history if s.kind == MINIMISE]
        step = known[-1] if known else None
        check_exact(request.family)
        if step is None:
            radius = min(request.largest or math.inf, request.family.largest)
            timeout = min(request.timeout, request.budget)
            try:
                asked = ask_closest(request, oracle, radius, timeout)
            except InputError as error:  # nobody minimises
                return Critical(0.0, None, SearchStatus.OPEN, reason=str(error))
            if asked is None:
                raise InputError("--std", "the same number for all channels", "several", "use another search")
            step = agreed(request.family, replace(asked[0], elapsed=time.monotonic() - started), asked[1])
            request.log(step)
        progress(1, 1, "")
        return result(step, request.tolerance)


def check_exact(family: Family) -> None:
    """The distance of the closest counterexample is the critical radius only of one condition for all radii."""
    if not family.exact:
        name = "" if family.prop is None else family.prop.name
        expected = "a property with one condition that proves and refutes at every radius"
        raise InputError("--search closest", expected, name, "use --search bracket")


def ask_closest(
    question: RadiusQuestion,
    oracle: OracleLike,
    radius: float,
    timeout: float,
) -> tuple[SearchStep, Witness | None] | None:
    """The closest counterexample within a radius, as a step; None where the region is no ball to the network."""
    family = question.family
    ball = family.network_ball(radius)
    if ball is None:
        return None
    scale = ball.radius / radius
    found = oracle.closest(family.query(radius), ball, timeout)
    verdict = Verdict.UNKNOWN if found.witness is None else Verdict.SAT
    status = PropertyStatus.OPEN if found.witness is None else PropertyStatus.REFUTED
    answer = Answer(verdict, found.verifier, found.reason, found.witness, seconds=found.seconds)
    finding = Finding(status, answer, answers=(answer,))
    proved = found.lower / scale * (1 - 1e-9)  # of moving between two units
    step = make_step(family, radius, finding, timeout, 0.0, MINIMISE)
    return replace(step, proved=proved if proved > 0 else None), found.witness


def agreed(family: Family, step: SearchStep, witness: Witness | None) -> SearchStep:
    """The step with its proof no farther than its point: an alarm, unless the point is one in floats only."""
    if step.proved is None or step.distance is None or step.proved <= step.distance:
        return step
    conflict(family, step.proved, step.distance, witness)
    return replace(step, proved=step.distance, flags=step.flags | {Flag.NUMERICAL})


def result(step: SearchStep, tolerance: float) -> Critical:
    """The bracket that one step gives."""
    lower, upper = step.proved or 0.0, step.distance
    none_within = upper is None and lower >= step.radius * (1 - 1e-6)
    closed = none_within or (upper is not None and upper - lower <= tolerance)
    return Critical(
        lower=lower,
        upper=upper,
        status=SearchStatus.CLOSED if closed else SearchStatus.OPEN,
        witness=step.witness,
        distance=upper,
        flags=step.flags,
        seconds=step.elapsed,
        queries=1,
        reason="" if closed else step.reason,
        steps=(step,),
    )
