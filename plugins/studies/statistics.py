"""Statistics of critical radii: what tables of distributions are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SIGNIFICANT = 0.05  # the level of all of the paper's tests
FEW = 8  # below that many values a test of a distribution says nothing


@dataclass(frozen=True)
class Side:
    """Radii of many inputs: proved (or published as verified), refuted (None: not), and seconds."""

    lower: Sequence[float]
    upper: Sequence[float | None]
    seconds: Sequence[float]

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Both sides of the inputs that have both."""
        return [(a, b) for a, b in zip(self.lower, self.upper, strict=True) if b is not None]

    @property
    def gap(self) -> float:
        """The mean distance of the two sides."""
        return mean([b - a for a, b in self.pairs])


def mean(values: Sequence[float]) -> float:
    """nan where there is nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def lognormal_p(values: Sequence[float]) -> float:
    """Kolmogorov-Smirnov against a log-normal distribution fitted to the positive values; nan where it says nothing.

    The variant that reproduces most cells of the paper's tables 2 and 3; fitted parameters make p too large.
    """
    from scipy import stats

    positive = [v for v in values if v > 0]
    if len(positive) < FEW or min(positive) == max(positive):
        return math.nan
    shape, loc, scale = stats.lognorm.fit(positive, floc=0)
    return float(stats.kstest(positive, "lognorm", (shape, loc, scale)).pvalue)


def two_sample_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sample Kolmogorov-Smirnov."""
    from scipy import stats

    if min(len(first), len(second)) < FEW:
        return math.nan
    return float(stats.ks_2samp(first, second).pvalue)


def means_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Welch's t-test."""
    from scipy import stats

    if min(len(first), len(second)) < FEW:
        return math.nan
    return float(stats.ttest_ind(first, second, equal_var=False).pvalue)


def correlation(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[int, float]:
    """Spearman's coefficient on the inputs that both have, and how many these are."""
    from scipy import stats

    both = sorted(first.keys() & second.keys())
    if len(both) < FEW:
        return len(both), math.nan
    return len(both), float(stats.spearmanr([first[i] for i in both], [second[i] for i in both]).statistic)


def share_above(values: Sequence[float], radius: float) -> float:
    """The share that is robust at a radius."""
    return mean([float(v >= radius) for v in values])


def describe(mine: Side, other: Side, step: float) -> dict[str, str]:
    """The columns of tables 2, 3, 5, 8 to 10 and 23; `critical` is the share of gaps wider than one step."""
    wide = [float(b - a > step * 1.01) for a, b in mine.pairs] + [1.0] * (len(mine.lower) - len(mine.pairs))
    lower, upper = [a for a, _ in mine.pairs], [b for _, b in mine.pairs]
    numbers = {
        "lowest": min(mine.lower, default=math.nan),
        "mean": mean(mine.lower),
        "deviation": float(np.std(mine.lower)) if len(mine.lower) else math.nan,
        "gap": mine.gap,
        "critical": mean(wide),
        "lognormal_p": lognormal_p(mine.lower),
        "splits_p": two_sample_p(mine.lower, other.lower),
        "sides_ks_p": two_sample_p(lower, upper),
        "sides_t_p": means_p(lower, upper),
        "above_012": share_above(mine.lower, 0.012),
        "above_040": share_above(mine.lower, 0.04),
        "seconds": mean(mine.seconds),
    }
    return {"n": str(len(mine.lower))} | {name: f"{value:.5g}" for name, value in numbers.items()}
