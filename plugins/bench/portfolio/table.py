"""What is known of the recorded runs as arrays, and what a schedule would have made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError

from ..scoring import CORRECT, DECIDED
from .runs import Configuration, Record, Run

Array = NDArray[np.float64]
Goal = Literal["par2", "score"]


@dataclass(frozen=True)
class Table:
    """Configurations (rows) on instances (columns).

    `solved` are seconds until the right answer, infinite without one; `spent` seconds until the configuration
    ended by itself or by the limit. `others` are whole portfolios to compare with, as rows of `solved`.
    """

    labels: tuple[str, ...]
    limits: Array
    configurations: tuple[Configuration, ...]
    solved: Array
    spent: Array
    others: Mapping[str, Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def without(self, row: int) -> Table:
        """The same runs, one configuration fewer."""
        keep = [k for k in range(len(self.configurations)) if k != row]
        return self.rows(keep)

    def at_most(self, cores: int) -> Table:
        """Only configurations that were recorded on at most so many cores."""
        return self.rows([k for k, c in enumerate(self.configurations) if c.cores <= cores])

    def rows(self, keep: Sequence[int]) -> Table:
        """Some of the configurations."""
        chosen = tuple(self.configurations[k] for k in keep)
        return Table(
            self.labels, self.limits, chosen, self.solved[keep], self.spent[keep], self.others, self.notes
        )

    def columns(self, keep: NDArray[np.int64]) -> Table:
        """The same configurations on some of the instances."""
        labels = tuple(self.labels[k] for k in keep)
        others = {name: times[keep] for name, times in self.others.items()}
        solved, spent = self.solved[:, keep], self.spent[:, keep]
        return Table(labels, self.limits[keep], self.configurations, solved, spent, others, self.notes)


def make_table(runs: Sequence[Run], truths: Mapping[str, str]) -> Table:
    """Instances that every run has; configurations with a wrong answer are left out."""
    members = [r for r in runs if r.configuration is not None]
    if not members:
        raise InputError(
            "RESULTS", "runs of single verifiers", "none", "use `verifolio bench --verifier NAME`"
        )
    shared = set.intersection(*(set(r.records) for r in runs))
    labels = tuple(label for label in runs[0].records if label in shared)
    if not labels:
        raise InputError("RESULTS", "runs on the same instances", "no instance in common", "see --instances")
    notes = [f"{r.name}: {len(r.records) - len(labels)} instances that not every run has" for r in runs]
    known = {label: truths.get(label) or _claimed(runs, label) for label in labels}
    wrong = {r.name: sum(_wrong(r.records[i], known[i]) for i in labels) for r in runs}
    notes = [n for n, r in zip(notes, runs, strict=True) if len(r.records) > len(labels)]
    notes += [f"{name} is left out: {count} wrong answers" for name, count in wrong.items() if count]
    members = [r for r in members if not wrong[r.name]]
    if not members:
        raise InputError("RESULTS", "a run without wrong answers", "none")
    limits = np.array([min(r.records[i].limit for r in runs) for i in labels])
    return Table(
        labels,
        limits,
        tuple(r.configuration for r in members if r.configuration is not None),
        np.stack([_solved(r, labels, limits) for r in members]),
        np.stack([_spent(r, labels, limits) for r in members]),
        {r.name: _solved(r, labels, limits) for r in runs if r.configuration is None and not wrong[r.name]},
        tuple(notes),
    )


def _claimed(runs: Sequence[Run], label: str) -> str:
    """A counterexample was replayed, a proof was not: `sat` of anybody counts."""
    return "sat" if any(r.records[label].result == "sat" for r in runs) else ""


def _wrong(record: Record, truth: str) -> bool:
    return record.result in DECIDED and truth in DECIDED and record.result != truth


def _solved(run: Run, labels: Sequence[str], limits: Array) -> Array:
    records = [run.records[label] for label in labels]
    times = [r.seconds if r.result in DECIDED else math.inf for r in records]
    return np.array([t if t <= limit else math.inf for t, limit in zip(times, limits, strict=True)])


def _spent(run: Run, labels: Sequence[str], limits: Array) -> Array:
    """A run that was cut by its limit is taken to need any longer one as well."""
    records = [run.records[label] for label in labels]
    ended = [math.inf if r.result == "timeout" or math.isnan(r.seconds) else r.seconds for r in records]
    return np.array([min(t, limit) for t, limit in zip(ended, limits.tolist(), strict=True)])


@dataclass(frozen=True)
class ScheduleStep:
    """A configuration (a row of the table) and its seconds; None is all that is left."""

    row: int
    seconds: float | None = None


Lane = tuple[ScheduleStep, ...]
Schedule = tuple[Lane, ...]


def run_lane(lane: Lane, table: Table) -> tuple[Array, NDArray[np.int64]]:
    """When each instance would have been decided (infinite: not), and by which row (-1: by none)."""
    clock = np.zeros(len(table.limits))
    done, by = np.full(len(clock), math.inf), np.full(len(clock), -1)
    for step in lane:
        left = table.limits - clock
        part = left if step.seconds is None else np.minimum(left, step.seconds)
        hit = np.isinf(done) & (table.solved[step.row] <= part)
        done[hit], by[hit] = (clock + table.solved[step.row])[hit], step.row
        clock = clock + np.minimum(part, table.spent[step.row])
    return done, by


def run_schedule(schedule: Schedule, table: Table) -> tuple[Array, NDArray[np.int64]]:
    """Lanes side by side: the first answer counts."""
    done, by = np.full(len(table.limits), math.inf), np.full(len(table.limits), -1)
    for lane in schedule:
        times, rows = run_lane(lane, table)
        better = times < done
        done[better], by[better] = times[better], rows[better]
    return done, by


def par2(done: Array, limits: Array) -> float:
    """Mean seconds, twice the limit where there is no answer."""
    return float(np.where(np.isinf(done), 2 * limits, done).mean()) if len(done) else 0.0


def decided(done: Array) -> int:
    return int(np.isfinite(done).sum())


def score(done: Array) -> int:
    """The competition's points; there are no wrong answers here."""
    return CORRECT * decided(done)


def cost(done: Array, limits: Array, goal: Goal) -> float:
    """What a search makes small: PAR-2, or minus the score with PAR-2 among equals."""
    mean = par2(done, limits)
    return mean if goal == "par2" else mean / (4 * limits.max()) - score(done)
