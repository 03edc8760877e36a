"""Bounds of neurons at points that violate a goal: slopes and a weight of the goal's rows for every bound.

Kotha et al. 2023 (INVPROP). Where all rows of the goal are at most nought, a value z is at least the minimum of
z + w rows, for any w >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.adam import Adam
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.run.budget import Budget

# As for a subproblem's slopes, see `ascent`; the weights start from a guess of their scale and move by a fifth of it.
ALPHA_RATE, WEIGHT_RATE, DECAY = 0.3, 0.2, 0.97
# in units that make both parts of a bound worth about as much; nought would have no gradient
FIRST_WEIGHT = 0.2


@dataclass(frozen=True)
class AssumedVariables:
    """Slopes (count, kept) and weights of the goal's rows (count, rows): a pair for every bound."""

    alpha: Tensor
    weight: Tensor


@torch.no_grad()
def ascend_assumed(
    net: Condensed, ends: Tensor, alpha: Tensor, missing: float, steps: int, budget: Budget
) -> AssumedVariables:
    """Variables for lower bounds of `ends` (count, kept), rows over the inputs of the kept neurons.

    `alpha` (kept,) are slopes to start from, `missing` is how far the goal's own bound is from nought.
    """
    count, height = len(ends), net.feed.shape[0] - net.kept
    stable = (net.low >= 0).to(torch.int8) - (net.high <= 0).to(torch.int8)
    lines = net.lines(stable.expand(count, -1))
    width = (ends.abs() @ (net.high - net.low))[:, None].clamp(min=1e-9)
    scale = width / max(missing, 1e-9)
    free = torch.full((count, height), FIRST_WEIGHT / height, dtype=ends.dtype, device=ends.device)
    slopes = alpha.expand(count, -1).clone()
    adam = Adam(([slopes], ALPHA_RATE), ([free], WEIGHT_RATE))
    best = AssumedVariables(slopes.clone(), scale * free)
    top = torch.full((count,), -torch.inf, dtype=ends.dtype, device=ends.device)
    for step in range(steps):
        weight = scale * free
        passed = net.backward_without(-ends, lines, slopes, weight)
        better = passed.bound > top
        top = torch.where(better, passed.bound, top)
        best.alpha[better], best.weight[better] = slopes[better], weight[better]
        if step + 1 == steps or (step and budget.expired()):
            break
        z, _ = net.forward(lines, passed)
        pull = torch.where((passed.rows > 0) & (lines.phase == 0), passed.rows * z[:, : net.kept], 0.0)
        adam.step([pull / width, z[:, net.kept :] * scale / width], DECAY**step)
        slopes.clamp_(0, 1)
        free.clamp_(min=0)
    return best
