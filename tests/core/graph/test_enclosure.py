"""The errors of stored weights, in exact arithmetic, and sizes of what single precision computes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verifolio.graph import Elementwise, Scale
from verifolio.graph.enclosure import weight_slack
from verifolio.graph.single import Span, _of_function


def test_the_slack_of_a_scaling_is_not_rounded_down() -> None:
    """Numbers just above a power of two, where a unit of rounding is largest: error * |x| + error of the bias."""
    rng, size = np.random.default_rng(0), 2000
    weight_error, magnitude = rng.uniform(1, 1.01, (2, size))
    bias_error = rng.uniform(0, 1e-3, size)
    op = Scale(size, np.zeros(size), np.ones(size), weight_error, bias_error)
    slack = weight_slack(op, magnitude)
    for e, x, b, found in zip(weight_error, magnitude, bias_error, slack, strict=True):
        assert Fraction(e) * Fraction(x) + Fraction(b) <= Fraction(found)


def test_the_bulk_of_a_quotient_is_at_least_what_single_precision_reaches() -> None:
    """Numbers from 1 to 2 that are off by up to 0.1, and their opposites: 1 / 0.9 is reached."""
    drift = np.array([0.0, 1e-7, 0.1])
    for low, high in ((1.0, 2.0), (-2.0, -1.0)):
        size = 2 + drift
        x = Span(np.full(3, low), np.full(3, high), drift, np.zeros(3), size)
        found = _of_function(Elementwise(3, "reciprocal"), x)
        least, most = found.reached
        assert (np.maximum(np.abs(least), np.abs(most)) >= 1 / (1 - drift)).all()
        assert (found.bulk >= 1 / (1 - drift)).all()
