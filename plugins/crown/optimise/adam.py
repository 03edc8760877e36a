"""Adam (Kingma and Ba 2015) in a dozen lines: the first `torch.optim` of a process imports a compiler for seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

# Short memories, where Kingma and Ba have 0.9 and 0.999: a search makes tens of steps, not thousands.
MEAN, SQUARE = 0.7, 0.95
TINY = 1e-8  # keeps the quotient finite where all gradients were nought; Kingma and Ba's value


class Adam:
    """Raises parameters along given gradients, each by its own rate."""

    def __init__(self, *groups: tuple[Iterable[Tensor], float]) -> None:
        pairs = [(p, rate) for tensors, rate in groups for p in tensors]
        self.parameters, self.rates = [p for p, _ in pairs], [rate for _, rate in pairs]
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None], scale: float = 1.0) -> None:
        """One step upward, at `scale` times the rates."""
        self.steps += 1
        first, second = 1 - MEAN**self.steps, 1 - SQUARE**self.steps
        every = zip(self.parameters, self.rates, gradients, self.means, self.squares, strict=True)
        for p, rate, gradient, mean, square in every:
            if gradient is not None:
                mean.lerp_(gradient, 1 - MEAN)
                square.mul_(SQUARE).addcmul_(gradient, gradient, value=1 - SQUARE)
                p.addcdiv_(mean, (square / second).sqrt_().add_(TINY), value=rate * scale / first)

    def pick(self, index: Tensor) -> None:
        """Go on with some rows of every parameter."""
        for held in (self.parameters, self.means, self.squares):
            held[:] = [t[index] for t in held]
