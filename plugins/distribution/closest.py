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
from verifolio.plugin.choice import Choice
from verifolio.plugin.estimator import Estimator, Progress, silent
from verifolio.plugin.verifier import Verifier
from verifolio.portfolio.tree import class_of
from verifolio.properties.verdict import Finding
from verifolio.properties.verdict import Status as Decided
from verifolio.solve.oracle import Oracle

from .family import Family
from .search import Critical, Question, Status, Step, conflict, make_step

MINIMISE = "minimise"


@dataclass(frozen=True)
class ClosestOptions:
    """There is nothing to choose: the verifier is the portfolio's."""


class Closest(Estimator):
    """The distance of the point that one verifier finds, and the distance that it proves."""

    name: ClassVar[str] = "closest"
    Options: ClassVar[type] = ClosestOptions
    Request: ClassVar[type] = Question
    options: ClosestOptions

    def run(self, request: Question, oracle: Oracle, progress: Progress = silent) -> Critical:
        started = time.monotonic()
        known = [s for s in request.history if s.kind == MINIMISE]
        step = known[-1] if known else None
        check_exact(request.family)
        try:
            verifier = chosen(oracle)
        except InputError as error:
            return Critical(0.0, None, Status.OPEN, reason=str(error))
        if step is None:
            radius = min(request.largest or math.inf, request.family.largest)
            timeout = min(request.timeout, request.budget)
            asked = ask_closest(request, oracle, radius, timeout, verifier)
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


def chosen(oracle: Oracle) -> Choice | Verifier | None:
    """The portfolio's first member that minimises; None leaves the choice to the oracle. An error if none does."""
    members = [] if oracle.portfolio is None else [m.verifier for m in oracle.portfolio.members]
    if not members:
        return None
    for member in members:
        cls = class_of(member, oracle.plugins)
        if cls is not None and cls.can_minimise:
            return member
    names = ", ".join(m.name for m in members)
    raise InputError("--verifier", "one that minimises distances", names, "try milp, pointwise-lp or lbfgs")


def ask_closest(
    question: Question,
    oracle: Oracle,
    radius: float,
    timeout: float,
    verifier: Choice | Verifier | None = None,
) -> tuple[Step, Witness | None] | None:
    """The closest counterexample within a radius, as a step; None where the region is no ball to the network."""
    family = question.family
    ball = family.network_ball(radius)
    if ball is None:
        return None
    scale = ball.radius / radius
    found = oracle.closest(family.query(radius), ball, verifier, timeout=timeout)
    verdict = Verdict.UNKNOWN if found.witness is None else Verdict.SAT
    status = Decided.OPEN if found.witness is None else Decided.REFUTED
    answer = Answer(verdict, found.verifier, found.reason, found.witness, seconds=found.seconds)
    finding = Finding(status, answer, answers=(answer,))
    proved = found.lower / scale * (1 - 1e-9)  # of moving between two units
    step = make_step(family, radius, finding, timeout, 0.0, MINIMISE)
    return replace(step, proved=proved if proved > 0 else None), found.witness


def agreed(family: Family, step: Step, witness: Witness | None) -> Step:
    """The step with its proof no farther than its point: an alarm, unless the point is one in floats only."""
    if step.proved is None or step.distance is None or step.proved <= step.distance:
        return step
    conflict(family, step.proved, step.distance, witness)
    return replace(step, proved=step.distance, flags=step.flags | {Flag.NUMERICAL})


def result(step: Step, tolerance: float) -> Critical:
    """The bracket that one step gives."""
    lower, upper = step.proved or 0.0, step.distance
    none_within = upper is None and lower >= step.radius * (1 - 1e-6)
    closed = none_within or (upper is not None and upper - lower <= tolerance)
    return Critical(
        lower=lower,
        upper=upper,
        status=Status.CLOSED if closed else Status.OPEN,
        witness=step.witness,
        distance=upper,
        flags=step.flags,
        seconds=step.elapsed,
        queries=1,
        reason="" if closed else step.reason,
        steps=(step,),
    )
