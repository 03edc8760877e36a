"""Adam (Kingma and Ba 2015) in a dozen lines: the first `torch.optim` of a process imports a compiler for seconds."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

# Short memories: a search makes tens of steps, not thousands.
MEAN, SQUARE = 0.7, 0.95
TINY = 1e-8


class Adam:
    """Descends the gradients of groups of parameters, each group at its own rate."""

    def __init__(self, *groups: tuple[Iterable[Tensor], float]) -> None:
        self.parameters = [(p, rate) for tensors, rate in groups for p in tensors]
        self.means = [torch.zeros_like(p) for p, _ in self.parameters]
        self.squares = [torch.zeros_like(p) for p, _ in self.parameters]
        self.steps = 0

    def zero_grad(self) -> None:
        for p, _ in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self, scale: float = 1.0) -> None:
        """One step, at `scale` times the rates."""
        self.steps += 1
        first, second = 1 - MEAN**self.steps, 1 - SQUARE**self.steps
        for (p, rate), mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            if p.grad is not None:
                mean.lerp_(p.grad, 1 - MEAN)
                square.mul_(SQUARE).addcmul_(p.grad, p.grad, value=1 - SQUARE)
                p.addcdiv_(mean, (square / second).sqrt_().add_(TINY), value=-rate * scale / first)
