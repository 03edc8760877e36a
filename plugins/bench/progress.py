"""Progress with a forecast: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from .instances import Instance
from .results import InstanceResult


def clock(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class Forecast:
    """How long the rest will take: each instance what its category took so far, or a part of its limit."""

    def __init__(self, instances: Sequence[Instance], jobs: int) -> None:
        self._left = list(instances)
        self._jobs = jobs
        self._spent: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def finish(self, instance: Instance, seconds: float) -> None:
        """An instance took this long."""
        self._left.remove(instance)
        self._spent[instance.category].append((seconds, instance.timeout))

    def seconds(self) -> float:
        """The forecast; half of every limit as long as nothing is known."""
        every = [pair for pairs in self._spent.values() for pair in pairs]
        total = sum(min(i.timeout, self._expected(i, self._spent[i.category] or every)) for i in self._left)
        return total / self._jobs

    @staticmethod
    def _expected(instance: Instance, known: Sequence[tuple[float, float]]) -> float:
        if not known:
            return instance.timeout / 2
        share = sum(s for s, _ in known) / max(sum(t for _, t in known), 1e-9)
        return share * instance.timeout


class Reporter:
    """Tells standard error what finished and when the rest will be; silent if asked to be."""

    def __init__(self, instances: Sequence[Instance], jobs: int, quiet: bool = False) -> None:
        self.quiet = quiet
        self.total, self.done, self.resumed = len(instances), 0, 0
        self._forecast = Forecast(instances, jobs)
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Reporter:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("instances", total=self.total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell_resumed()
        if self._bar is not None:
            self._bar.stop()

    def _tell_resumed(self) -> None:
        if self.resumed:
            self._show(f"{self.resumed} of {self.total} instances known from before")
            self.resumed = 0

    def __call__(self, instance: Instance, result: InstanceResult, resumed: bool) -> None:
        self.done += 1
        self._forecast.finish(instance, result.seconds)
        if resumed:
            self.resumed += 1
            return
        self._tell_resumed()
        rest = f"; about {clock(self._forecast.seconds())} left" if self.done < self.total else ""
        by = f" by {result.verifier}" if result.verdict.decided else ""
        text = (
            f"{self.done}/{self.total} {instance.label}: {result.verdict.value}{by} in {result.seconds:.2f} s"
        )
        self._show(text + _warning(instance, result) + rest)

    def _show(self, text: str) -> None:
        if self.quiet:
            return
        if self._bar is None:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
            return
        self._bar.update(self._task, completed=self.done)
        self._bar.console.print(text, markup=False, highlight=False)


def _warning(instance: Instance, result: InstanceResult) -> str:
    known = instance.expected in ("sat", "unsat")
    wrong = result.verdict.decided and known and result.verdict.value != instance.expected
    return f" (WRONG: expected {instance.expected})" if wrong else ""
