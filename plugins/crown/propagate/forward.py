"""Linear bounds from the inputs forward (as Wang et al. 2018, Neurify): for few inputs, networks of any size.

Every node's value lies within C(t) -+ (R(t) + E), where C and R are affine in the scaled inputs t of [-1, 1] and E
bounds all rounding. With n inputs that vary, a node costs 2 (n + 1) passes through its operator, while bounding
its neurons backward costs two passes through all earlier operators for each of them.

    affine, z = W h + b:      C' = W C + b,  R' = |W| R,  E' = |W| E + rounding
    nonlinear, s z + t <= h <= S z + T:   lower s C - |s| R + t,  upper S C + |S| R + T,  again as centre and radius
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.model.problem import NARROW
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.relax.base import Interval, Lines, tighter


@dataclass(frozen=True)
class AffineEnclosure:
    """`centre` and `radius` (batch, columns, size), the constant column last; `error` (batch, size)."""

    centre: Tensor
    radius: Tensor
    error: Tensor

    def interval(self, unit: float) -> Interval:
        """The values that the form allows."""
        columns = self.centre.shape[1]
        low, high = self.centre - self.radius, self.centre + self.radius
        reserve = self.error + 4 * (columns + 2) * unit * self.size()
        return (
            low[:, -1] - low[:, :-1].abs().sum(1) - reserve,
            high[:, -1] + high[:, :-1].abs().sum(1) + reserve,
        )

    def size(self) -> Tensor:
        """The largest value that the terms can add up to, for rounding (batch, size)."""
        return self.centre.abs().sum(1) + self.radius.abs().sum(1)


class ForwardBounds:
    """The forms of all nodes, made one after the other; `first`: only so many inputs may have a column."""

    def __init__(self, program: Program, state: State, first: int | None = None) -> None:
        self.program, self.state = program, state
        low, high = state.region.lower, state.region.upper
        centre = (low + high) / 2
        reach = torch.maximum(high - centre, centre - low) * (1 + 4 * program.space.unit)
        # an input that hardly varies needs no column: what it does is an error
        narrow = (reach <= NARROW * centre.abs()).all(0)
        if first is not None:
            narrow[first:] = True
        wide = (~narrow).nonzero()[:, 0]
        columns = torch.zeros(len(low), len(wide) + 1, low.shape[1], dtype=low.dtype, device=low.device)
        place = torch.arange(len(wide), device=low.device)
        columns[:, place, wide] = reach[:, wide]
        columns[:, -1] = centre
        self.forms = {0: AffineEnclosure(columns, torch.zeros_like(columns), reach * narrow)}

    def add(self, node: int) -> None:
        """The form of a node whose lines, if it is nonlinear, are known; narrows the node's interval."""
        parents = [self.forms[p] for p in self.program.parents[node]]
        form = (
            self._affine(node, parents)
            if self.program.layers[node] is not None
            else self._relaxed(node, parents)
        )
        self.forms[node] = form
        self.state.interval[node] = tighter(form.interval(self.program.space.unit), self.state.interval[node])

    def _affine(self, node: int, parents: list[AffineEnclosure]) -> AffineEnclosure:
        layer, program = self.program.layers[node], self.program
        if layer is None:
            raise TypeError(f"node {node} is not affine")
        batch, columns = self.forms[0].centre.shape[:2]
        centre = layer.forward(*(p.centre[:, -1] for p in parents)).expand(batch, -1)[:, None]
        if parents and columns > 1:  # without the constant, whose rounding every column would have again
            flat = [p.centre[:, :-1].reshape(batch * (columns - 1), -1) for p in parents]
            centre = torch.cat([layer.linear(*flat).reshape(batch, columns - 1, -1), centre], 1)
        else:
            centre = torch.cat([centre.new_zeros(batch, columns - 1, centre.shape[2]), centre], 1)
        radius = layer.spread(*(p.radius.reshape(batch * columns, -1) for p in parents))
        noise = program.noise_of(layer, [p.size() for p in parents])
        carried = layer.spread(*(p.error for p in parents))
        error = carried * (1 + 2 * program.gamma(layer.terms)) + noise
        lost = 4 * columns * program.space.unit * centre.abs().sum(1)
        return AffineEnclosure(
            centre, radius.expand(batch * columns, -1).reshape(batch, columns, -1), error + lost
        )

    def _relaxed(self, node: int, parents: list[AffineEnclosure]) -> AffineEnclosure:
        lines = self.state.lines[node]
        centre, radius, error = (
            torch.zeros_like(t) for t in (parents[0].centre, parents[0].radius, parents[0].error)
        )
        for k, parent in enumerate(parents):
            s, t = lines.lower_slope[k][:, None], lines.upper_slope[k][:, None]
            spread = (s.abs() + t.abs()) / 2, (t.abs() - s.abs()) / 2
            centre = centre + (s + t) / 2 * parent.centre + spread[1] * parent.radius
            radius = radius + (t - s) / 2 * parent.centre + spread[0] * parent.radius
            error = error + torch.maximum(s.abs(), t.abs())[:, 0] * parent.error
        below, above = _biases(lines, error)
        centre = torch.cat([centre[:, :-1], centre[:, -1:] + ((below + above) / 2)[:, None]], 1)
        radius = torch.cat([radius[:, :-1], radius[:, -1:] + ((above - below) / 2)[:, None]], 1)
        rough = AffineEnclosure(centre, radius, error)
        lost = self._rounded(lines, parents) + rough.size() + below.abs() + above.abs()
        unit = self.program.space.unit
        return AffineEnclosure(
            centre, radius, error * (1 + 16 * unit) + 16 * (len(parents) + 2) * unit * lost
        )

    def _rounded(self, lines: Lines, parents: list[AffineEnclosure]) -> Tensor:
        """The terms of both lines at their largest."""
        pairs = zip(lines.lower_slope, lines.upper_slope, parents, strict=True)
        return torch.stack([(s.abs() + t.abs()) * p.size() for s, t, p in pairs]).sum(0)


def _biases(lines: Lines, like: Tensor) -> tuple[Tensor, Tensor]:
    zero = torch.zeros_like(like)
    below = zero if lines.lower_bias is None else lines.lower_bias
    above = zero if lines.upper_bias is None else lines.upper_bias
    return below, above
