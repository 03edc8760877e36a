"""Step functions: for any slope the best intercept is found at the ends of the levels that the interval meets."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from verifolio.graph import Step
from verifolio.graph.steps import Table
from verifolio.plugins.crown.propagate.relax.base import Interval, Lines, Relaxation

RESERVE = 2.0**-46  # relative to |level| + |slope x|: covers their rounding
SHORTEST = 2.0**-30  # relative distance to a breakpoint below which a line is not drawn any steeper


class UnknownRelaxation(Relaxation):
    """A step that is not settled: anything between its least and its greatest level, if it has any."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def interval(self, *inputs: Interval) -> Interval:
        low = inputs[0][0]
        return torch.full_like(low, self.least), torch.full_like(low, self.most)

    def lines(self, parameter: Tensor | None, *inputs: Interval) -> Lines:
        least, most = self.interval(*inputs)
        zero = torch.zeros_like(least)
        return Lines((zero,), (zero,), least, most)

    def start(self, *inputs: Interval) -> Tensor:
        return torch.zeros_like(inputs[0][0])

    def loose(self, *inputs: Interval) -> Tensor:
        return torch.ones_like(inputs[0][0], dtype=torch.bool)


class StepRelaxation(Relaxation):
    """Two parameters per neuron (slopes of the lower and the upper line), laid side by side along the last axis."""

    homogeneous: ClassVar[bool] = False

    def __init__(self, op: Step) -> None:
        self.table = Table(op, torch.float64)

    def interval(self, *inputs: Interval) -> Interval:
        low, high = self._ends(inputs[0])
        least, most = self.table.range(low, high)
        dtype = inputs[0][0].dtype
        return _outward(least, dtype, -1), _outward(most, dtype, 1)

    def lines(self, parameter: Tensor | None, *inputs: Interval) -> Lines:
        low, high = self._ends(inputs[0])
        most = self._steepest(low, high)
        if parameter is None:
            return self.lines_of(self._better(most, low, high), *inputs)
        if parameter.dim() == 3:
            most = most[:, None]
        return self.lines_of(parameter.double() * most, *inputs)

    def lines_of(self, value: Tensor, *inputs: Interval) -> Lines:
        dtype = inputs[0][0].dtype
        low, high = self._ends(inputs[0])
        if value.dim() == 3:
            low, high = low[:, None], high[:, None]
        below, above = value.to(dtype).clamp(min=0).chunk(2, dim=-1)
        lower = _outward(self._intercept(below.double(), low, high, -1), dtype, -1)
        upper = _outward(self._intercept(above.double(), low, high, 1), dtype, 1)
        return Lines((below,), (above,), lower, upper)

    def range(self, *inputs: Interval) -> Interval:
        most = self._steepest(*self._ends(inputs[0]))
        return torch.zeros_like(most), most

    def start(self, *inputs: Interval) -> Tensor:
        low, high = self._ends(inputs[0])
        best, most = self._better(self._steepest(low, high), low, high), self._steepest(low, high)
        return (best / most.clamp(min=1e-300)).clamp(0, 1).to(inputs[0][0].dtype)

    def loose(self, *inputs: Interval) -> Tensor:
        least, most = self.table.range(*self._ends(inputs[0]))
        return most > least

    def _ends(self, ends: Interval) -> Interval:
        """In float64; what is not known may be anything."""
        low, high = (t.detach().double() for t in ends)
        return low.nan_to_num(nan=-math.inf), high.nan_to_num(nan=math.inf)

    def _steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """The greatest slopes worth trying below and above; 0 where the function does not rise."""
        least, most = self.table.range(low, high)
        points = self.table.breakpoints
        rises = self.table.rises and len(points) > 0
        rise = torch.where((most > least) & (high - low).isfinite(), most - least, torch.zeros_like(least))
        if not rises:
            return torch.cat([torch.zeros_like(rise)] * 2, -1)
        last = len(points) - 1
        first = points[torch.searchsorted(points, low.contiguous()).clamp(0, last)]
        final = points[(torch.searchsorted(points, high.contiguous(), right=True) - 1).clamp(0, last)]
        shortest = SHORTEST * (high - low).clamp(min=1e-300)
        return torch.cat(
            [rise / torch.maximum(high - first, shortest), rise / torch.maximum(final - low, shortest)], -1
        ).nan_to_num(0.0)

    def _better(self, slopes: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Of a level line and the steepest one, the one that is closer in the middle."""
        middle, chosen = (low + high) / 2, []
        for slope, side in zip(slopes.chunk(2, -1), (-1, 1), strict=True):
            flat = self._intercept(torch.zeros_like(slope), low, high, side)
            steep = slope * middle + self._intercept(slope, low, high, side)
            chosen.append(torch.where(side * (steep - flat) < 0, slope, torch.zeros_like(slope)))
        return torch.cat(chosen, -1)

    def _intercept(self, slope: Tensor, low: Tensor, high: Tensor, side: int) -> Tensor:
        """min (side -1) or max (side 1) of f(x) - slope x over the interval, for slopes >= 0, rounded outward."""
        table, size = self.table, torch.maximum(low.abs(), high.abs())
        points, levels, at = table.breakpoints.tolist(), table.levels.tolist(), table.at.tolist()
        edges = [-math.inf, *points, math.inf]
        nothing = torch.full_like(slope, -side * math.inf)
        best, pick = nothing, torch.maximum if side > 0 else torch.minimum
        first, last = (
            int(k) for k in torch.searchsorted(table.breakpoints, torch.stack([low.min(), high.max()]))
        )
        for k in range(first, min(last + 2, len(levels))):
            x = low.clamp(min=edges[k]) if side > 0 else high.clamp(max=edges[k + 1])
            met = (low < edges[k + 1]) & (high > edges[k])
            best = pick(best, torch.where(met, levels[k] - slope * x, nothing))
        for k in range(first, min(last + 1, len(points))):
            met = (low <= points[k]) & (high >= points[k])
            best = pick(best, torch.where(met, at[k] - slope * points[k], nothing))
        every = torch.cat([table.levels, table.at])
        bound = best + side * RESERVE * (float(every.abs().max()) + slope.detach() * size)
        # a slope on an endless interval, or an empty one: nothing but the range of all levels
        flat = torch.full_like(bound, float(every.max() if side > 0 else every.min()))
        flat = torch.where(slope == 0, flat, torch.full_like(bound, side * math.inf))
        return torch.where(best.isfinite() & size.isfinite(), bound, flat)


def _outward(value: Tensor, dtype: torch.dtype, side: int) -> Tensor:
    """Cast with the rounding error of the cast added on the safe side."""
    if dtype == torch.float64:
        return value
    return (value + side * value.detach().abs() * torch.finfo(dtype).eps).to(dtype)
