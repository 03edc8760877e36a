"""Progress of a function: a counter on a terminal, a line that changes in a notebook, nothing in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class Counter:
    """Says how far something is, wherever somebody looks."""

    def __init__(self, total: int, shown: bool = True) -> None:
        self.total, self.done = total, 0
        self._counts: dict[str, int] = {}
        self._terminal = shown and sys.stderr.isatty()
        self._display: Any = None
        if shown and in_notebook():
            self._display = sys.modules["IPython"].display.display("", display_id=True)

    def __enter__(self) -> Counter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal and self.done:
            sys.stderr.write("\r\x1b[K")

    def __call__(self, status: str) -> None:
        """One more is done."""
        self.done += 1
        self._counts[status] = self._counts.get(status, 0) + 1
        text = f"{self.done} of {self.total}: " + ", ".join(f"{n} {s}" for s, n in self._counts.items())
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        if self._display is not None:
            self._display.update(Plain(text))


class Plain:
    """Text that a notebook shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
