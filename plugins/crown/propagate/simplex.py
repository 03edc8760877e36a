"""Values that add up to one, as a softmax's do: rows over them may be moved by any level.

    sum_j a_j p_j = sum_j (a_j - c) p_j + c      where sum_j p_j = 1

Each p_j is enclosed by lines of its own, which know nothing of the sum. What these lose is their distance times
|a_j - c|, and the median of the a_j makes the sum of all |a_j - c| least. In attention the a_j are values, whose
common part costs nothing then.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verifolio.graph.ops import Index
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.region import dot
from verifolio.plugins.crown.propagate.relax.base import Interval


class Simplex:
    """Groups (groups, members) of a node's entries; every group adds up to one."""

    def __init__(self, groups: Index, size: int, space: Space) -> None:
        self.space = space
        self.groups = torch.as_tensor(groups, device=space.device)
        # entries of no group have the number of the last, which is moved by nothing
        self.owner = torch.full((size,), len(groups), device=space.device)
        self.owner[self.groups] = torch.arange(len(groups), device=space.device)[:, None]

    def level(self, rows: Tensor, values: Interval) -> tuple[Tensor, Tensor, Tensor]:
        """The moved rows (batch, rows, size), what that adds to them (batch, rows), and what it rounds at most."""
        level = rows[:, :, self.groups].median(-1).values
        moved = rows - torch.nn.functional.pad(level, (0, 1))[:, :, self.owner]
        reach = torch.maximum(values[0].abs(), values[1].abs())
        # one rounding per entry; the levels are added up in float64
        lost = 2 * self.space.unit * dot(moved.detach().abs(), reach)
        long = 2 * self.space.unit + len(self.groups) * 2.0**-52
        return moved, level.double().sum(-1).to(rows.dtype), lost + long * level.detach().abs().sum(-1)
