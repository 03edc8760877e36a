"""The regime interface: what data a network sees in training and what loss it minimises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from verifolio.plugin.property import Reference

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class BatchBall:
    """The maximum-norm ball around every image of a batch, cut with the legal range."""

    epsilon: float
    low: float = 0.0
    high: float = 1.0

    def box(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (x - self.epsilon).clamp_min(self.low), (x + self.epsilon).clamp_max(self.high)

    def uniform(self, x: Tensor, random: torch.Generator) -> Tensor:
        """One point of each ball."""
        import torch

        lower, upper = self.box(x)
        return lower + torch.rand(lower.shape, generator=random) * (upper - lower)

    def reference(self, image: Tensor, label: int) -> Reference:
        """What a property is about at one image."""
        flat = image.detach().double().numpy().ravel()
        return Reference(flat, label, self.epsilon, lower=self.low, upper=self.high)


@dataclass(frozen=True)
class Regime(ABC):
    """A frozen dataclass whose fields are its options; subclasses set `name` and write `loss`.

    A field that is called like an option of `verifolio train` (`attack`, `steps`, `prop`, `alpha`, `beta`, `bounder`,
    `share`, `copies`) gets its value, any other one that of `--regime-option key=value`.
    """

    name: ClassVar[str]
    ball: BatchBall = field(default_factory=lambda: BatchBall(0.1))

    @classmethod
    def available(cls) -> str | None:
        """Why this regime cannot be used here, or None; must not import heavy modules."""
        return None

    def prepare(
        self, x: Tensor, y: Tensor, random: torch.Generator, ordinary: Callable[[Tensor, Tensor], nn.Module]
    ) -> tuple[Tensor, Tensor]:
        """The training set; `ordinary(x, y)` trains a network of the same kind by cross-entropy alone."""
        return x, y

    @abstractmethod
    def loss(self, model: nn.Module, x: Tensor, y: Tensor, part: float, random: torch.Generator) -> Tensor:
        """The loss of a batch; `part` of the training is done (0 to 1)."""
