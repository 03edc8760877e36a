"""The functions of networks, relu(z) and sigmoid(z) = 1 / (1 + exp(-z)): intervals, lines, and least values.

A table holds the sigmoid at the multiples of 2^-8 up to 24. In between it follows its second Taylor polynomial up to
|s'''| delta^3 / 6 < 2^-32, because |s'''| <= 1/8 and |delta| <= 2^-9. It is convex up to 0 and concave from there on.
"""

from __future__ import annotations

import numpy as np

from verifolio_check.integers import Floats, Ints, floor_shift, largest, within

RELU, SIGMOID = "relu", "sigmoid"
SLOPE_BITS = 15
ONE = 1 << SLOPE_BITS
STEP, FAR = 8, 24 << 8  # the table's points are k 2^-STEP, |k| <= FAR
BITS, FINE = 40, 32  # of the table's values, and of what polynomials are evaluated at
SLACK = 1 << 9  # in units of 2^-BITS: more than what a polynomial, the table and their rounding miss


def make_table() -> tuple[Ints, Floats]:
    """The sigmoid and its slope at the points of the table, -FAR first."""
    one = 1 << 80
    factor, term = 0, one
    for k in range(1, 20):  # exp(-2^-STEP): the terms alternate, and the last is nothing
        factor += term
        term = -term // (k << STEP)
    power, upper = one, []
    for _ in range(FAR + 1):
        upper.append((one << BITS) // (one + power))
        power = power * factor // one
    table = np.array([(1 << BITS) - v for v in upper[:0:-1]] + upper, np.int64)
    share = table * 2.0**-BITS
    return table, share * (1 - share)


TABLE, SLOPE = make_table()


def image(function: str, low: Ints, high: Ints, scale: int) -> tuple[Ints, Ints]:
    """Intervals of the values, in the unit 2^-scale of the arguments."""
    if function == RELU:
        return np.maximum(low, 0), np.maximum(high, 0)
    far = floor_shift(np.array([FAR]), STEP - scale)[0]
    below = np.where(low < -far, 0, np.maximum(sigmoid(low, scale) - SLACK, 0))
    above = np.where(high >= far, 1 << BITS, np.minimum(sigmoid(high, scale) + SLACK, 1 << BITS))
    return floor_shift(below, BITS - scale), -floor_shift(-above, BITS - scale)


def sigmoid(z: Ints, scale: int) -> Ints:
    """Values in units of 2^-BITS up to SLACK; beyond the table, at its end."""
    z = np.clip(floor_shift(z, scale - FINE), -FAR << FINE - STEP, FAR << FINE - STEP)
    k = (z + (1 << FINE - STEP - 1)) >> FINE - STEP
    delta, value = z - (k << FINE - STEP), TABLE[k + FAR]
    first = (value >> 10) * ((1 << BITS) - value >> 10) >> BITS - 20
    second = (first >> 10) * ((1 << BITS) - 2 * value >> 10) >> BITS - 20
    return np.asarray(value + (first * delta >> FINE) + ((second * delta >> FINE) * delta >> FINE + 1))


def lines(function: str, low: Ints, high: Ints, scale: int) -> tuple[Ints, Ints]:
    """Slopes of lines below and above, in units of 2^-SLOPE_BITS: the default choice, any would be sound."""
    if function == RELU:
        up, down = np.maximum(high, 0), np.maximum(-low, 0)
        return (up > down) * ONE, (up * float(ONE) / np.maximum(up + down, 1)).astype(np.int64)
    ends = [np.clip(e * 2.0**-scale, -24.0, 24.0) for e in (low, high)]
    below, above = ((slope_below(*e) * ONE).astype(np.int64) for e in (ends, (-ends[1], -ends[0])))
    return below, above


def slope_below(low: Floats, high: Floats) -> Floats:
    """Of a sigmoid's chord, or of a tangent of its convex part, as far left as one meets the upper end."""
    places = [np.rint(e * 2.0**STEP).astype(np.int64) + FAR for e in (low, high)]
    touch = np.where(places[1] <= FAR, (places[0] + places[1]) >> 1, places[0])
    chord = (
        (TABLE[places[1]] - TABLE[places[0]]) * 2.0 ** (STEP - BITS) / np.maximum(places[1] - places[0], 1)
    )
    for _ in range(4):  # the tangent at the point whose slope is that of the secant so far
        secant = (TABLE[places[1]] - TABLE[touch]) * 2.0 ** (STEP - BITS) / np.maximum(places[1] - touch, 1)
        better = np.clip(np.searchsorted(SLOPE[: FAR + 1], secant), places[0], FAR)
        touch = np.where(places[1] <= FAR, touch, better)
    return np.where((places[0] >= FAR) | ((touch <= places[0]) & (places[1] > FAR)), chord, SLOPE[touch])


def least(function: str, a: Ints, d: Ints, low: Ints, high: Ints, scale: int) -> Ints:
    """Integers not above a f(z) - d z for z from low to high.

    The sum is concave or convex between 0 and the ends. Where it is convex it is least at an end or within one step
    of the table's point k at which its slope changes sign, and there by at most |a| max|s''| step^2 below its value.
    """
    if function == RELU:  # a and d have so few bits that nothing wraps, see `Sweep`
        ends = (a * np.maximum(z, 0) - d * z for z in (low, high))
        return np.asarray(np.minimum(np.minimum(*ends), 0))
    share = np.abs(d / np.where(a == 0, 1, a))
    k = floor_shift(np.searchsorted(SLOPE[: FAR + 1], share).astype(np.int64) - FAR, STEP - scale)
    within(4 * (largest(a) + largest(d)) * (largest(low, high) + (1 << max(scale, 0))) * a.shape[-1])
    values = []
    for z in (low, high, *(np.clip(p, low, high) for p in (0, k, -k))):
        below, above = image(function, z, z, scale)
        values.append(a * np.where(a < 0, above, below) - d * z)
    # max|s''| < 1/10, and s' rounds by nothing
    return np.asarray(np.min(values, 0) + floor_shift(-np.abs(a), 2 * STEP + 2 - scale))
