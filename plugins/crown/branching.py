"""Which neuron to split: a score for all of them, and a trial of the best while there are few subproblems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from verifolio.plugins.crown.ascent import Ascended
from verifolio.plugins.crown.condensed import Condensed

HEIGHT = 1e-3
PRESSURE = 0.1
CANDIDATES = 16


@torch.no_grad()
def rank(net: Condensed, phase: Tensor, rows: Tensor, found: Ascended) -> Tensor:
    """The best neurons to split (count, candidates); -1 where none is left.

    The score is the looseness at the relaxed point, plus a little of the height of the triangle times the
    coefficient it meets (Bunel et al. 2020). The coefficients are taken with some pressure on every earlier
    split, as if it weighed a tenth of the missing margin: a subproblem may be closed by showing that its splits
    contradict each other, and then the neurons that matter are those between the splits and the input, which the
    output row need not feel at all.
    """
    if not net.kept:
        return torch.full((len(phase), 1), -1, device=phase.device)
    # also where nothing seems to be missing: outputs that end in ReLUs may tie at nought
    missing = PRESSURE * found.margin.nan_to_num(0.0, 0.0, 0.0).abs().clamp(min=1e-6)[:, None]
    pressed = torch.maximum(found.best.beta, missing / (net.high - net.low).clamp(min=1e-6))
    mix = found.best.mix
    goal = mix.new_zeros(len(phase), net.feed.shape[0] - net.kept).scatter_add_(1, rows, mix)
    met = net.back(net.lanes(phase), found.best.alpha, pressed, goal).rows
    height = -net.low * net.high / (net.high - net.low).clamp(min=1e-30)
    score = 1e-20 + HEIGHT * (met.abs() * height).nan_to_num(0.0) + found.looseness.nan_to_num(0.0)
    score = torch.where(phase == 0, score, torch.full_like(score, -1.0))
    best = score.topk(min(CANDIDATES, score.shape[1]), dim=1)
    return torch.where(best.values >= 0, best.indices, torch.full_like(best.indices, -1))


class Splittable(Protocol):
    """Subproblems with candidates for their next split."""

    @property
    def branch(self) -> Tensor: ...
    @property
    def bound(self) -> Tensor: ...
    def __len__(self) -> int: ...
    def choose(self, candidate: Tensor) -> Self: ...
    def split(self) -> Self: ...
    @classmethod
    def join(cls, parts: list[Self]) -> Self: ...


S = TypeVar("S", bound=Splittable)


def pick_by_trial(items: S, bound: Callable[[S], Tensor], room: int) -> S:
    """Put the candidate first whose children gain most, trying as many as `room` children allow.

    Both gains count, by their product (Achterberg et al. 2005): a split that leaves one child as it was is no
    progress, even if it closes the other.
    """
    count = min(items.branch.shape[1], room // (2 * max(len(items), 1)))
    if count < 2:
        return items
    missing = items.branch[:, :count] < 0  # tried as the first, and ruled out below
    numbers = torch.arange(count, device=missing.device).expand(len(items), -1)
    wanted = torch.where(missing, torch.zeros_like(numbers), numbers)
    trials = items.join([items.choose(wanted[:, k : k + 1]) for k in range(count)])
    before = torch.cat([trials.bound] * 2)
    gain = (bound(trials.split()) - before).nan_to_num(0.0)
    limit = (-before).clamp(min=1e-9)  # closing a child is worth what is missing, no more
    gain = torch.minimum(gain, limit).clamp(min=1e-4 * limit)
    left, right = gain.chunk(2)
    merit = (left * right).reshape(count, len(items)).T
    merit = torch.where(missing, torch.full_like(merit, -1.0), merit)
    return items.choose(merit.argmax(1, keepdim=True))
