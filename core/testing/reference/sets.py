"""Input sets: the least value of a linear row over a box that may be cut by a ball."""

from __future__ import annotations

import math

import numpy as np

from verifolio.graph.ops import Array
from verifolio.model.problem import Domain


def shrunk_box(domain: Domain) -> tuple[Array, Array]:
    """The box, cut to the box around its ball, rounded outward."""
    low, high = domain.lower, domain.upper
    if domain.ball is not None:
        low = np.maximum(low, np.nextafter(domain.ball.centre - domain.ball.radius, -math.inf))
        high = np.minimum(high, np.nextafter(domain.ball.centre + domain.ball.radius, math.inf))
    return low, high


def least_over(domain: Domain, rows: Array) -> Array:
    """Per row the larger of the minima over the box and over the ball; rounding is left to the caller."""
    low, high = shrunk_box(domain)
    least = np.where(rows > 0, rows * low, rows * high).sum(1)
    ball = domain.ball
    if ball is not None and ball.norm != math.inf:
        # Hoelder: row . (x - c) >= -|row|_q |x - c|_p with 1/p + 1/q = 1
        dual = np.abs(rows).max(1) if ball.norm == 1 else np.sqrt((rows**2).sum(1))
        least = np.maximum(least, rows @ ball.centre - ball.radius * dual)
    return np.asarray(least)
