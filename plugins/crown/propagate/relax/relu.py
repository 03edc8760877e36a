"""ReLU: the triangle (Ehlers 2017) with one lower line (Zhang et al. 2018), its slope free (Xu et al. 2021)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.relax.base import Interval, Lines, Relaxation


class ReluRelaxation(Relaxation):
    """The parameter is the slope of the lower line on unstable neurons."""

    homogeneous: ClassVar[bool] = True

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = inputs[0]
        return lower.clamp(min=0), upper.clamp(min=0)

    def lines(self, parameter: Tensor | None, *inputs: Interval) -> Lines:
        lower, upper = inputs[0]
        low, high = lower.clamp(max=0), upper.clamp(min=0)
        tiny = torch.finfo(low.dtype).tiny
        slope = high / (high - low).clamp(min=tiny)
        # the chord must stay above both ends after rounding: the reserve is a few ulps of either end
        unit = torch.finfo(low.dtype).eps
        unstable = (lower < 0) & (upper > 0)
        lift = slope * (unit * 4 * (high - low) - low) + tiny
        # many lifts of one sign are added up later: the last factor outweighs the rounding of that sum
        lift = torch.where(unstable, lift * (1 + unit * lift.shape[-1]), torch.zeros_like(lift))
        if parameter is None:
            lower_slope = torch.where(unstable, (high > -low).to(low.dtype), slope)
        elif parameter.dim() == 3:
            lower_slope = torch.where(unstable[:, None], parameter, slope[:, None])
        else:
            lower_slope = torch.where(unstable, parameter, slope)
        return Lines((lower_slope,), (slope,), None, lift)

    def parallel(self, *inputs: Interval) -> Lines:
        """The chord, and its parallel through nought."""
        (slope,) = self.lines(None, *inputs).upper_slope
        return self.lines(slope, *inputs)

    def start(self, *inputs: Interval) -> Tensor:
        lower, upper = inputs[0]
        return (upper > -lower).to(lower.dtype)

    def loose(self, *inputs: Interval) -> Tensor:
        lower, upper = inputs[0]
        return (lower < 0) & (upper > 0)
