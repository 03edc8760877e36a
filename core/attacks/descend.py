"""Gradient descent on a batch of targets: signed steps with a halving schedule, and Adam."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from verifolio.attacks.project import project, steepest
from verifolio.attacks.targets import Targets

Mode = Literal["sign", "adam"]
Watch = Callable[[Tensor, Tensor, Tensor], bool]
AIM = 1e-3  # hinges keep pulling until every row holds by this much (in units of its scale)


@dataclass(frozen=True)
class Schedule:
    """How one descent runs; `step` is the first step as a part of the box's width."""

    steps: int
    mode: Mode = "sign"
    step: float = 0.5  # from the middle every corner is one step away
    momentum: float = 0.75  # of Auto-PGD (Croce and Hein 2020)


def outputs(module: nn.Module, x: Tensor) -> Tensor:
    """Network values of inputs (T, S, n), as (T, S, m)."""
    flat: Tensor = module(x.reshape(-1, x.shape[-1]))
    return flat.reshape(*x.shape[:2], -1)


def loss_of(values: Tensor, hinged: Tensor) -> Tensor:
    """What is minimised, (T, S): the worst row, or where `hinged` (S) the sum of all violations."""
    worst = values.amax(-1)
    if not bool(hinged.any()):
        return worst
    return torch.where(hinged, (values + AIM).clamp_min(0).sum(-1), worst)


def slope_of(module: nn.Module, targets: Targets, x: Tensor, hinged: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss (T, S), row values (T, S, R) and the loss's gradient (T, S, n) at x."""
    x = x.detach().requires_grad_(True)
    values = targets.values(x, outputs(module, x))
    loss = loss_of(values, hinged)
    return loss.detach(), values.detach(), gradient(loss.sum(), x)


def gradient(total: Tensor, x: Tensor) -> Tensor:
    """Of a number with respect to points; nought where it does not depend on them, or is not defined."""
    if not total.requires_grad:
        return torch.zeros_like(x)
    (slope,) = torch.autograd.grad(total, x, allow_unused=True)
    return torch.zeros_like(x) if slope is None else torch.nan_to_num(slope)


def diversify(
    module: nn.Module, targets: Targets, x: Tensor, steps: int, generator: torch.Generator
) -> Tensor:
    """Starts that differ in output: signed steps along random output directions (Tashiro et al. 2020)."""
    m = targets.output_rows.shape[-1]
    direction = torch.rand((*x.shape[:2], m), generator=generator).to(x) * 2 - 1
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        slope = gradient((outputs(module, x) * direction).sum(), x)
        x = project(targets, x.detach() + 0.25 * steepest(targets, slope))
    return x.detach()


def descend(
    module: nn.Module, targets: Targets, x: Tensor, hinged: Tensor, schedule: Schedule, watch: Watch
) -> tuple[Tensor, Tensor]:
    """Best points (T, S, n) and their worst rows (T, S); `watch(x, values, worst)` may stop the descent."""
    run = _adam if schedule.mode == "adam" else _halving
    return run(module, targets, project(targets, x), hinged, schedule, watch)


class _Best:
    """The best point of every lane so far, by its worst row."""

    def __init__(self, x: Tensor) -> None:
        self.x = x.clone()
        self.worst = torch.full(x.shape[:2], math.inf, dtype=x.dtype, device=x.device)

    def update(self, x: Tensor, worst: Tensor) -> None:
        better = worst < self.worst
        self.worst = torch.where(better, worst, self.worst)
        self.x = torch.where(better[..., None], x, self.x)


def _checkpoints(steps: int) -> set[int]:
    """When to review the step size: periods shrink from 22 % of the steps to 6 % (Croce & Hein 2020)."""
    marks, previous, now = [0.0], 0.0, 0.22
    while now < 1:
        marks.append(now)
        previous, now = now, now + max(now - previous - 0.03, 0.06)
    return {math.ceil(p * steps) for p in marks[1:]}


def _halving(
    module: nn.Module, targets: Targets, x: Tensor, hinged: Tensor, schedule: Schedule, watch: Watch
) -> tuple[Tensor, Tensor]:
    """Steepest steps with momentum; a lane that stops improving halves its step and returns to its best."""
    best, low_loss = _Best(x), torch.full(x.shape[:2], math.inf, dtype=x.dtype, device=x.device)
    low_x, low_slope, before, last_loss = x, torch.zeros_like(x), x, low_loss
    step = torch.full_like(low_loss, schedule.step)
    gains, since = torch.zeros_like(low_loss), 0
    low_review, marks = low_loss, _checkpoints(schedule.steps)
    for k in range(schedule.steps + 1):
        loss, values, slope = slope_of(module, targets, x, hinged)
        worst = values.amax(-1)
        best.update(x, worst)
        if watch(x, values, worst) or k == schedule.steps:
            break
        gains, since = gains + (loss < last_loss), since + 1
        better = loss < low_loss
        low_loss, last_loss = torch.where(better, loss, low_loss), loss
        low_x = torch.where(better[..., None], x, low_x)
        low_slope = torch.where(better[..., None], slope, low_slope)
        if k in marks:
            stuck = (gains < 0.75 * since) | (low_review <= low_loss)
            step = torch.where(stuck, step / 2, step)
            x = torch.where(stuck[..., None], low_x, x)
            slope = torch.where(stuck[..., None], low_slope, slope)
            low_review, gains, since = low_loss, torch.zeros_like(gains), 0
        aim = project(targets, x + step[..., None] * steepest(targets, slope))
        mixed = x + schedule.momentum * (aim - x) + (1 - schedule.momentum) * (x - before)
        before, x = x, project(targets, mixed if k else aim)
    return best.x, best.worst


def _adam(
    module: nn.Module, targets: Targets, x: Tensor, hinged: Tensor, schedule: Schedule, watch: Watch
) -> tuple[Tensor, Tensor]:
    """Adam in units of the box's width, its rate falling to a hundredth along a cosine."""
    best, width = _Best(x), targets.width[:, None]
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(1, schedule.steps + 2):
        _, values, slope = slope_of(module, targets, x, hinged)
        worst = values.amax(-1)
        best.update(x, worst)
        if watch(x, values, worst) or k > schedule.steps:
            break
        slope = slope * width
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        rate = schedule.step * 0.2 * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * k / schedule.steps)))
        scaled = (first / (1 - 0.9**k)) / ((second / (1 - 0.99**k)).sqrt() + 1e-12)
        x = project(targets, x - rate * width * scaled)
    return best.x, best.worst
