"""Cross-validation: what learning gives on instances that it has not seen, and what each member is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .schedule_search import build, single_best
from .table import Array, Goal, Table, decided, par2, run_schedule, score

LEARNED, SINGLE, BEST = "learned", "single best", "virtual best"
SAMPLES = 2000  # bootstrap


@dataclass(frozen=True)
class Line:
    """One way to decide the instances, each by what was learned without it."""

    name: str
    decided: int
    score: int
    par2: float


@dataclass(frozen=True)
class Difference:
    """Mean seconds that `learned` is quicker than another, and where 95 % of resampled means lie."""

    other: str
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.low > 0:
            return f"{LEARNED} is better than {self.other}"
        if self.high < 0:
            return f"{self.other} is better than {LEARNED}"
        return f"no difference between {LEARNED} and {self.other} that these instances could show"


@dataclass(frozen=True)
class Worth:
    """What a configuration is worth: how PAR-2 and the number decided change when it may not be used."""

    name: str
    alone: int
    only: int
    loss: float
    lost: int


@dataclass(frozen=True)
class Judgement:
    """The cross-validated comparison."""

    folds: int
    lines: tuple[Line, ...]
    differences: tuple[Difference, ...]
    worths: tuple[Worth, ...]


def judge(table: Table, cores: int, goal: Goal, folds: int, seed: int = 0) -> Judgement:
    """Learn on all folds but one, use on that one; every instance is used once."""
    parts = list(split(len(table.labels), folds, seed))
    learned = cross_validate(table, cores, goal, parts)
    times = {LEARNED: learned, SINGLE: _single(table, goal, parts)}
    times |= dict(table.others)
    times |= {c.name: t for c, t in zip(table.configurations, table.solved, strict=True)}
    times[BEST] = table.solved.min(axis=0)
    lines = [Line(n, decided(t), score(t), par2(t, table.limits)) for n, t in times.items()]
    compared = [SINGLE, *table.others]
    return Judgement(
        len(parts),
        tuple(lines),
        tuple(_difference(name, times[name], learned, table.limits, seed) for name in compared),
        tuple(_worths(table, cores, goal, parts, learned)),
    )


def split(count: int, folds: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Random parts of nearly the same size; no more of them than instances."""
    order = np.random.default_rng(seed).permutation(count)
    return (np.sort(p) for p in np.array_split(order, max(1, min(folds, count))) if len(p))


def cross_validate(table: Table, cores: int, goal: Goal, parts: list[NDArray[np.int64]]) -> Array:
    """When each instance is decided by the schedule that was learned from the other parts."""
    done = np.empty(len(table.labels))
    for part in parts:
        schedule, rows = build(_training(table, part, parts), cores, goal)
        seen = {c.name: k for k, c in enumerate(table.configurations)}
        chosen = table.rows([seen[c.name] for c in rows.configurations]).columns(part)
        done[part] = run_schedule(schedule, chosen)[0]
    return done


def _training(table: Table, part: NDArray[np.int64], parts: list[NDArray[np.int64]]) -> Table:
    rest = np.setdiff1d(np.arange(len(table.labels)), part)
    return table.columns(rest if len(parts) > 1 else part)


def _single(table: Table, goal: Goal, parts: list[NDArray[np.int64]]) -> Array:
    done = np.empty(len(table.labels))
    for part in parts:
        row = single_best(_training(table, part, parts), goal)[0][0].row
        done[part] = table.solved[row][part]
    return done


def _difference(other: str, theirs: Array, ours: Array, limits: Array, seed: int) -> Difference:
    paid = [np.where(np.isinf(t), 2 * limits, t) for t in (theirs, ours)]
    gains = paid[0] - paid[1]
    picks = np.random.default_rng(seed).integers(0, len(gains), (SAMPLES, len(gains)))
    low, high = np.quantile(gains[picks].mean(axis=1), [0.025, 0.975])
    return Difference(other, float(gains.mean()), float(low), float(high))


def _worths(
    table: Table, cores: int, goal: Goal, parts: list[NDArray[np.int64]], learned: Array
) -> Iterator[Worth]:
    """Leave one configuration out, learn again, compare on the same folds."""
    base, found = par2(learned, table.limits), decided(learned)
    for row, configuration in enumerate(table.configurations):
        others = np.delete(table.solved, row, axis=0)
        alone = np.isfinite(table.solved[row])
        only = alone & (np.isinf(others).all(axis=0) if len(others) else True)
        loss, lost = float("nan"), found
        if len(others):
            done = cross_validate(table.without(row), cores, goal, parts)
            loss, lost = par2(done, table.limits) - base, found - decided(done)
        yield Worth(configuration.name, int(alone.sum()), int(only.sum()), loss, lost)
