"""Bounds of many subproblems of one root: variables are sought in float32 and proved in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.ascent import Ascended, Variables, ascend
from verifolio.plugins.crown.optimise.dual import BoundResult, Dual, evaluate
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.search.neurons.scores import CANDIDATES, rank
from verifolio.plugins.crown.search.neurons.subproblems import HALF, Subproblems
from verifolio.plugins.crown.search.root import Root
from verifolio.run.budget import Budget

# A bound in float32 that exceeds this many times the rounding last charged is taken for proved, and ends the ascent.
# The proof decides: too small a number costs a proof that fails, too large a number steps that nobody needs.
RESERVE = 1.5
# weight of the row that is nearest to a proof; the rest is shared, so that gradients reach all rows
FIRST_MIX = 0.7


@dataclass(frozen=True)
class BoundedSubproblems:
    """What was found for some subproblems, and what it proves."""

    found: Ascended
    result: BoundResult

    def pick(self, index: Tensor) -> BoundedSubproblems:
        result = replace(self.result, margin=self.result.margin[index], captured={})
        return BoundedSubproblems(self.found.pick(index), result)

    @property
    def margin(self) -> Tensor:
        """Proved lower bounds (count,) in float64."""
        return self.result.margin[:, 0]


class SubproblemBounds:
    """The root in both types; `net` is the root as matrices."""

    def __init__(self, root: Root, net: Condensed, budget: Budget) -> None:
        self.root, self.net, self.budget = root, net, budget
        self.exact = root.double()  # in float32 rounding may eat the margins of deep networks
        self.reserve = 0.0
        self.width = max(root.program.sizes)  # numbers that a subproblem needs at least

    def first(self) -> Subproblems:
        """One subproblem per open goal, nothing fixed; its weights favour the row that is nearest to a proof."""
        root, net = self.root, self.net
        count, height = root.goal.rhs.shape
        with torch.no_grad():
            margin = evaluate(root.program, root.cut(count, {}), root.goal, {}, Dual()).margin
        best = torch.nn.functional.one_hot(margin.nan_to_num(nan=-torch.inf).argmax(1), height)
        alpha = net.high > -net.low if root.slopes is None else root.slopes
        alpha = alpha.to(HALF).expand(count, -1)
        device = alpha.device
        return Subproblems(
            torch.arange(count, device=device),
            torch.full((count,), -torch.inf, device=device),
            torch.full((count, CANDIDATES), -1, device=device),
            torch.zeros(count, net.kept, dtype=torch.int8, device=device),
            Variables(alpha, torch.zeros_like(alpha), (FIRST_MIX * best + (1 - FIRST_MIX) / height).to(HALF)),
        )

    def rows(self, items: Subproblems) -> Tensor:
        """The numbers of each subproblem's rows among the goal's (count, rows)."""
        height = self.root.goal.rhs.shape[1]
        return items.disjunct[:, None] * height + torch.arange(height, device=items.disjunct.device)

    def ascend(self, items: Subproblems, iterations: int) -> Ascended:
        """Variables and what they seem to give."""
        first = items.variables.to(self.root.program.space.dtype)
        return ascend(self.net, items.phase, self.rows(items), first, iterations, self.reserve, self.budget)

    def bound(self, items: Subproblems, iterations: int) -> BoundedSubproblems:
        """Variables and what they prove."""
        found = self.ascend(items, iterations)
        result = self.prove(items, found.best.to(torch.float64))
        lost = (found.margin - result.margin[:, 0].to(found.margin.dtype)).nan_to_num(0.0, 0.0, 0.0)
        self.reserve = RESERVE * float(lost.max())
        return BoundedSubproblems(found, result)

    def prove(self, items: Subproblems, variables: Variables) -> BoundResult:
        """What the variables prove, all rounding included."""
        return self.exact.prove(items.disjunct, items.phase, variables)

    def ranked(self, items: Subproblems, done: BoundedSubproblems) -> Subproblems:
        """The subproblems with their new bounds, starting variables and branching candidates."""
        branch = rank(self.net, items.phase, self.rows(items), done.found)
        bound = torch.fmax(done.margin.to(items.bound.dtype), items.bound)
        return items.bounded(done.found.best, bound, branch)
