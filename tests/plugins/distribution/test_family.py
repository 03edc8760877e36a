"""Balls in the network's units contain the balls that they stand for, rounding included."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from verifolio.onnx_import.network import Network
from verifolio.plugins.distribution.family import Family

N = 400


@pytest.fixture
def wide(make_network: Callable[..., Network]) -> Network:
    return make_network((np.ones((2, N)), np.zeros(2)), name="wide")


@pytest.mark.parametrize("norm", [1.0, 2.0])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("size", [0.0, 1.0])
def test_a_ball_covers_the_true_one(wide: Network, norm: float, scaled: bool, size: float) -> None:
    """The distance of the rounded centre from the exact one, plus the radius, is at most the ball's radius."""
    rng = np.random.default_rng(3)
    x, mean = size * rng.random(N), 1000 * rng.random(N)
    std = np.full(N, 0.3) if scaled else None
    radius, scale = 1e-9, Fraction(0.3) if scaled else Fraction(1)
    ball = Family(wide, x, 0, norm, mean=mean, std=std).network_ball(radius)
    assert ball is not None
    gaps = [
        (Fraction(float(a)) - Fraction(float(m))) / scale - Fraction(float(c))
        for a, m, c in zip(x, mean, ball.centre, strict=True)
    ]
    room = Fraction(ball.radius) - Fraction(radius) / scale
    assert room > 0
    if norm == 1:
        assert sum(map(abs, gaps)) <= room
    else:
        assert sum(g * g for g in gaps) <= room**2
