"""Progress with a forecast: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time

from verifolio.cli.progress import ProgressLines

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


class Reporter(ProgressLines):
    """Tells standard error what finished and when the rest will be; silent if asked to be."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__("inputs", None, quiet)
        self.started = time.monotonic()
        self.finished = 0

    def __call__(self, row: Row, done: int, total: int) -> None:
        self.finished += 1
        rest = self._forecast(done, total)
        self.show(f"{done}/{total} {describe(row)}{rest}", done, total, rest)

    def _forecast(self, done: int, total: int) -> str:
        """What is left, at the pace of this session."""
        if not self.finished or done >= total:
            return ""
        pace = (time.monotonic() - self.started) / self.finished
        return f"; about {clock(pace * (total - done))} left"
