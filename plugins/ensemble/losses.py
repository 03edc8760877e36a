"""What gradient attacks on labels increase, for outputs (T, classes) and labels (T)."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional


def entropy(y: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each point."""
    return functional.cross_entropy(y, labels, reduction="none")


def entropy_unfooled(y: Tensor, labels: Tensor) -> Tensor:
    """Nothing to gain from members that are fooled already."""
    return entropy(y, labels) * (gap(y, labels).detach() < 0)


def gap(y: Tensor, labels: Tensor) -> Tensor:
    """How far the best other class is above the label's: positive where the network is fooled."""
    own = y.gather(1, labels[:, None])[:, 0]
    return y.scatter(1, labels[:, None], -math.inf).amax(1) - own
