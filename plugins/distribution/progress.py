"""Progress with a forecast: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from .table import Row


def describe(row: Row) -> str:
    """One finished input."""
    where = f"{row.network} {row.split} {row.image_id}"
    if not row.measured:
        return f"{where}: {row.status.value}" + (f" ({row.reason})" if row.reason else "")
    upper = "?" if row.upper is None else f"{row.upper:.6g}"
    spent = f"{row.status.value} in {row.seconds:.1f} s, {row.queries} queries"
    return f"{where}: [{row.lower:.6g}, {upper}] {spent}"


def clock(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    )


class Reporter:
    """Tells standard error what finished and when the rest will be; silent if asked to be."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.started = time.monotonic()
        self.finished = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Reporter:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("inputs", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, row: Row, done: int, total: int) -> None:
        self.finished += 1
        if self.quiet:
            return
        text = f"{done}/{total} {describe(row)}{self._forecast(done, total)}"
        if self._bar is None:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
            return
        self._bar.update(
            self._task, completed=done, total=total, description=f"inputs{self._forecast(done, total)}"
        )
        self._bar.console.print(text, markup=False, highlight=False)

    def _forecast(self, done: int, total: int) -> str:
        """What is left, at the pace of this session."""
        if not self.finished or done >= total:
            return ""
        pace = (time.monotonic() - self.started) / self.finished
        return f"; about {clock(pace * (total - done))} left"
