"""Training regimes: what data a network sees and what loss it minimises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.errors import InputError
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.property import Property
from verifolio.plugin.regime import Regime

from .attacks import Ball, fgsm, pgd, plain_fgsm, points_of, violate

Pair = tuple[Tensor, Tensor]
Reference = Callable[[Tensor, Tensor], nn.Module]


@dataclass(frozen=True)
class Baseline(Regime):
    """Cross-entropy on the data as they are."""

    name: ClassVar[str] = "baseline"

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, part: float, random: torch.Generator) -> Tensor:
        return functional.cross_entropy(model(x), y)


@dataclass(frozen=True)
class Augment(Baseline):
    """Each image joined by `copies` more from its ball: uniform ones, or one gradient step away.

    The gradient steps are those of an ordinary network trained on the same training images.
    """

    name: ClassVar[str] = "augment"
    attack: Literal["uniform", "fgsm"] = "uniform"
    copies: int = 2  # original, and as many changed images again; a choice

    def prepare(self, x: Tensor, y: Tensor, random: torch.Generator, ordinary: Reference) -> Pair:
        if self.attack == "uniform":
            more = [self.ball.uniform(x, random) for _ in range(self.copies)]
        else:
            model = ordinary(x, y)
            radii = [self.ball.epsilon * (k + 1) / self.copies for k in range(self.copies)]
            more = [plain_fgsm(model, x, y, Ball(r, self.ball.low, self.ball.high)) for r in radii]
        return torch.cat([x, *more]), y.repeat(1 + self.copies)


@dataclass(frozen=True)
class Adversarial(Regime):
    """Cross-entropy at the points an attack finds: fgsm with a random start, pgd, or pgd against a property.

    The radius grows over the first `ramp` of the training; large radii from the start leave small networks
    with a constant answer.
    """

    name: ClassVar[str] = "adversarial"
    attack: Literal["fgsm", "pgd", "property"] = "pgd"
    steps: int = 10  # each a fourth of the radius, so that any corner is reached
    ramp: float = 0.3  # of the epochs until the radius is whole; at once on all of it training can collapse
    prop: Property | None = None

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, part: float, random: torch.Generator) -> Tensor:
        ball = grown(self.ball, part, self.ramp)
        if self.attack == "property" and self.prop is not None:
            worst = violate(self.prop, model, x, y, ball, random, self.steps)
            return functional.cross_entropy(model(worst), y)
        if self.attack == "fgsm":
            return functional.cross_entropy(model(fgsm(model, x, y, ball, random)), y)
        return functional.cross_entropy(model(pgd(model, x, y, ball, random, self.steps)), y)


@dataclass(frozen=True)
class Constraint(Regime):
    """alpha * cross-entropy + beta * the property's loss where an attack finds it largest (DL2)."""

    name: ClassVar[str] = "constraint"
    prop: Property | None = None
    alpha: float = 1.0
    beta: float = 0.2  # of Casadio et al. 2022
    steps: int = 10  # each a fourth of the radius, so that any corner is reached

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, part: float, random: torch.Generator) -> Tensor:
        if self.prop is None:
            raise InputError("regime constraint", "a property", "none", "--property standard")
        z = violate(self.prop, model, x, y, self.ball, random, self.steps)
        outputs = model(x)
        there = points_of(model(z), z, outputs, x, y, self.ball)
        return self.alpha * functional.cross_entropy(outputs, y) + self.beta * self.prop.loss(there).mean()


@dataclass(frozen=True)
class Certified(Regime):
    """Cross-entropy mixed with that of the worst margins a bounder can show, radius and share growing."""

    name: ClassVar[str] = "certified"
    bounder: Bounder | None = None
    share: float = 0.7  # of the certified loss at the end; more costs accuracy
    ramp: float = 0.6  # interval bounds need a slower start than attacks (Gowal et al. 2018)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError("--share", "a number from 0 to 1", repr(self.share))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, part: float, random: torch.Generator) -> Tensor:
        if self.bounder is None:
            raise InputError("regime certified", "a bounder", "none", "--bounder interval")
        outputs = model(x)
        clean = functional.cross_entropy(outputs, y)
        share = self.share * min(1.0, part / self.ramp)
        ball = grown(self.ball, part, self.ramp)
        margins = self.bounder.margins(model, *ball.box(x), label_rows(y, outputs.shape[1], x))
        # minus the margins are upper bounds of (other score - label's score), 0 at the label itself
        worst = functional.cross_entropy(-margins, y)
        return (1 - share) * clean + share * worst


def grown(ball: Ball, part: float, ramp: float) -> Ball:
    """The ball after `part` of the training, its radius growing over the first `ramp` of it."""
    now = min(1.0, part / ramp) if ramp > 0 else 1.0
    return Ball(ball.epsilon * now, ball.low, ball.high)


def label_rows(y: Tensor, classes: int, like: Tensor) -> Tensor:
    """Rows (B, K, K): the label's score minus each score."""
    one = torch.eye(classes, device=like.device, dtype=like.dtype)
    return one[y][:, None, :] - one[None]
