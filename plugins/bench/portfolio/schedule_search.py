"""The search for a schedule: best pairs exhaustively, then steps added, removed, moved and cut while it helps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import numpy as np

from verifolio.errors import InputError

from .table import Goal, Lane, Schedule, ScheduleStep, Table, cost, run_lane

SLICES = 12  # per configuration; taken from the times at which it decided something
LONGEST = 5  # steps in a lane
SLACK, EXTRA = 1.2, 0.1  # times vary from run to run: a slice is longer than the time it is made for
LEAST_GAIN = 1e-3  # of the cost; a change that helps less is taken for noise


def build(table: Table, cores: int, goal: Goal) -> tuple[Schedule, Table]:
    """The best schedule found for so many cores, and the part of the table whose rows it names.

    With `lanes` side by side each has `cores // lanes` cores; what was recorded on fewer is a cautious
    estimate, what was recorded on more is of no use there.
    """
    best: tuple[float, Schedule, Table] | None = None
    for lanes in range(1, cores + 1):
        part = table.at_most(cores // lanes)
        if len(part.configurations) < lanes:
            continue
        schedule, found = _Search(part, lanes, goal).run()
        if best is None or found < best[0] - LEAST_GAIN * abs(best[0]):
            best = (found, schedule, part)
    if best is None:
        least = min(c.cores for c in table.configurations)
        raise InputError("RESULTS", f"runs on at most {cores} cores", str(least), "use --cores")
    return best[1], best[2]


def single_best(table: Table, goal: Goal) -> Schedule:
    """The one configuration that would have been best alone."""
    costs = [cost(times, table.limits, goal) for times in table.solved]
    return ((ScheduleStep(int(np.argmin(costs))),),)


def slices(table: Table, row: int) -> list[float]:
    """Seconds that are worth trying for a configuration, rounded up to two digits."""
    times = np.unique(table.solved[row][np.isfinite(table.solved[row])])
    if len(times) > SLICES:
        times = np.quantile(times, np.linspace(0, 1, SLICES))
    return sorted({round_up(SLACK * float(t) + EXTRA) for t in times})


def round_up(value: float) -> float:
    """Two digits that matter, not less than the value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.10g}")


class _Search:
    def __init__(self, table: Table, lanes: int, goal: Goal) -> None:
        self.table, self.lanes, self.goal = table, lanes, goal
        self.slices = [slices(table, row) for row in range(len(table.configurations))]

    def run(self) -> tuple[Schedule, float]:
        """The schedule and its cost."""
        schedule = self._start()
        current = self._cost(schedule)
        while True:
            found = min(self._changes(schedule), key=lambda pair: pair[0], default=None)
            if found is None or found[0] >= current - LEAST_GAIN * abs(current):
                return schedule, current
            current, schedule = found

    def _start(self) -> Schedule:
        """One lane: the best of all pairs and slices. More: the best members side by side."""
        rows = range(len(self.table.configurations))
        single = min((((ScheduleStep(r),),) for r in rows), key=self._cost)
        if self.lanes == 1:
            pairs = [
                ((ScheduleStep(a, s), ScheduleStep(b)),)
                for a, b in permutations(rows, 2)
                for s in self.slices[a]
            ]
            pair = min(pairs, key=self._cost, default=single)
            gain = self._cost(single) - self._cost(pair)
            return pair if gain > LEAST_GAIN * abs(self._cost(single)) else single
        schedule: Schedule = single
        while len(schedule) < self.lanes:
            taken = {lane[0].row for lane in schedule}
            schedule = min(((*schedule, (ScheduleStep(r),)) for r in rows if r not in taken), key=self._cost)
        return schedule

    def _cost(self, schedule: Schedule) -> float:
        times = np.minimum.reduce([run_lane(lane, self.table)[0] for lane in schedule])
        return cost(times, self.table.limits, self.goal)

    def _changes(self, schedule: Schedule) -> Iterator[tuple[float, Schedule]]:
        """Every schedule that differs in one step, with its cost; the other lanes are computed once."""
        times = [run_lane(lane, self.table)[0] for lane in schedule]
        for k, lane in enumerate(schedule):
            rest = [t for j, t in enumerate(times) if j != k]
            for changed in self._neighbours(lane):
                done = np.minimum.reduce([*rest, run_lane(changed, self.table)[0]])
                yield cost(done, self.table.limits, self.goal), (*schedule[:k], changed, *schedule[k + 1 :])

    def _neighbours(self, lane: Lane) -> Iterator[Lane]:
        for k, step in enumerate(lane):
            rest = (*lane[:k], *lane[k + 1 :])
            if rest:
                yield _ended(rest)
            if k < len(lane) - 1:
                yield from (
                    (*lane[:k], ScheduleStep(step.row, s), *lane[k + 1 :]) for s in self.slices[step.row]
                )
                yield self._limited((*lane[:k], lane[k + 1], step, *lane[k + 2 :]))
        rows = range(len(self.table.configurations)) if len(lane) < LONGEST else range(0)
        for row in rows:
            for place in range(len(lane)):
                yield from ((*lane[:place], ScheduleStep(row, s), *lane[place:]) for s in self.slices[row])
            last = lane[-1]
            yield from (
                (*lane[:-1], ScheduleStep(last.row, s), ScheduleStep(row)) for s in self.slices[last.row]
            )

    def _limited(self, lane: Lane) -> Lane:
        """The last step has what is left; the others need a slice."""
        longest = [s[-1] if s else 1.0 for s in self.slices]
        steps = [s if s.seconds is not None else ScheduleStep(s.row, longest[s.row]) for s in lane]
        return _ended(tuple(steps))


def _ended(lane: Lane) -> Lane:
    return (*lane[:-1], ScheduleStep(lane[-1].row))
