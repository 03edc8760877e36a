"""Values and ranges of functions that jump: tables of levels, and roundings to whole numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from verifolio.graph.ops import Step, Whole

Interval = tuple[Tensor, Tensor]
RULES = {"floor": torch.floor, "trunc": torch.trunc, "round": torch.round}


class Table:
    """A step function as tensors of one type on one device."""

    def __init__(self, op: Step, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        self.breakpoints, self.levels, self.at = (
            torch.as_tensor(part, dtype=dtype, device=device) for part in (op.breakpoints, op.levels, op.at)
        )
        between = torch.stack([self.levels[:-1], self.at, self.levels[1:]])
        self.rises = bool((between[1:] >= between[:-1]).all())

    def value(self, x: Tensor) -> Tensor:
        """The function at x."""
        below = torch.searchsorted(self.breakpoints, x.contiguous())
        if not len(self.breakpoints):
            return self.levels[below]
        beside = below.clamp(max=len(self.breakpoints) - 1)
        return torch.where(self.breakpoints[beside] == x, self.at[beside], self.levels[below])

    def range(self, low: Tensor, high: Tensor) -> Interval:
        """The least and the greatest value on [low, high], both ends included."""
        if self.rises:
            return self.value(low), self.value(high)
        cells, points = self.met(low, high)
        values = torch.cat([self.levels, self.at])
        met = torch.cat([cells, points], -1)
        least = torch.where(met, values, torch.full_like(values, torch.inf)).amin(-1)
        most = torch.where(met, values, torch.full_like(values, -torch.inf)).amax(-1)
        return least, most

    def met(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Which open cells between breakpoints, and which breakpoints, [low, high] meets: two masks."""
        low, high = low[..., None], high[..., None]
        first, last = low < self.breakpoints, high > self.breakpoints
        one = torch.ones_like(first[..., :1]) if first.shape[-1] else torch.ones_like(low, dtype=torch.bool)
        cells = torch.cat([first, one], -1) & torch.cat([one, last], -1)
        return cells, (low <= self.breakpoints) & (high >= self.breakpoints)


def jumps(op: Step | Whole, x: Tensor) -> Tensor:
    """The distance of x from the nearest place where the function jumps."""
    if isinstance(op, Whole):
        shifted = x - 0.5 if op.rule == "round" else x
        return (shifted - torch.round(shifted)).abs()
    if not len(op.breakpoints):
        return torch.full_like(x, torch.inf)
    points = torch.as_tensor(op.breakpoints, dtype=x.dtype, device=x.device)
    right = torch.searchsorted(points, x.contiguous()).clamp(max=len(points) - 1)
    left = (right - 1).clamp(min=0)
    return torch.minimum((points[right] - x).abs(), (points[left] - x).abs())


class StraightThrough(torch.autograd.Function):
    """A jump's value, with a slope for searches that follow gradients (Bengio et al. 2013)."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grads[0] * slope, None, None


def surrogate(op: Step | Whole, x: Tensor) -> Tensor:
    """A slope that is steep near jumps: of an arc of the arctangent, as wide as points typically lie away."""
    if isinstance(op, Whole) or not len(op.breakpoints):
        return torch.ones_like(x)
    distance = jumps(op, x)
    width = distance.mean(-1, keepdim=True) + 1e-12
    return float(abs(op.levels).max()) / width / (1 + (distance / width) ** 2)
