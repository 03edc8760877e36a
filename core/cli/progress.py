"""What finishes, told on standard error while work goes on; with a bar where that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class ProgressLines:
    """A line for everything that finishes, under a bar on a terminal; silent if asked to be."""

    def __init__(self, what: str, total: int | None = None, quiet: bool = False) -> None:
        self.what, self.total, self.quiet = what, total, quiet
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, text: str, done: int, total: int | None, rest: str = "") -> None:
        """Print a line and move the bar, which is described by what it counts and by what is left."""
        if self.quiet:
            return
        if self._bar is None:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
            return
        self._bar.update(self._task, completed=done, total=total, description=self.what + rest)
        self._bar.console.print(text, markup=False, highlight=False)
