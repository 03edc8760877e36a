"""Sizes of a problem by which a portfolio passes a member over: where they are too large it would only waste time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from verifolio.problem import Problem, free_inputs


def inputs(problem: Problem) -> int:
    """How many inputs can vary."""
    return free_inputs(problem.domain.lower, problem.domain.upper)


def unstable(problem: Problem) -> int:
    """How many ReLUs may have either phase by cheap bounds; all of them where nobody can bound the problem."""
    from verifolio.registry import installed

    relus = problem.graph.relus
    bounder = installed().all_bounders().best(problem, at_most=0)
    if bounder is None:
        return sum(problem.graph.nodes[i].op.size for i in relus)
    bounds = bounder.bound([replace(problem, disjuncts=problem.disjuncts[:1])])[0]
    before = [problem.graph.nodes[i].parents[0] for i in relus]
    return sum(int(((bounds.lower[p] < 0) & (bounds.upper[p] > 0)).sum()) for p in before)


FEATURES: Mapping[str, tuple[str, Callable[[Problem], int]]] = {
    "inputs": ("free inputs", inputs),
    "neurons": ("nonlinear neurons", lambda problem: problem.graph.neurons),
    "unstable": ("unstable neurons", unstable),
    "disjuncts": ("disjuncts", lambda problem: len(problem.disjuncts)),
}


def beyond(limits: Mapping[str, int], problems: Sequence[Problem]) -> str | None:
    """The first feature of which some problem has more than a limit allows, in words; None: all are within."""
    for name, most in limits.items():
        words, measure = FEATURES[name]
        found = max(map(measure, problems), default=0)
        if found > most:
            return f"{found} {words}, more than {most}"
    return None
