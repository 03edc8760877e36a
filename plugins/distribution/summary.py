"""One network on one split in numbers: how many closed, how robust, how long it took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .radius_search import SearchStatus
from .table import Row


@dataclass(frozen=True)
class Summary:
    """Counts, means over measured rows (NaN where there are none), and running times.

    `terminated`: critical terminations (Bosman et al. 2025), rows with a query between the two sides that had no
    answer, among all measured rows. `unsolved`: rows about which nothing was answered. Times are those of rows
    without `reused` answers, which took no time here.
    """

    network: str
    split: str
    inputs: int
    measured: int
    misclassified: int
    errors: int
    closed: int
    unsolved: int
    terminated: int
    lowest: float
    mean_lower: float
    mean_upper: float
    mean_gap: float
    largest_gap: float
    seconds: float
    mean_seconds: float
    median_seconds: float
    most_seconds: float
    queries: int
    cancelled: int
    ties: int
    reused: int = 0

    @property
    def accuracy(self) -> float:
        return self.measured / self.inputs if self.inputs else math.nan

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": self.accuracy}

    def _time(self) -> str:
        return "no time measured" if math.isnan(self.mean_seconds) else f"{self.mean_seconds:.2f} s"

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.network} {self.split}: {self.closed} of {self.measured} closed, {self.misclassified} "
            f"misclassified, mean lower {_number(self.mean_lower)}, mean gap {_number(self.mean_gap)}, "
            f"{self._time()} and {self.queries / max(1, self.measured):.1f} queries per input"
            + (f" ({self.reused} reused, not in the times)" if self.reused else "")
        )


def _number(value: float) -> str:
    """A mean; where there was nothing to take it of, it is not known."""
    return "unknown" if math.isnan(value) else f"{value:.5f}"


def summarise(network: str, split: str, rows: Sequence[Row], step: float = 0.0) -> Summary:
    """The summary of rows of one network and split; see `broken_off` for `step`."""
    measured = [r for r in rows if r.measured]
    lower = [r.lower for r in measured if r.lower is not None]
    upper = [r.upper for r in measured if r.upper is not None]
    gaps = [r.gap for r in measured if r.gap is not None]
    seconds = [r.seconds for r in measured if not r.reused]
    return Summary(
        network,
        split,
        len(rows),
        len(measured),
        sum(r.status is SearchStatus.MISCLASSIFIED for r in rows),
        sum(r.status is SearchStatus.ERROR for r in rows),
        sum(r.status is SearchStatus.CLOSED for r in measured),
        sum(r.unsolved for r in measured),
        sum(broken_off(r, step) for r in measured),
        min(lower, default=math.nan),
        mean(lower),
        mean(upper),
        mean(gaps),
        max(gaps, default=math.nan),
        sum(seconds),
        mean(seconds),
        float(np.median(seconds)) if seconds else math.nan,
        max(seconds, default=math.nan),
        sum(r.queries for r in rows),
        sum(r.cancelled for r in rows),
        sum("tie" in r.flags for r in rows),
        sum(r.reused > 0 for r in measured),
    )


def broken_off(row: Row, step: float) -> bool:
    """Whether a row is a critical termination.

    Tables of other programs do not say which queries had no answer. There a gap between two sides that is wider
    than the grid's `step` must come from one.
    """
    if row.unsolved:
        return False
    if row.terminated is not None:
        return row.terminated
    return row.gap is not None and bool(row.lower) and 0 < step * (1 + 1e-9) < row.gap


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
