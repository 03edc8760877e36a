"""A batch of input sets: boxes, each perhaps cut by a norm ball; minimises linear rows over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from verifolio.model.problem import Domain
from verifolio.plugins.crown.propagate.arrays import shrunk_box
from verifolio.plugins.crown.propagate.layers import Space


@dataclass(frozen=True)
class Balls:
    """One ball per box; `radius` is (batch,). The dual norm of `norm` bounds a row over the ball."""

    centre: Tensor
    radius: Tensor
    norm: float


@dataclass(frozen=True)
class Region:
    """Boxes (batch, inputs) rounded outward, and optional balls."""

    lower: Tensor
    upper: Tensor
    balls: Balls | None = None

    @classmethod
    def of(cls, domains: Sequence[Domain], space: Space) -> Region:
        """The region of several domains; a box is first shrunk to its ball's own box."""
        lower = np.stack([shrunk_box(d)[0] for d in domains])
        upper = np.stack([shrunk_box(d)[1] for d in domains])
        balls = None
        if all(d.ball is not None and d.ball.norm != np.inf for d in domains):
            held = [d.ball for d in domains if d.ball is not None]
            if len({b.norm for b in held}) == 1:
                centre = space.tensor(np.stack([b.centre for b in held]))
                # the centre's own rounding moves the ball; its radius grows by as much
                moved = np.stack([b.centre for b in held]) - centre.double().cpu().numpy()
                radius = [b.radius + float(np.abs(m).sum()) for b, m in zip(held, moved, strict=True)]
                balls = Balls(centre, space.up(np.array(radius) * (1 + 1e-12)), held[0].norm)
        return cls(space.down(lower), space.up(upper), balls)

    @property
    def batch(self) -> int:
        return self.lower.shape[0]

    def select(self, index: Tensor) -> Region:
        balls = self.balls
        if balls is not None:
            balls = Balls(balls.centre[index], balls.radius[index], balls.norm)
        return Region(self.lower[index], self.upper[index], balls)

    def minimise(self, rows: Tensor, extra: int) -> Tensor:
        """Lower bounds (batch, rows) of rows (batch or 1, rows, inputs) over each set, rounding included."""
        bound = self._over_box(rows, extra)
        if self.balls is not None:
            bound = torch.fmax(bound, self._over_ball(rows, self.balls, extra))
        return bound

    def _over_box(self, rows: Tensor, extra: int) -> Tensor:
        centre = (self.lower + self.upper) / 2
        unit = torch.finfo(rows.dtype).eps / 2
        radius = torch.maximum(self.upper - centre, centre - self.lower) * (1 + 4 * unit)
        error = 1.05 * (rows.shape[2] + extra) * unit
        reach = radius + error * (centre.abs() + radius)
        return dot(rows, centre) - dot(rows.abs(), reach)

    def _over_ball(self, rows: Tensor, balls: Balls, extra: int) -> Tensor:
        unit = torch.finfo(rows.dtype).eps / 2
        error = 1.05 * (rows.shape[2] + extra) * unit
        if balls.norm == 2:  # squares may underflow, each by no more than the smallest normal number
            lost = math.sqrt(rows.shape[2] * torch.finfo(rows.dtype).tiny)
            dual: Tensor = torch.linalg.vector_norm(rows, dim=2) + lost
        else:
            dual = rows.abs().amax(2)
        size = dot(rows.abs(), balls.centre.abs())
        value = dot(rows, balls.centre) - balls.radius[:, None] * dual * (1 + error)
        return value - error * size

    def corner(self, rows: Tensor) -> Tensor:
        """The box corner that minimises each row: (batch, rows, inputs)."""
        return torch.where(rows > 0, self.lower[:, None], self.upper[:, None])


def proved(bound: Tensor) -> Tensor:
    """Lower bounds as they are; infinity and what is not a number prove nothing.

    `nan_to_num` would make a number of minus infinity, which nothing has proved either.
    """
    return torch.where(bound.isfinite(), bound, torch.full_like(bound, -torch.inf))


def dot(rows: Tensor, vector: Tensor) -> Tensor:
    """(batch or 1, rows, n) times (batch or 1, n): (batch, rows). One vector for all is one plain product."""
    if vector.shape[0] == 1:
        return rows @ vector[0]
    if rows.shape[0] == 1:
        return vector @ rows[0].mT
    return (vector[:, None] @ rows.mT)[:, 0]  # thrice as fast as the rows times a column
