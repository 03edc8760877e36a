"""A condensed network with one hidden layer, bounded by the concave envelopes of its ReLUs over the input box.

For every s in [0, 1]^n and every x of the box,

    relu(w x + b) <= sum_i s_i w_i x_i + c(s),    c(s) = max(max_x -(s w) x, b + max_x ((1 - s) w) x),

because both 0 and w x + b lie below the right-hand side. Over all s these lines are the concave envelope of the
neuron on the box (Anderson et al. 2020, Tjandraatmadja et al. 2020); the triangle of its interval [l, u] is the line
with s_i = u / (u - l) for all i. A bound is concave in s, so s is one more variable of the ascent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.graph.enclosure import TINY, gamma
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce.compress import Stacked
from verifolio.plugins.crown.reduce.condensed import BackwardPass, Condensed, PhaseLines

# Slopes of one subproblem: 128 KB in half precision, so that a frontier of thousands stays below a gigabyte.
MOST_SLOPES = 1 << 16


@dataclass(frozen=True)
class EnvelopePass(BackwardPass):
    """`line` (count, below): the upper lines' values where the bound is attained."""

    line: Tensor | None = None


class Envelope(Condensed):
    """The matrices of the one layer; only neurons that some row of the goal takes negatively have slopes per input.

    `below` (slopes,) are these neurons.
    """

    def __init__(self, stacked: Stacked, low: Tensor, high: Tensor, region: Region) -> None:
        direct, feed, bias = (low.new_tensor(part) for part in (stacked.direct, stacked.feed, stacked.bias))
        super().__init__(direct, feed, bias, stacked.sizes, low, high, region)
        # of the numbers in float64: a coefficient that the type of `low` cannot hold is not nought
        negative = torch.as_tensor((stacked.feed[self.kept :] < 0).any(0), device=low.device)
        self.below = negative.nonzero()[:, 0]
        self.weight = self.direct[self.below]
        size = self.weight.abs() * self.radius
        # what -(s w) x and ((1 - s) w) x gain at most per unit of s_i and of 1 - s_i
        self.without, self.rest = size - self.weight * self.centre, size + self.weight * self.centre

    def first_slopes(self, count: int) -> Tensor:
        """The triangle's (count, below, inputs)."""
        return self.slope[self.below, None].expand(count, -1, self.weight.shape[1])

    def backward(
        self, lines: PhaseLines, alpha: Tensor, beta: Tensor, goal: Tensor, slopes: Tensor | None = None
    ) -> BackwardPass:
        """As before; with `slopes`, the upper lines have one slope per input."""
        if slopes is None:
            return super().backward(lines, alpha, beta, goal)
        rows = goal @ self.feed[self.kept :]
        push, free = lines.phase * beta, lines.phase == 0
        weight = torch.where(free & (rows < 0), rows, 0.0)[:, self.below]
        inner = torch.where(free, rows.clamp(min=0) * alpha, rows * lines.upper) - push
        met = torch.cat([inner, goal], 1)
        tilted = slopes * self.weight
        without = (slopes * self.without).sum(2)
        rest = self.bias[self.below] + ((1 - slopes) * self.rest).sum(2)
        bound, point = self._least(met @ self.direct + (weight[:, None] @ tilted)[:, 0])
        constant = torch.maximum(without, rest)
        line = (tilted @ point[:, :, None])[:, :, 0] + constant
        turn = torch.where((without > rest)[:, :, None], self.without, -self.rest)
        pull = weight[:, :, None] * (self.weight * point[:, None] + turn)
        lower = torch.where(free, alpha, lines.upper)
        return EnvelopePass(
            bound + met @ self.bias + (weight * constant).sum(1), point, rows, lower, (pull,), line
        )

    def forward(self, lines: PhaseLines, passed: BackwardPass) -> tuple[Tensor, Tensor]:
        """As before, with the values of the lines that were taken."""
        z, h = super().forward(lines, passed)
        if isinstance(passed, EnvelopePass) and passed.line is not None:
            taken = ((passed.rows < 0) & (lines.phase == 0))[:, self.below]
            h[:, self.below] = torch.where(taken, passed.line, h[:, self.below])
            z[:, self.kept :] = torch.addmm(self.bias, passed.point, self.direct.T)[:, self.kept :]
            z[:, self.kept :].addmm_(h, self.feed[self.kept :].T)
        return z, h


