"""k-binary search against a clock of its own: what k queries at a time cost where every query's time is known."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from verifolio.model.answer import Verdict

from .grid import Scheduler


@dataclass(frozen=True)
class Simulated:
    """The final indices, the queries and the cancelled ones among them, seconds that passed and seconds of work."""

    lo: int
    hi: int
    queries: int
    cancelled: int
    wall: float
    work: float


def draw_times(seed: int, critical: int, size: int) -> list[float]:
    """Seconds per radius: queries near the critical one take longest, with a heavy tail."""
    rng = random.Random(seed)
    return [rng.lognormvariate(0, 0.6) * (1 + 60 / (1 + abs(i - critical))) for i in range(size)]


def simulate(
    k: int, critical: int, times: Sequence[float], undecided: frozenset[int] = frozenset()
) -> Simulated:
    """Run the scheduler on a grid of as many radii as times; those below `critical` are UNSAT."""
    scheduler = Scheduler(len(times), k)
    queue: list[tuple[float, int]] = []
    started: dict[int, float] = {}
    now, queries, cancelled, work = 0.0, 0, 0, 0.0
    while True:
        for index in scheduler.launch():
            queries += 1
            started[index] = now
            heapq.heappush(queue, (now + times[index], index))
        if scheduler.done:
            return Simulated(scheduler.lo, scheduler.hi, queries, cancelled, now, work)
        now, index = heapq.heappop(queue)
        work += now - started[index]
        verdict = Verdict.UNSAT if index < critical else Verdict.SAT
        stopped = scheduler.answer(index, Verdict.TIMEOUT if index in undecided else verdict)
        cancelled += len(stopped)
        work += sum(now - started[i] for i in stopped)
        queue = [entry for entry in queue if entry[1] not in stopped]
        heapq.heapify(queue)
