"""Uniform points of boxes and balls, and intervals for the share of them that pass."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verifolio.plugin.property import Property, Reference

Array = NDArray[np.float64]
Method = Literal["wilson", "exact"]


PROPOSALS = 200  # per wanted point; with fewer acceptances the walk is cheaper
NUMBERS = 4_000_000  # of one batch of proposals
SWEEPS = 60  # the norm of the point forgets its start within a few; more for skewed boxes


def draw(prop: Property, reference: Reference, count: int, rng: np.random.Generator) -> Array:
    """Points (count, n), uniform in the property's region: a box, or a ball cut with a box.

    In a ball: `folded` rejection, whose points are independent and exactly uniform; where it accepts too few, a
    random walk along the axes (`walk`), which is uniform in the limit.
    """
    lower, upper = prop.region(reference)
    ball = prop.ball(reference)
    if ball is None:
        return rng.uniform(lower, upper, (count, len(lower)))
    free = upper > lower  # the others do not move, so the ball has fewer dimensions
    points = np.tile(lower, (count, 1))
    if free.any() and ball.radius > 0:
        centre = ball.centre[free]
        room = (np.maximum(centre - lower[free], 0.0), np.maximum(upper[free] - centre, 0.0))
        moved = folded(room, ball.radius, ball.norm, count, rng)
        if len(moved) < count:
            moved = walk(room, ball.radius, ball.norm, count, rng)
        points[:, free] = np.clip(centre + moved, lower[free], upper[free])  # of the last rounding
    return points


def folded(
    room: tuple[Array, Array], radius: float, norm: float, count: int, rng: np.random.Generator
) -> Array:
    """Uniform moves (at most count, n) in the ball, no further than the room below and above.

    A ball is symmetric in every axis, so a uniform point of it is a size per axis and a sign. A size for which
    both signs have room is kept, one with room for half of the signs that its axis ever has is kept half the
    time, one without any never. An axis that is closed on one side from the start therefore costs nothing.
    """
    below, above = room
    most = 1.0 + ((below > 0) & (above > 0))
    batch = max(1, min(count * 4, NUMBERS // len(below)))
    found: list[Array] = []
    have = tried = 0
    while have < count and tried < PROPOSALS * count:
        size = np.abs(in_unit_ball(len(below), batch, norm, rng)) * radius
        up, down = size <= above, size <= below
        share = ((up.astype(np.float64) + down) / most).prod(axis=1)
        kept = rng.uniform(size=batch) < share
        plus = np.where(up & down, rng.uniform(size=size.shape) < 0.5, up)
        found.append(np.where(plus, size, -size)[kept])
        have, tried = have + int(kept.sum()), tried + batch
    return np.concatenate(found)[:count]


def walk(
    room: tuple[Array, Array], radius: float, norm: float, count: int, rng: np.random.Generator
) -> Array:
    """Moves (count, n) by hit-and-run along the axes: `count` walks, each axis redrawn in every sweep.

    Given all others, one coordinate of a uniform point is uniform on an interval, so the uniform distribution
    stays as it is; the walks begin at uniform points of the ball moved into the box.
    """
    below, above = room
    moves = np.clip(in_unit_ball(len(below), count, norm, rng) * radius, -below, above)
    for _ in range(SWEEPS):
        total = (np.abs(moves) ** norm).sum(axis=1)
        for k in rng.permutation(len(below)):
            rest = total - np.abs(moves[:, k]) ** norm
            reach = np.maximum(radius**norm - rest, 0.0) ** (1 / norm)
            moves[:, k] = rng.uniform(-np.minimum(reach, below[k]), np.minimum(reach, above[k]))
            total = rest + np.abs(moves[:, k]) ** norm
    return np.asarray(moves, np.float64)


def in_unit_ball(size: int, count: int, norm: float, rng: np.random.Generator) -> Array:
    """Uniform points of the unit ball of norm 1 or 2."""
    if norm == 2:
        direction = rng.normal(size=(count, size))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return np.asarray(direction * rng.uniform(size=(count, 1)) ** (1 / size), np.float64)
    # spacings of exponentials are uniform on the simplex; the last one is what is left of the ball
    parts = rng.exponential(size=(count, size + 1))
    parts /= parts.sum(axis=1, keepdims=True)
    return np.asarray(parts[:, :size] * rng.choice([-1.0, 1.0], (count, size)), np.float64)


def share_interval(passed: int, total: int, confidence: float, method: Method) -> tuple[float, float]:
    """A confidence interval for a share: Wilson's, or the exact one of Clopper and Pearson."""
    from scipy.stats import binomtest

    if total == 0:
        return 0.0, 1.0
    found = binomtest(passed, total).proportion_ci(confidence, method=method)
    return float(found.low), float(found.high)
