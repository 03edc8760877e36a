"""The graph without its stable neurons as two matrices, on which one bound and its gradient are plain products.

    z = direct x + feed h + bias,    h = relu(z) for the kept neurons, the last rows of z are the goal's

A batch has one row per subproblem. `backward` is the backward pass of `Program`, `forward` evaluates the
relaxed network where the bound is attained: by the envelope theorem the derivative of the bound with respect to a
coefficient on a value is that value, so these values are the gradient. Nothing here is rounded with care: what the
search finds this way is a hint, and `Program` proves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.region import Region


@dataclass(frozen=True)
class PhaseLines:
    """The lines of every kept neuron per subproblem (count, kept), and its phases (+1, -1, 0: open)."""

    phase: Tensor
    upper: Tensor
    lift: Tensor

    def pick(self, index: Tensor) -> PhaseLines:
        return PhaseLines(self.phase[index], self.upper[index], self.lift[index])


@dataclass(frozen=True)
class BackwardPass:
    """A bound (count,), where it is attained, the rows that met the neurons and the lower slopes they took.

    `pull`: the gradient of the bound in further variables, where there are some.
    """

    bound: Tensor
    point: Tensor
    rows: Tensor
    lower: Tensor
    pull: tuple[Tensor, ...] = ()


class Condensed:
    """The two matrices, the kept neurons' triangles on the whole domain, and the domain."""

    def __init__(
        self,
        direct: Tensor,
        feed: Tensor,
        bias: Tensor,
        sizes: list[int],
        low: Tensor,
        high: Tensor,
        region: Region,
    ) -> None:
        self.direct, self.feed, self.bias, self.sizes = direct, feed, bias, sizes
        self.kept = feed.shape[1]
        ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
        self.cuts = [slice(a, b) for a, b in pairwise(ends)]
        self.low, self.high = low, high
        self.slope = high / (high - low).clamp(min=1e-30)
        self.lift = -self.slope * low
        self.region = region
        self.centre = (region.lower[0] + region.upper[0]) / 2
        self.radius = (region.upper[0] - region.lower[0]) / 2

    def lines(self, phase: Tensor) -> PhaseLines:
        """Lines of subproblems with the given phases: a fixed neuron is linear."""
        free = phase == 0
        upper = torch.where(free, self.slope, (phase > 0).to(self.slope.dtype))
        lift = torch.where(free, self.lift, torch.zeros_like(self.lift))
        return PhaseLines(phase.to(self.slope.dtype), upper, lift)

    def narrowed(self, low: Tensor, high: Tensor) -> Condensed:
        """The same matrices with other triangles."""
        return Condensed(self.direct, self.feed, self.bias, self.sizes, low, high, self.region)

    def backward(
        self, lines: PhaseLines, alpha: Tensor, beta: Tensor, goal: Tensor, slopes: Tensor | None = None
    ) -> BackwardPass:
        """The bound with lower slopes alpha, multipliers beta on the phases, and weights of the goal's rows."""
        return self.backward_without(lines.phase * beta, lines, alpha, goal)

    def backward_without(
        self, split_rows: Tensor, lines: PhaseLines, alpha: Tensor, goal: Tensor
    ) -> BackwardPass:
        """The bound of the goal's rows minus other rows (count, kept), which are over the neurons' inputs."""
        lower = torch.where(lines.phase == 0, alpha, lines.upper)
        rows = goal @ self.feed[self.kept :]
        met = torch.cat([split_rows, goal], 1)
        for cut in reversed(self.cuts):
            row = rows[:, cut]
            before = row * torch.where(row > 0, lower[:, cut], lines.upper[:, cut]) - split_rows[:, cut]
            met[:, cut] = before
            if cut.start:
                rows[:, : cut.start].addmm_(before, self.feed[cut, : cut.start])
        constant = met @ self.bias + (rows.clamp(max=0) * lines.lift).sum(1)
        bound, point = self._least(met @ self.direct)
        return BackwardPass(bound + constant, point, rows, lower)

    def _least(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The minimum of each row over the domain and where it is attained."""
        point = self.centre - rows.sign() * self.radius
        value = torch.linalg.vecdot(rows, point)
        balls = self.region.balls
        if balls is None:
            return value, point
        if balls.norm == 2:
            way = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=1e-30)
        else:
            size, at = rows.abs().max(1, keepdim=True)
            way = torch.zeros_like(rows).scatter_(1, at, rows.gather(1, at) / size.clamp(min=1e-30))
        other = balls.centre - balls.radius[:, None] * way
        theirs = torch.linalg.vecdot(rows, other)
        better = theirs > value
        return torch.where(better, theirs, value), torch.where(better[:, None], other, point)

    def forward(self, lines: PhaseLines, passed: BackwardPass) -> tuple[Tensor, Tensor]:
        """Inputs of all neurons and the goal's rows (count, kept + rows), outputs (count, kept), as relaxed."""
        z = torch.addmm(self.bias, passed.point, self.direct.T)
        slope = torch.where(passed.rows > 0, passed.lower, lines.upper)
        shift = torch.where(passed.rows > 0, torch.zeros_like(lines.lift), lines.lift)
        h = torch.empty_like(slope)
        for cut in self.cuts:
            if cut.start:
                z[:, cut].addmm_(h[:, : cut.start], self.feed[cut, : cut.start].T)
            h[:, cut] = torch.addcmul(shift[:, cut], slope[:, cut], z[:, cut])
        z[:, self.kept :].addmm_(h, self.feed[self.kept :].T)
        return z, h
