"""Sets of subproblems of a neuron search: which disjunct, which neurons are fixed, and where bounding starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.ascent import Variables

HALF = torch.float16  # the variables are only a starting point: half precision is plenty
LARGEST = 6e4  # what half precision holds


@dataclass(frozen=True)
class Subproblems:
    """`phase` (count, kept) is +1 or -1 where a neuron is fixed, 0 elsewhere.

    `branch` (count, candidates) are neurons to split next, best first; -1: none left.
    """

    disjunct: Tensor
    bound: Tensor
    branch: Tensor
    phase: Tensor
    variables: Variables

    def __len__(self) -> int:
        return self.disjunct.shape[0]

    def depth(self) -> Tensor:
        """How many neurons are fixed (count,)."""
        return self.phase.abs().sum(1, dtype=torch.int64)

    def pick(self, index: Tensor | slice) -> Subproblems:
        return Subproblems(
            self.disjunct[index],
            self.bound[index],
            self.branch[index],
            self.phase[index],
            self.variables.pick(index),
        )

    def bounded(self, variables: Variables, bound: Tensor, branch: Tensor) -> Subproblems:
        """The same subproblems with new variables, bounds and branching decisions."""
        return replace(self, variables=variables.to(HALF, LARGEST), bound=bound, branch=branch)

    def choose(self, candidate: Tensor) -> Subproblems:
        """The same with one candidate alone, by its number (count, 1)."""
        return replace(self, branch=self.branch.gather(1, candidate))

    def split(self) -> Subproblems:
        """Both children of every subproblem along its best candidate."""
        return Subproblems.join([self._fix(1), self._fix(-1)])

    def _fix(self, sign: int) -> Subproblems:
        return replace(self, phase=self.phase.scatter(1, self.branch[:, :1], sign))

    @classmethod
    def join(cls, parts: list[Subproblems]) -> Subproblems:
        if len(parts) == 1:
            return parts[0]
        columns = {
            n: torch.cat([getattr(p, n) for p in parts]) for n in ("disjunct", "bound", "branch", "phase")
        }
        return Subproblems(**columns, variables=Variables.join([p.variables for p in parts]))
