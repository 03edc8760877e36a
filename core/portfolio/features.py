"""Sizes of a problem by which a portfolio passes a member over: where they are too large it would only waste time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from verifolio.model.problem import Problem, free_inputs

# A query can have thousands of regions, and bounding each takes longer than deciding most of them.
MEASURED = 16


def inputs(problem: Problem) -> int:
    """How many inputs can vary."""
    return free_inputs(problem.domain.lower, problem.domain.upper)


def unstable(problem: Problem) -> int:
    """How many ReLUs may have either phase by cheap bounds; all of a layer where nobody bounds it."""
    from verifolio.plugin.manager import current_plugins

    graph = problem.graph
    bounder = current_plugins().all_bounders().best(problem, at_most=0)
    found = bounder.bound([replace(problem, disjuncts=problem.disjuncts[:1])]) if bounder is not None else []
    total = 0
    for relu in graph.relus:
        p = graph.nodes[relu].parents[0]
        known = bool(found) and p in found[0].lower and p in found[0].upper
        total += (
            int(((found[0].lower[p] < 0) & (found[0].upper[p] > 0)).sum())
            if known
            else graph.nodes[p].op.size
        )
    return total


FEATURES: Mapping[str, tuple[str, Callable[[Problem], int]]] = {
    "inputs": ("free inputs", inputs),
    "neurons": ("nonlinear neurons", lambda problem: problem.graph.neurons),
    "unstable": ("unstable neurons", unstable),
    "disjuncts": ("disjuncts", lambda problem: len(problem.disjuncts)),
}


def beyond(
    limits: Mapping[str, int], problems: Sequence[Problem], known: dict[str, int] | None = None
) -> str | None:
    """The first feature of which some problem has more than a limit allows, in words; None: all are within.

    Of many problems, a few that are spread over them are measured. What is in `known` is not measured again.
    """
    known = {} if known is None else known
    some = problems[:: -(-len(problems) // MEASURED) or 1]
    for name, most in limits.items():
        words, measure = FEATURES[name]
        if name not in known:
            known[name] = max(map(measure, some), default=0)
        found = known[name]
        if found > most:
            return f"{found} {words}, more than {most}"
    return None
