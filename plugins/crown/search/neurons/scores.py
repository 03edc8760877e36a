"""Which neurons are worth splitting: a score for all of them, partly that of BaBSR (Bunel et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.ascent import Ascended
from verifolio.plugins.crown.reduce.condensed import Condensed

# Weight of BaBSR's score beside the looseness: it decides only where the relaxed point shows no looseness.
HEIGHT = 1e-3
SPLIT_WEIGHT = 0.1  # of the missing margin, with which earlier splits enter the coefficients; see `rank`
CANDIDATES = 16  # kept per subproblem: what a trial of a single one can afford (TRIAL_CHILDREN / 32)


@torch.no_grad()
def rank(net: Condensed, phase: Tensor, rows: Tensor, found: Ascended) -> Tensor:
    """The best neurons to split (count, candidates); -1 where none is left.

    The score is the looseness at the relaxed point, plus a little of the height of the triangle times the
    coefficient it meets (Bunel et al. 2020). The coefficients are taken with a multiplier on every earlier
    split, worth a tenth of the missing margin at least: a subproblem may be closed by showing that its splits
    contradict each other, and then the neurons that matter are those between the splits and the input, which the
    output row need not feel at all.
    """
    if not net.kept:
        return torch.full((len(phase), 1), -1, device=phase.device)
    # also where nothing seems to be missing: outputs that end in ReLUs may tie at nought
    missing = SPLIT_WEIGHT * found.margin.nan_to_num(0.0, 0.0, 0.0).abs().clamp(min=1e-6)[:, None]
    multipliers = torch.maximum(found.best.beta, missing / (net.high - net.low).clamp(min=1e-6))
    mix = found.best.mix
    goal = mix.new_zeros(len(phase), net.feed.shape[0] - net.kept).scatter_add_(1, rows, mix)
    met = net.backward(net.lines(phase), found.best.alpha, multipliers, goal).rows
    height = -net.low * net.high / (net.high - net.low).clamp(min=1e-30)
    score = 1e-20 + HEIGHT * (met.abs() * height).nan_to_num(0.0) + found.looseness.nan_to_num(0.0)
    score = torch.where(phase == 0, score, torch.full_like(score, -1.0))
    best = score.topk(min(CANDIDATES, score.shape[1]), dim=1)
    return torch.where(best.values >= 0, best.indices, torch.full_like(best.indices, -1))
