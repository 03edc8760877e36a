"""Which network is more robust: what is decided about every two of them, and what is not.

Everything here is about the inputs of the run alone. An interval is between what is proved and what is not refuted;
two intervals that do not meet decide a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from verifolio.plugin.account import Account, InputResult

MOST = 45  # pairs: ten networks; more are not read


@dataclass(frozen=True)
class Share:
    """A share of inputs that lies between two numbers of them."""

    low: int
    high: int
    of: int

    @property
    def text(self) -> str:
        """In percent."""
        if not self.of:
            return "none"
        low, high = (f"{100 * k / self.of:.3g}" for k in (self.low, self.high))
        return f"{low} %" if low == high else f"{low} to {high} %"


@dataclass(frozen=True)
class Comparison:
    """Two networks: on how many inputs the first or the second is more robust for sure, on how many that is not
    decided, on how many they are equal; and the shares of robust inputs at radii."""

    first: str
    second: str
    better: int
    worse: int
    undecided: int
    equal: int
    at: tuple[tuple[float, Share, Share], ...]


def decided(first: Share, second: Share) -> str:
    """Which of two shares of the same inputs is larger: first, second, equal, or open."""
    if first.low > second.high:
        return "first"
    if second.low > first.high:
        return "second"
    return "equal" if first.low == first.high == second.low == second.high else "open"


def robust_at(results: Sequence[InputResult], radius: float) -> Share:
    """How many of these inputs are robust at a radius; a misclassified one is not, one that failed is left out."""
    counted = [r for r in results if r.status != "error"]
    bounds = [_known(r, radius) for r in counted]
    return Share(sum(low for low, _ in bounds), sum(high for _, high in bounds), len(counted))


def _known(r: InputResult, radius: float) -> tuple[bool, bool]:
    """Whether an input is proved robust at a radius, and whether it is not refuted there."""
    if r.status == "misclassified":
        return False, False
    if r.lower is not None:
        upper = math.inf if r.upper is None else r.upper
        return r.lower >= radius, upper > radius
    epsilon = math.inf if r.epsilon is None else r.epsilon
    proved = r.status == "proved" and epsilon >= radius
    refuted = r.status == "refuted" and epsilon <= radius
    return proved, not refuted


def at_each(results: Sequence[InputResult], radius: float) -> list[InputResult]:
    """The results that speak about a radius: all brackets, and verdicts at exactly this one."""
    return [r for r in results if r.lower is not None or r.epsilon is None or r.epsilon == radius]


def compare_all(account: Account) -> list[Comparison]:
    """Every two networks on the inputs that both were asked about."""
    found = []
    for first, second in list(combinations(account.networks, 2))[:MOST]:
        mine = {(r.data, r.index, r.epsilon): r for r in account.results if r.network == first}
        theirs = {(r.data, r.index, r.epsilon): r for r in account.results if r.network == second}
        common = [(mine[k], theirs[k]) for k in mine if k in theirs]
        if common:
            found.append(_compare(first, second, common, account.thresholds))
    return found


def _compare(
    first: str, second: str, pairs: Sequence[tuple[InputResult, InputResult]], radii: Sequence[float]
) -> Comparison:
    order = [_order(a, b) for a, b in pairs]
    at = []
    for radius in radii:
        ones, others = at_each([a for a, _ in pairs], radius), at_each([b for _, b in pairs], radius)
        if ones and others:
            at.append((radius, robust_at(ones, radius), robust_at(others, radius)))
    counts = (order.count("first"), order.count("second"), order.count("open"), order.count("equal"))
    return Comparison(first, second, *counts, tuple(at))


def _order(a: InputResult, b: InputResult) -> str:
    """Which of two results about one input is better for sure."""
    low_a, high_a = _interval(a)
    low_b, high_b = _interval(b)
    if low_a > high_b:
        return "first"
    if low_b > high_a:
        return "second"
    return "equal" if low_a == high_a == low_b == high_b else "open"


def _interval(r: InputResult) -> tuple[float, float]:
    """Between which numbers the critical radius lies; of a verdict, 1 is robust and 0 is not."""
    if r.status == "misclassified":
        return 0.0, 0.0
    if r.lower is not None:
        return r.lower, math.inf if r.upper is None else r.upper
    return {"proved": (1.0, 1.0), "refuted": (0.0, 0.0)}.get(r.status, (0.0, 1.0))
