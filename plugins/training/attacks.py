"""Gradient attacks on whole batches, for training: fast and plain, no replay, no proof."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.plugin.property import Points, Property
from verifolio.plugin.regime import BatchBall as Ball

Box = tuple[Tensor, Tensor]
Objective = Callable[[Tensor], Tensor]


def uniform(box: Box, random: torch.Generator) -> Tensor:
    lower, upper = box
    return lower + torch.rand(lower.shape, generator=random) * (upper - lower)


def region_of(prop: Property, x: Tensor, y: Tensor, ball: Ball) -> Box:
    """The boxes that the property's points come from, one per image of a batch."""
    if type(prop).region is Property.region:
        return ball.box(x)
    boxes = [prop.region(ball.reference(a, int(b))) for a, b in zip(x, y, strict=True)]
    lower, upper = (
        torch.from_numpy(np.stack(side)).to(x).reshape(x.shape) for side in zip(*boxes, strict=True)
    )
    return lower, upper


def climb(objective: Objective, box: Box, start: Tensor, steps: int, step: float) -> Tensor:
    """Signed-gradient ascent of a per-point objective inside boxes; the last iterate."""
    lower, upper = box
    z = start
    for _ in range(steps):
        z = z.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(objective(z).sum(), z)
        z = slope.sign_().mul_(step).add_(z.detach())
        torch.minimum(torch.maximum(z, lower, out=z), upper, out=z)
    return z.detach()


def fgsm(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, random: torch.Generator) -> Tensor:
    """One step of 1.25 epsilon from a random start (Wong, Rice and Kolter 2020)."""
    return climb(_wrong(model, y), ball.box(x), ball.uniform(x, random), 1, 1.25 * ball.epsilon)


def plain_fgsm(model: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
    """One step of epsilon from the input itself (Goodfellow et al. 2015)."""
    return climb(_wrong(model, y), ball.box(x), x, 1, ball.epsilon)


def pgd(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, random: torch.Generator, steps: int) -> Tensor:
    """Many small steps from a random start (Madry et al. 2018)."""
    step = 2.5 * ball.epsilon / max(steps, 1)
    return climb(_wrong(model, y), ball.box(x), ball.uniform(x, random), steps, step)


def violate(
    prop: Property, model: nn.Module, x: Tensor, y: Tensor, ball: Ball, random: torch.Generator, steps: int
) -> Tensor:
    """PGD against a property: descend the loss of its negation from a random start in its region."""
    with torch.no_grad():
        before = model(x)

    def objective(z: Tensor) -> Tensor:
        return -prop.violation(points_of(model(z), z, before, x, y, ball))

    box = region_of(prop, x, y, ball)
    return climb(objective, box, uniform(box, random), steps, 2.5 * ball.epsilon / max(steps, 1))


def points_of(outputs: Tensor, z: Tensor, before: Tensor, x: Tensor, y: Tensor, ball: Ball) -> Points:
    """A batch of image-shaped tensors as the flat points that properties read."""
    return Points(z.flatten(1), outputs, x.flatten(1), before, y, ball.epsilon)


def _wrong(model: nn.Module, y: Tensor) -> Objective:
    return lambda z: functional.cross_entropy(model(z), y, reduction="none")
