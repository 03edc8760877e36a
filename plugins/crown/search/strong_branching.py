"""Strong branching (Achterberg et al. 2005): the best candidates are tried, while there are few subproblems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

LEAST_LIMIT = 1e-9  # of what a child can gain: bounds of nought have no scale of their own
# of that limit: a child without any gain must not make the products of all candidates equal
LEAST_GAIN = 1e-4


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
    limit = (-before).clamp(min=LEAST_LIMIT)  # closing a child is worth what is missing, no more
    gain = torch.minimum(gain, limit).clamp(min=LEAST_GAIN * limit)
    left, right = gain.chunk(2)
    merit = (left * right).reshape(count, len(items)).T
    merit = torch.where(missing, torch.full_like(merit, -1.0), merit)
    return items.choose(merit.argmax(1, keepdim=True))