class ExactEnvelope:
    """The same bounds in float64 with all rounding charged: what a search's variables prove.

    `stacked.error` is how far the exact affine forms may lie from the stored ones on the box.
    """

    def __init__(self, stacked: Stacked, region: Region, below: Tensor) -> None:
        self.lower, self.upper = (t[0].double() for t in (region.lower, region.upper))
        self.largest = torch.maximum(self.lower.abs(), self.upper.abs())
        direct, feed, bias, error = (
            self.lower.new_tensor(p) for p in (stacked.direct, stacked.feed, stacked.bias, stacked.error)
        )
        kept = feed.shape[1]
        self.weight, self.bias, self.error = direct[:kept], bias[:kept], error[:kept]
        self.rows = torch.cat([feed[kept:], direct[kept:], bias[kept:, None], error[kept:, None]], 1)
        self.sizes = [kept, direct.shape[1], 1, 1]
        self.below = below
        # of |w x + b|, which also bounds the constant of every line
        self.reach = self.weight.abs() @ self.largest + self.bias.abs() + self.error
        # every number below is a sum of at most so many products of a few numbers each
        self.terms = 4 * (kept + direct.shape[1] + len(self.rows)) + 32

    def prove(
        self, phase: Tensor, goal: Tensor, alpha: Tensor, beta: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Lower bounds (count,) of the goal's rows combined by `goal` (count, rows), and the rows met at the input.

        Any variables are sound: slopes outside [0, 1] and negative multipliers are brought back first.
        """
        alpha, slopes = alpha.clamp(0, 1), slopes.clamp(0, 1)
        beta, goal = beta.clamp(min=0), goal.clamp(min=0)
        felt, direct, constant, error = (goal @ self.rows).split(self.sizes, 1)
        free = phase == 0
        lined = torch.where(free & (felt < 0), felt, 0.0)[:, self.below]
        inner = torch.where(free, felt.clamp(min=0) * alpha, felt * (phase > 0)) - phase * beta
        tilted = slopes * self.weight[self.below]
        lift = torch.maximum(
            self._most(-tilted), self.bias[self.below] + self._most((1 - slopes) * self.weight[self.below])
        )
        row = inner @ self.weight + (lined[:, None] @ tilted)[:, 0] + direct
        least = torch.minimum(row * self.lower, row * self.upper).sum(1)
        value = least + inner @ self.bias + (lined * lift).sum(1) + constant[:, 0]
        return value - self._charge(goal, felt, beta) - error[:, 0] * (1 + gamma(self.terms)), row

    def _most(self, rows: Tensor) -> Tensor:
        """The largest value of rows (count, neurons, inputs) over the box."""
        return torch.maximum(rows * self.lower, rows * self.upper).sum(2)

    def _charge(self, goal: Tensor, felt: Tensor, beta: Tensor) -> Tensor:
        """What is lost by rounding here, and where the stored layer is not the exact one.

        Each term of a bound is at most a coefficient times `reach` (or `largest`), and enters a few sums; `gamma`
        bounds the relative error of all of them together. ReLUs are 1-Lipschitz, so an error of the layer passes
        with the coefficients of its neurons.
        """
        size = goal @ self.rows.abs()
        felt_size, direct_size, constant_size, _ = size.split(self.sizes, 1)
        weight = felt_size + felt.abs() + beta
        moved = 4 * (weight @ self.reach) + direct_size @ self.largest + constant_size[:, 0]
        charge: Tensor = gamma(self.terms) * moved + 1.01 * (weight @ self.error) + TINY
        return charge


def has_one_layer(stacked: Stacked, region: Region) -> bool:
    """Whether envelopes apply: one hidden layer over a box, few enough slopes."""
    kept, inputs = stacked.feed.shape[1], stacked.direct.shape[1]
    return len(stacked.sizes) == 1 and region.balls is None and 0 < kept * inputs <= MOST_SLOPES
