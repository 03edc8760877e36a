"""What a search on neurons has proved: every closed subproblem with its phases and the variables of its bound."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.search.neurons.subproblems import Subproblems

FIELDS = ("disjunct", "phase", "alpha", "beta", "mix")


@dataclass
class ProofRecord:
    """Closed subproblems as they come; one that outgrows its room (bytes) is dropped, and says so."""

    room: int
    parts: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in FIELDS})
    size: int = 0

    def full(self) -> bool:
        return self.size > self.room

    def add(self, items: Subproblems, variables: Variables) -> None:
        """Subproblems and the variables with which each was proved."""
        if self.full() or not len(items):
            return
        held = (items.disjunct, items.phase, variables.alpha, variables.beta, variables.mix)
        for name, part in zip(FIELDS, held, strict=True):
            kept = part if part.dtype in (torch.int8, torch.int64) else part.double()
            self.parts[name].append(kept.cpu())
            self.size += kept.numel() * kept.element_size()
        if self.full():
            self.parts = {name: [] for name in FIELDS}
