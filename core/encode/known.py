"""What is known about a problem's neurons: the evidence, and what one bounder adds to it."""

from __future__ import annotations

from dataclasses import replace

from verifolio.errors import InputError
from verifolio.model.problem import Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.verifier import Context


def chosen_bounder(problem: Problem, context: Context, verifier: str, name: str) -> Bounder | None:
    """The bounder a verifier's option names, or the tightest willing one where it names none."""
    if name and name not in context.bounders:
        offered = ", ".join(context.bounders) or "none"
        raise InputError(f"{verifier} option bounder", f"one of {offered}", name, "see `verifolio plugins`")
    return context.bounders[name] if name else context.bounders.best(problem)


def known_bounds(problem: Problem, context: Context, bounder: Bounder | None) -> Bounds | None:
    """The evidence's bounds intersected with those of a bounder, which the evidence gets unless they are foreign."""
    known = context.evidence.bounds_for(problem)
    if bounder is None:
        return known
    found = bounder.bound([problem], context.budget, known)[0]
    found = replace(found, foreign=found.foreign or bounder.foreign)
    context.evidence.add_bounds(found)
    return found if known is None else found.intersect(known)
