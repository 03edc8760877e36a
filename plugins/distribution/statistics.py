"""Statistics of critical radii: log-normal fits, two-sample tests, rank correlation, robust accuracy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .table import Row

Array = NDArray[np.float64]
ALPHA = 0.05  # the usual level of significance
SIMULATIONS = 4000  # the error of a p-value of 0.05 is below 0.004


@dataclass(frozen=True)
class LogNormal:
    """A log-normal fit without shift to the positive values.

    `ks_p` is the Kolmogorov-Smirnov p-value as the paper has it: too large, because the parameters come from
    the same values. `lilliefors_p` is simulated with parameters fitted anew, and honest. `zeros` were left
    out; with fewer than three positive values nothing can be said.
    """

    count: int
    zeros: int
    shape: float = math.nan
    scale: float = math.nan
    ks: float = math.nan
    ks_p: float = math.nan
    lilliefors_p: float = math.nan

    @property
    def verdict(self) -> str:
        """By the corrected test: the naive one calls almost everything log-normal."""
        if math.isnan(self.lilliefors_p):
            return "invalid"
        return "log-normal not rejected" if self.lilliefors_p >= ALPHA else "not log-normal"


def fit_lognormal(values: Sequence[float], seed: int = 0) -> LogNormal:
    """scipy's `lognorm.fit(floc=0)` and `kstest` on positive values, and Lilliefors on their logarithms."""
    positive = np.array([v for v in values if v > 0], np.float64)
    zeros = len(values) - len(positive)
    if len(positive) < 3 or float(np.ptp(positive)) == 0.0:
        return LogNormal(len(positive), zeros)
    shape, _, scale = stats.lognorm.fit(positive, floc=0)
    test = stats.kstest(positive, "lognorm", args=(shape, 0, scale))
    p = lilliefors(np.log(positive), seed)
    return LogNormal(
        len(positive), zeros, float(shape), float(scale), float(test.statistic), float(test.pvalue), p
    )


def lilliefors(values: Array, seed: int = 0) -> float:
    """p-value of "normal with some mean and deviation": the statistic's own distribution is simulated."""
    random = np.random.default_rng(seed)
    samples = random.standard_normal((SIMULATIONS, len(values)))
    simulated = _normal_distance(samples)
    return float((1 + np.sum(simulated >= _normal_distance(values[None])[0])) / (SIMULATIONS + 1))


def _normal_distance(samples: Array) -> Array:
    """Largest distance between each row's ECDF and the normal distribution fitted to that row."""
    count = samples.shape[1]
    spread = samples.std(axis=1, keepdims=True)
    ordered = np.sort(
        (samples - samples.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0), axis=1
    )
    below = stats.norm.cdf(ordered)
    steps = np.arange(1, count + 1) / count
    return np.asarray(np.maximum((steps - below).max(axis=1), (below - steps + 1 / count).max(axis=1)))


@dataclass(frozen=True)
class TwoSamples:
    """Are two samples alike? KS on the distributions, Welch's t on the means; NaN where too few values."""

    name: str
    first: int
    second: int
    ks: float = math.nan
    ks_p: float = math.nan
    t: float = math.nan
    t_p: float = math.nan


def compare(name: str, first: Sequence[float], second: Sequence[float]) -> TwoSamples:
    """The two-sample tests."""
    if min(len(first), len(second)) < 2:
        return TwoSamples(name, len(first), len(second))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # with ties scipy takes the limit distribution, loudly
        ks = stats.ks_2samp(first, second)
    t, p = math.nan, math.nan
    if np.ptp(first) > 0 or np.ptp(second) > 0:
        welch = stats.ttest_ind(first, second, equal_var=False)
        t, p = float(welch.statistic), float(welch.pvalue)
    return TwoSamples(name, len(first), len(second), float(ks.statistic), float(ks.pvalue), t, p)


