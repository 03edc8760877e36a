"""One network on one split in numbers: how many closed, how robust, how long it took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .search import Status
from .table import Row


@dataclass(frozen=True)
class Summary:
    """Counts, means over measured rows (NaN where there are none), and running times.

    `terminated`: rows whose gap exceeds a grid step (or that have no gap), the paper's critical terminations,
    among all measured rows. `unsolved`: rows about which nothing was answered.
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

    @property
    def accuracy(self) -> float:
        return self.measured / self.inputs if self.inputs else math.nan

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": self.accuracy}

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.network} {self.split}: {self.closed} of {self.measured} closed, {self.misclassified} "
            f"misclassified, mean lower {self.mean_lower:.5f}, mean gap {self.mean_gap:.5f}, "
            f"{self.mean_seconds:.2f} s and {self.queries / max(1, self.measured):.1f} queries per input"
        )


def summarise(network: str, split: str, rows: Sequence[Row], step: float = 0.0) -> Summary:
    """The summary of rows of one network and split; a gap above `step` is a critical termination."""
    measured = [r for r in rows if r.measured]
    lower = [r.lower for r in measured if r.lower is not None]
    upper = [r.upper for r in measured if r.upper is not None]
    gaps = [r.gap for r in measured if r.gap is not None]
    seconds = [r.seconds for r in measured]
    open_rows = [r for r in measured if (r.gap is None or r.gap > step * (1 + 1e-9))]
    kept = open_rows if step > 0 else [r for r in measured if r.status is not Status.CLOSED]
    return Summary(
        network,
        split,
        len(rows),
        len(measured),
        sum(r.status is Status.MISCLASSIFIED for r in rows),
        sum(r.status is Status.ERROR for r in rows),
        sum(r.status is Status.CLOSED for r in measured),
        sum(r.unsolved for r in measured),
        len(kept),
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
    )


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
