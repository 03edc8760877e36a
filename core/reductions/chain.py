"""Finding a chain of reductions whose result a member does not refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Problem
from verifolio.reductions.reduction import ALL, Reduction

Array = NDArray[np.float64]
Refuses = Callable[[Problem], str | None]
# every reduction once, for the longest chain that there is: ball, input rows, mixed rows, disjunction
MAX_STEPS = 4


@dataclass(frozen=True)
class ReductionStep:
    """A reduction and the problem it was applied to."""

    reduction: Reduction
    problem: Problem


@dataclass(frozen=True)
class Reduced:
    """A problem a member accepts, and the steps that led to it, first one first."""

    problem: Problem
    steps: tuple[ReductionStep, ...] = ()

    def lift(self, point: Array) -> Array:
        """A point of the reduced problem as a point of the original one."""
        for step in reversed(self.steps):
            point = step.reduction.lift(step.problem, point)
        return point


def reduce_for(
    refuses: Refuses, problem: Problem, reductions: Sequence[Reduction] = ALL
) -> tuple[Reduced, ...] | str:
    """What to give to a member instead of `problem`, the problem itself if it will; or why it refuses."""
    reason = refuses(problem)
    if reason is None:
        return (Reduced(problem),)
    found = _search(refuses, Reduced(problem), reductions, MAX_STEPS)
    return reason if found is None else found


def _search(
    refuses: Refuses, start: Reduced, reductions: Sequence[Reduction], steps: int
) -> tuple[Reduced, ...] | None:
    """Each reduction at most once, in order; the first chain whose results are all accepted."""
    for k, reduction in enumerate(reductions):
        if steps == 0 or not reduction.accepts(start.problem):
            continue
        way = (*start.steps, ReductionStep(reduction, start.problem))
        parts = [Reduced(p, way) for p in reduction.apply(start.problem)]
        solved: list[Reduced] = []
        for part in parts:
            if refuses(part.problem) is None:
                solved.append(part)
                continue
            deeper = _search(refuses, part, reductions[k + 1 :], steps - 1)
            if deeper is None:
                break
            solved += deeper
        else:
            return tuple(solved)
    return None
