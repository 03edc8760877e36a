"""Sets of subproblems of a neuron search: which disjunct, which neurons are fixed, and the dual to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise import Dual

HALF = torch.float16  # the dual is only a starting point: half precision is plenty
LARGEST = 6e4  # what half precision holds


@dataclass
class Subproblems:
    """`signs[p]` (count, size) is +1 or -1 where neuron j of node p is fixed, 0 elsewhere.

    `mix` (count, rows) are the weights of the goal's rows. `branch` (count, candidates) are neurons to split
    next, best first, numbered through all nodes; -1: none left.
    """

    disjunct: Tensor
    bound: Tensor
    branch: Tensor
    mix: Tensor | None
    signs: dict[int, Tensor]
    alpha: dict[int, Tensor]
    beta: dict[int, Tensor]

    def __len__(self) -> int:
        return self.disjunct.shape[0]

    @property
    def bytes_each(self) -> int:
        parts = (*self.signs.values(), *self.alpha.values(), *self.beta.values())
        return sum(t.shape[1] * t.element_size() for t in parts)

    def pick(self, index: Tensor | slice) -> Subproblems:
        return Subproblems(
            self.disjunct[index],
            self.bound[index],
            self.branch[index],
            None if self.mix is None else self.mix[index],
            {p: s[index] for p, s in self.signs.items()},
            {i: a[index] for i, a in self.alpha.items()},
            {p: b[index] for p, b in self.beta.items()},
        )

    def dual(self, dtype: torch.dtype) -> Dual:
        """The stored variables in working precision; multipliers only where something is fixed."""
        alpha = {i: a.to(dtype) for i, a in self.alpha.items()}
        beta = {p: b.to(dtype) for p, b in self.beta.items() if bool(self.signs[p].any())}
        return Dual(alpha, beta, None if self.mix is None else self.mix.to(dtype))

    def with_dual(self, dual: Dual, bound: Tensor, branch: Tensor) -> Subproblems:
        """The same subproblems with new variables, bounds and branching decisions."""
        alpha = {i: dual.alpha[i].to(HALF) if i in dual.alpha else a for i, a in self.alpha.items()}
        beta = {
            p: dual.beta[p].clamp(max=LARGEST).to(HALF) if p in dual.beta else b for p, b in self.beta.items()
        }
        mix = self.mix if dual.mix is None else dual.mix.to(HALF)
        return Subproblems(self.disjunct, bound, branch, mix, self.signs, alpha, beta)

    def with_branch(self, branch: Tensor) -> Subproblems:
        return replace(self, branch=branch)

    def split(self) -> Subproblems:
        """Both children of every subproblem along its best candidate."""
        return Subproblems.join([self._fix(1), self._fix(-1)])

    def _fix(self, sign: int) -> Subproblems:
        signs, start = {}, 0
        for p, old in self.signs.items():
            signs[p] = old.clone()
            local = self.branch[:, 0] - start
            here = ((local >= 0) & (local < old.shape[1])).nonzero()[:, 0]
            signs[p][here, local[here]] = sign
            start += old.shape[1]
        return replace(self, signs=signs)

    @staticmethod
    def join(parts: list[Subproblems]) -> Subproblems:
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        return Subproblems(
            torch.cat([p.disjunct for p in parts]),
            torch.cat([p.bound for p in parts]),
            torch.cat([p.branch for p in parts]),
            None if first.mix is None else torch.cat([p.mix for p in parts if p.mix is not None]),
            {k: torch.cat([p.signs[k] for p in parts]) for k in first.signs},
            {k: torch.cat([p.alpha[k] for p in parts]) for k in first.alpha},
            {k: torch.cat([p.beta[k] for p in parts]) for k in first.beta},
        )
