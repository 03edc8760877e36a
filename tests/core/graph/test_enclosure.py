"""The errors of stored weights, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verifolio.graph import Scale
from verifolio.graph.enclosure import weight_slack


def test_the_slack_of_a_scaling_is_not_rounded_down() -> None:
    """Numbers just above a power of two, where a unit of rounding is largest: error * |x| + error of the bias."""
    rng, size = np.random.default_rng(0), 2000
    weight_error, magnitude = rng.uniform(1, 1.01, (2, size))
    bias_error = rng.uniform(0, 1e-3, size)
    op = Scale(size, np.zeros(size), np.ones(size), weight_error, bias_error)
    slack = weight_slack(op, magnitude)
    for e, x, b, found in zip(weight_error, magnitude, bias_error, slack, strict=True):
        assert Fraction(e) * Fraction(x) + Fraction(b) <= Fraction(found)
