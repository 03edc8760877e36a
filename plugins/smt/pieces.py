"""Cutting a box with few inputs into pieces on which bounds leave few phases open, and most are refuted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from verifolio.model.problem import Domain, Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds
from verifolio.run.budget import Budget

# of some width: a cut tries all of them, and with more inputs a halved box hardly fixes a phase
MOST_INPUTS = 6
Piece = tuple[Problem, Bounds]


def open_phases(problem: Problem, bounds: Bounds | None) -> int:
    """How many ReLUs the bounds leave undecided; those without bounds are left out."""
    total = 0
    for relu in problem.graph.relus:
        read = problem.graph.nodes[relu].parents[0]
        if bounds is not None and read in bounds.lower and read in bounds.upper:
            total += int(((bounds.lower[read] < 0) & (bounds.upper[read] > 0)).sum())
    return total


def cut(
    problem: Problem, bounds: Bounds, bounder: Bounder, few: int, most: int, budget: Budget
) -> list[Piece]:
    """Pieces that cover every possible counterexample, each with at most `few` open phases if `most` allow it.

    A box is bisected across the input that leaves the fewest phases open in both halves. Both halves hold their
    common face, and a half is dropped only where bounds prove that no disjunct can hold on it.
    """
    wide = np.flatnonzero(problem.domain.lower < problem.domain.upper)
    if problem.domain.ball is not None or not 0 < len(wide) <= MOST_INPUTS:
        return [(problem, bounds)]
    done: list[Piece] = []
    waiting: list[Piece] = [(problem, bounds)]
    while waiting:
        piece = waiting.pop()
        full = len(done) + len(waiting) >= most or budget.expired()
        if full or open_phases(*piece) <= few:
            done.append(piece)
            continue
        pairs = [pair for k in wide if (pair := _halves(piece[0].domain, int(k)))]
        if not pairs:
            done.append(piece)
            continue
        halves = [problem.with_domain(d) for pair in pairs for d in pair]
        found = list(zip(halves, bounder.bound(halves, budget), strict=True))
        waiting += _best([found[i : i + 2] for i in range(0, len(found), 2)])
    return done


def _halves(domain: Domain, k: int) -> tuple[Domain, ...]:
    """Both halves across input k; none where doubles leave no room between."""
    middle = domain.lower[k] / 2 + domain.upper[k] / 2
    if not domain.lower[k] < middle < domain.upper[k]:
        return ()
    lower, upper = domain.lower.copy(), domain.upper.copy()
    lower[k] = upper[k] = middle
    return replace(domain, upper=upper), replace(domain, lower=lower)


def _best(pairs: Sequence[Sequence[Piece]]) -> list[Piece]:
    """The live halves of the cut after which the fewest cases are left: two for every open phase."""
    lives = [[piece for piece in pair if not refuted(*piece)] for pair in pairs]
    return min(lives, key=lambda live: sum(2.0 ** open_phases(*piece) for piece in live))


def refuted(problem: Problem, bounds: Bounds) -> bool:
    """Whether every disjunct has a row that bounds prove to fail."""
    return bounds.least_margin(problem) > 0
