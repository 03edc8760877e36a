"""What searches cost: queries, answers that never came, and time, run by run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .ledger import DistributionLedger, Spent


@dataclass(frozen=True)
class SearchCost:
    """One stored run over its measured inputs.

    `bound` is the number of queries that always suffices if every query is answered (Cicalese et al. 2004; known
    for odd k, 2 and 4). `busy` seconds are those of all queries added up, `wall` seconds those that passed; inputs
    with `reused` answers are in neither.
    """

    label: str
    inputs: int
    bound: int | None
    least: int
    most: int
    mean: float
    queries: int
    timeouts: int
    memouts: int
    cancelled: int
    wall: tuple[float, ...]
    busy: tuple[float, ...]
    reused: int = 0

    @property
    def mean_wall(self) -> float:
        return float(np.mean(self.wall)) if self.wall else math.nan

    @property
    def mean_busy(self) -> float:
        return float(np.mean(self.busy)) if self.busy else math.nan

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"mean_wall": self.mean_wall, "mean_busy": self.mean_busy}


def search_costs(ledgers: Iterable[DistributionLedger]) -> list[SearchCost]:
    """Every run that measured something, in the order of their labels; a run may be spread over stores."""
    runs: dict[str, tuple[dict[str, Any], list[Spent]]] = {}
    for ledger in ledgers:
        for run, settings in ledger.runs():
            runs.setdefault(run, (settings, []))[1].extend(ledger.spent(run))
    found = [(settings, spent, run) for run, (settings, spent) in runs.items() if spent]
    labels = [label_of(settings) for settings, _, _ in found]
    named = [
        label if labels.count(label) == 1 else f"{label} ({run[:6]})"
        for label, (_, _, run) in zip(labels, found, strict=True)
    ]
    costs = [cost_of(n, settings, spent) for n, (settings, spent, _) in zip(named, found, strict=True)]
    return sorted(costs, key=lambda c: (not c.label.startswith("k ="), len(c.label), c.label))


def label_of(settings: dict[str, Any]) -> str:
    """How a run is called: by its number of simultaneous queries, or by its search."""
    search = str(settings.get("search", "bracket"))
    return f"k = {together(settings)}" if settings.get("radii") else search


def together(settings: dict[str, Any]) -> int:
    """How many queries a run asked at a time; stores of earlier versions have the number by itself."""
    told = dict(str(pair).partition("=")[::2] for pair in settings.get("choices", ()))
    return int(told.get("k", settings.get("k", 1)))


def cost_of(label: str, settings: dict[str, Any], spent: Sequence[Spent]) -> SearchCost:
    counts = [s.queries for s in spent]
    size = len(settings.get("radii") or ())
    return SearchCost(
        label,
        len(spent),
        worst_case(size, together(settings)) if size else None,
        min(counts),
        max(counts),
        float(np.mean(counts)),
        sum(counts),
        sum(s.timeouts for s in spent),
        sum(s.memouts for s in spent),
        sum(s.cancelled for s in spent),
        tuple(s.seconds for s in spent if not s.reused),
        tuple(s.busy for s in spent if not s.reused),
        sum(s.reused > 0 for s in spent),
    )


def worst_case(size: int, k: int) -> int | None:
    """The least t with N(t) > size, where N(t) = t + 1 up to k, then N(t - 1) + N(t - k).

    A grid of `size` radii has one answer more than radii: also "none of them".
    """
    if k % 2 == 0 and k not in (2, 4):
        return None
    reach = [t + 1 for t in range(k + 1)]
    while reach[-1] <= size:
        reach.append(reach[-1] + reach[-k])
    return next(t for t, n in enumerate(reach) if n > size)