def rank_correlation(groups: Mapping[str, Mapping[int, float]]) -> tuple[list[str], Array]:
    """Spearman's rho of the critical radii of every two networks, on the inputs both were measured on."""
    names = list(groups)
    matrix = np.full((len(names), len(names)), math.nan)
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            common = sorted(groups[one].keys() & groups[other].keys())
            a, b = [groups[one][k] for k in common], [groups[other][k] for k in common]
            if i == j:
                matrix[i, j] = 1.0
            elif len(common) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0:
                matrix[i, j] = float(stats.spearmanr(a, b).statistic)
    return names, matrix


@dataclass(frozen=True)
class Interval:
    """A number known to lie between two; NaN where it is undefined."""

    low: float
    high: float

    def text(self, digits: int = 4) -> str:
        if math.isnan(self.low):
            return "undefined"
        low, high = f"{self.low:.{digits}f}", f"{self.high:.{digits}f}"
        return low if low == high else f"{low} .. {high}"

    def percent(self) -> str:
        """A share in percent, without the sign."""
        return Interval(100 * self.low, 100 * self.high).text(2)


@dataclass(frozen=True)
class AtRadius:
    """Everything that is counted at one radius.

    `robust` is among measured inputs (correctly classified ones, unless the predicted class was the
    reference), `accuracy` among all. `frequency` and `severity` are Bastani et al.'s: the share of inputs
    with a counterexample within the radius, and the mean distance of those.
    """

    radius: float
    robust: Interval
    accuracy: Interval
    frequency: Interval
    severity: Interval

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def at_radius(rows: Sequence[Row], radius: float) -> AtRadius:
    """Counts at one radius as intervals: what is proved, and what is not refuted."""
    pairs = brackets(rows)
    total = sum(r.measured or r.status.value == "misclassified" for r in rows)
    refuted = sum(upper <= radius for _, upper in pairs)
    unproved = sum(lower < radius for lower, _ in pairs)
    n = len(pairs)
    if not n:
        nothing = Interval(math.nan, math.nan)
        return AtRadius(radius, nothing, nothing, nothing, nothing)
    return AtRadius(
        radius,
        Interval((n - unproved) / n, (n - refuted) / n),
        Interval((n - unproved) / total, (n - refuted) / total),
        Interval(refuted / n, unproved / n),
        severity(pairs, radius),
    )


def brackets(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """(lower, upper) of measured rows; no witness is an infinite upper side."""
    return [
        (r.lower, math.inf if r.upper is None else r.upper)
        for r in rows
        if r.measured and r.lower is not None
    ]


def severity(pairs: Sequence[tuple[float, float]], radius: float) -> Interval:
    """The mean critical radius of the inputs whose critical radius is at most `radius`.

    Certain members have upper <= radius; possible ones lower < radius < upper. The smallest mean takes every
    lower side and adds possible members while they pull the mean down; the largest one accordingly.
    """
    certain = [(lo, up) for lo, up in pairs if up <= radius]
    possible = [lo for lo, up in pairs if lo < radius < up]
    if not certain and not possible:
        return Interval(math.nan, math.nan)
    low = _pulled([lo for lo, _ in certain], sorted(possible))
    high = -_pulled([-up for _, up in certain], [-radius] * len(possible))
    return Interval(low, high)


def _pulled(fixed: Sequence[float], optional: Sequence[float]) -> float:
    """The smallest mean of all of `fixed` and any of `optional` (increasing), at least one value."""
    values = list(fixed)
    for value in optional:
        if values and value >= sum(values) / len(values):
            break
        values.append(value)
    return sum(values) / len(values)


@dataclass(frozen=True)
class Rounding:
    """Counterexamples that are none any more when rounded to the levels of the stored data."""

    witnesses: int
    lost: int

    @property
    def share(self) -> float:
        return self.lost / self.witnesses if self.witnesses else math.nan


def rounding_losses(rows: Sequence[Row]) -> Rounding:
    judged = [r for r in rows if r.rounded is not None]
    return Rounding(len(judged), sum(not r.rounded for r in judged))
