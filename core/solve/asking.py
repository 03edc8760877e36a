"""Asking: a query that was submitted, while it is being decided."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from verifolio.model.answer import Answer
from verifolio.model.query import Query
from verifolio.solve.walk import Walk


class Asking:
    """A query that was submitted; `index` is whatever the asker wants to remember it by."""

    def __init__(self, query: Query, index: int = 0, attacked: bool = False) -> None:
        self.query = query
        self.index = index
        self.attacked = attacked
        self.submitted = time.monotonic()
        self._future: Future[Answer] = Future()
        self._walk: Walk | None = None
        self._lock = threading.Lock()
        self._cancelled = False

    def done(self) -> bool:
        return self._future.done()

    def answer(self, timeout: float | None = None) -> Answer:
        """The answer, waiting for it; raises what went wrong, or TimeoutError."""
        return self._future.result(timeout)

    def cancel(self) -> None:
        """Stop working on it: the answer becomes CANCELLED unless there is one already."""
        with self._lock:
            self._cancelled = True
            walk = self._walk
        if walk is not None:
            walk.cancel()

    def _begin(self, walk: Walk) -> bool:
        with self._lock:
            self._walk = walk
            return not self._cancelled

    def _settle(self, decide: Callable[[], Answer]) -> None:
        try:
            self._future.set_result(decide())
        except BaseException as error:  # handed to whoever asks for the answer
            self._future.set_exception(error)


def serves(answer: Answer, had: float, provers_only: bool, timeout: float, attacked: bool) -> bool:
    """Whether a remembered answer serves: decided, or undecided by as many members with as much time."""
    return answer.verdict.decided or (had >= timeout and (attacked or not provers_only))
