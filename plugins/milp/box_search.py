"""Bisecting the input box: bounds refute most halves, small models decide the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from verifolio.encode.model import Array
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds

from .margin_search import HINGES, Finding
from .probe import Probe

if TYPE_CHECKING:
    from .decide import Decider

BATCH = 32  # boxes bounded at once: a bounder's calls are spread over them, and depth first stays depth first
QUICK = 10  # the largest tightness of a bounder that is asked about thousands of boxes; that of CROWN without steps
# Unstable neurons and branches of a box that is decided rather than cut. Choices: larger ones solve programs where a
# cut would have fixed phases for nothing, smaller ones cut boxes that one program decides.
LEAF, LEAF_NODES = 48, 48
MOST_DOUBTS = 8  # boxes that stay open at the end of halving: one prevents a proof, the rest may hold a point


class BoxSearch:
    """Depth first, in batches; a box is cut across the input that moves the margin most."""

    def __init__(self, problem: Problem, decider: Decider, bounder: Bounder, probe: Probe) -> None:
        self.problem, self.decider, self.bounder = problem, decider, bounder
        self.probe = probe
        self.floor, self.doubts = np.inf, 0

    @classmethod
    def of(cls, problem: Problem, decider: Decider, probe: Probe) -> BoxSearch | None:
        """None where boxes would not help: many inputs, a ball, or nobody to bound them."""
        wide = int((problem.domain.lower < problem.domain.upper).sum())
        name, bounders = decider.options.bounder, decider.context.bounders
        bounder = bounders[name] if name else bounders.best(problem, QUICK)
        if bounder is None or problem.domain.ball is not None or not 0 < wide <= decider.options.split:
            return None
        return cls(problem, decider, bounder, probe)

    def run(self) -> Finding:
        stack = [self.problem.domain]
        budget = self.decider.context.budget
        while stack:
            if budget.expired():
                return Finding(-np.inf, reason="out of time")
            if self.doubts >= MOST_DOUBTS:
                break
            batch, stack = stack[-BATCH:], stack[:-BATCH]
            problems = [self.problem.with_domain(d) for d in batch]
            found = self.bounder.bound(problems, budget)
            self.decider.counts.boxes += len(batch)
            still = [(p, b) for p, b in zip(problems, found, strict=True) if not self._refuted(p, b)]
            if still:
                point, halves = self._open(still)
                if point is not None:
                    return Finding(-np.inf, point)
                stack += halves
        if self.doubts:
            return Finding(-np.inf, reason=f"{HINGES} (a small box stays open)", final=True)
        self.decider.counts.proofs.append("boxes, certified")
        return Finding(self.floor)

    def _refuted(self, problem: Problem, bounds: Bounds) -> bool:
        least = bounds.least_margin(problem)
        if least > 0:
            self.floor = min(self.floor, least)
        return least > 0

    def _open(self, still: list[tuple[Problem, Bounds]]) -> tuple[Array | None, list[Domain]]:
        """A counterexample in one of the boxes, or the halves of those that small models do not decide."""
        points, influence = self.probe.look([p.domain for p, _ in still])
        for x in points:
            if self.decider.context.check(x):
                return x, []
        halves: list[Domain] = []
        for (problem, bounds), moves in zip(still, influence, strict=True):
            if unstable(bounds, problem) <= LEAF:
                finding = self.decider.box(problem, bounds, LEAF_NODES, self.decider.context)
                if finding.point is not None:
                    return finding.point, []
                self.doubts += finding.final
                if finding.bound > 0 or finding.final:
                    self.floor = min(self.floor, finding.bound) if finding.bound > 0 else self.floor
                    continue
            pair = bisect(problem.domain, moves)
            self.doubts += not pair
            halves += pair
        return None, halves


def unstable(bounds: Bounds, problem: Problem) -> int:
    """How many neurons may be on either side of zero."""
    read = {problem.graph.nodes[i].parents[0] for i in problem.graph.relus}
    known = [i for i in read if i in bounds.lower and i in bounds.upper]
    if len(known) < len(read):
        return problem.graph.neurons
    return sum(int(((bounds.lower[i] < 0) & (bounds.upper[i] > 0)).sum()) for i in known)


def bisect(domain: Domain, moves: Array) -> list[Domain]:
    """Both halves across the input with the largest say; none where doubles leave no room between."""
    middle = domain.lower / 2 + domain.upper / 2
    wide = (domain.lower < middle) & (middle < domain.upper)
    if not wide.any():
        return []
    k = int(np.where(wide, moves, -1.0).argmax())
    lower, upper = domain.lower.copy(), domain.upper.copy()
    lower[k] = upper[k] = middle[k]
    return [replace(domain, upper=upper), replace(domain, lower=lower)]
