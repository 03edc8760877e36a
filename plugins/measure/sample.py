"""Uniform points of boxes and balls, and intervals for the share of them that pass."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verifolio.property import Property, Reference

Array = NDArray[np.float64]
Method = Literal["wilson", "exact"]


def draw(prop: Property, reference: Reference, count: int, rng: np.random.Generator) -> Array:
    """Points (count, n): uniform in the box; in a ball of norm 1 or 2 uniform, then clipped to the box."""
    lower, upper = prop.region(reference)
    if math.isinf(reference.norm):
        return rng.uniform(lower, upper, (count, len(lower)))
    x = np.asarray(reference.x, np.float64).ravel()
    moved = x + reference.epsilon * in_unit_ball(len(x), count, reference.norm, rng)
    return np.clip(moved, lower, upper)


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
