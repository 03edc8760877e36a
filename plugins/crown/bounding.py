"""Bounds of many subproblems of one root: variables are sought in float32 and proved in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verifolio.plugins.crown.ascent import Ascended, Variables, ascend
from verifolio.plugins.crown.branching import CANDIDATES, rank
from verifolio.plugins.crown.condensed import Condensed
from verifolio.plugins.crown.optimise import Dual, Result, evaluate
from verifolio.plugins.crown.root import Root
from verifolio.plugins.crown.subproblems import HALF, Subproblems
from verifolio.run.budget import Budget

RESERVE = 1.5  # a bound that seems positive by this many times the rounding last charged will be


@dataclass(frozen=True)
class Bounded:
    """What was found for some subproblems, and what it proves."""

    found: Ascended
    result: Result

    def pick(self, index: Tensor) -> Bounded:
        result = replace(self.result, margin=self.result.margin[index], captured={})
        return Bounded(self.found.pick(index), result)

    @property
    def margin(self) -> Tensor:
        """Proved lower bounds (count,) in float64."""
        return self.result.margin[:, 0]


class Bounding:
    """The root in both types; `net` is the root as matrices."""

    def __init__(self, root: Root, net: Condensed, budget: Budget) -> None:
        self.root, self.net, self.budget = root, net, budget
        self.exact = root.double()  # in float32 rounding may eat the margins of deep networks
        self.reserve = 0.0

    def first(self) -> Subproblems:
        """One subproblem per open goal, nothing fixed; its weights favour the row that is nearest to a proof."""
        root, net = self.root, self.net
        count, height = root.goal.rhs.shape
        with torch.no_grad():
            margin = evaluate(root.program, root.cut(count, {}), root.goal, {}, Dual()).margin
        best = torch.nn.functional.one_hot(margin.nan_to_num(nan=-torch.inf).argmax(1), height)
        alpha = (net.high > -net.low).to(HALF).expand(count, -1)
        device = alpha.device
        return Subproblems(
            torch.arange(count, device=device),
            torch.full((count,), -torch.inf, device=device),
            torch.full((count, CANDIDATES), -1, device=device),
            torch.zeros(count, net.kept, dtype=torch.int8, device=device),
            Variables(alpha, torch.zeros_like(alpha), (0.7 * best + 0.3 / height).to(HALF)),
        )

    def rows(self, items: Subproblems) -> Tensor:
        """The numbers of each subproblem's rows among the goal's (count, rows)."""
        height = self.root.goal.rhs.shape[1]
        return items.disjunct[:, None] * height + torch.arange(height, device=items.disjunct.device)

    def ascend(self, items: Subproblems, iterations: int) -> Ascended:
        """Variables and what they seem to give."""
        first = items.variables.to(self.root.program.space.dtype)
        return ascend(self.net, items.phase, self.rows(items), first, iterations, self.reserve, self.budget)

    def bound(self, items: Subproblems, iterations: int) -> Bounded:
        """Variables and what they prove."""
        found = self.ascend(items, iterations)
        result = self.exact.prove(items.disjunct, items.phase, found.best.to(torch.float64))
        lost = (found.margin - result.margin[:, 0].to(found.margin.dtype)).nan_to_num(0.0, 0.0, 0.0)
        self.reserve = RESERVE * float(lost.max())
        return Bounded(found, result)

    def ranked(self, items: Subproblems, done: Bounded) -> Subproblems:
        """The subproblems with their new bounds, starting variables and branching candidates."""
        branch = rank(self.net, items.phase, self.rows(items), done.found)
        bound = torch.fmax(done.margin.to(items.bound.dtype), items.bound)
        return items.bounded(done.found.best, bound, branch)
