"""Sets of subproblems of a neuron search: which disjunct, which neurons are fixed, and the dual to start from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise import Dual

HALF = torch.float16  # the dual is only a starting point: half precision is plenty


@dataclass
class Subproblems:
    """`signs[p]` (count, size) is +1 or -1 where neuron j of node p is fixed, 0 elsewhere."""

    disjunct: Tensor
    bound: Tensor
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
            {p: s[index] for p, s in self.signs.items()},
            {i: a[index] for i, a in self.alpha.items()},
            {p: b[index] for p, b in self.beta.items()},
        )

    def dual(self, dtype: torch.dtype) -> Dual:
        """The stored variables in working precision; multipliers only where something is fixed."""
        alpha = {i: a.to(dtype) for i, a in self.alpha.items()}
        beta = {p: b.to(dtype) for p, b in self.beta.items() if bool(self.signs[p].any())}
        return Dual(alpha, beta)

    def with_dual(self, dual: Dual, bound: Tensor) -> Subproblems:
        """The same subproblems with new variables and bounds."""
        alpha = {i: dual.alpha[i].to(HALF) if i in dual.alpha else a for i, a in self.alpha.items()}
        beta = {p: dual.beta[p].to(HALF) if p in dual.beta else b for p, b in self.beta.items()}
        return Subproblems(self.disjunct, bound, self.signs, alpha, beta)

    def fix(self, node: Tensor, neuron: Tensor, sign: int) -> Subproblems:
        """Every subproblem k with neuron[k] of node[k] fixed to a sign."""
        signs = {p: s.clone() for p, s in self.signs.items()}
        for p in signs:
            here = (node == p).nonzero()[:, 0]
            signs[p][here, neuron[here]] = sign
        return Subproblems(self.disjunct, self.bound, signs, self.alpha, self.beta)

    @staticmethod
    def join(parts: list[Subproblems]) -> Subproblems:
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        return Subproblems(
            torch.cat([p.disjunct for p in parts]),
            torch.cat([p.bound for p in parts]),
            {k: torch.cat([p.signs[k] for p in parts]) for k in first.signs},
            {k: torch.cat([p.alpha[k] for p in parts]) for k in first.alpha},
            {k: torch.cat([p.beta[k] for p in parts]) for k in first.beta},
        )
