"""The `inline` executor: jobs run in the caller's process, one at a time, with nothing to contain them."""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
import time
import traceback
from collections.abc import Sequence
from functools import cache

from verifolio.plugin.executor import Executor, Handle
from verifolio.run import End, Job, Link, Result
from verifolio.run.template import PRELOAD


class InlineHandle(Handle):
    """A job that runs when its result is asked for."""

    def __init__(self, job: Job, turn: threading.Lock) -> None:
        self._job = job
        self._turn = turn
        self._messages: list[object] = []
        self._cancelled = threading.Event()
        self._result: Result | None = None

    def cancel(self) -> None:
        self._cancelled.set()

    def messages(self) -> tuple[object, ...]:
        return tuple(self._messages)

    def result(self, timeout: float | None = None) -> Result | None:
        with self._turn:
            if self._result is None:
                self._result = self._run()
        return self._result

    def _run(self) -> Result:
        if self._cancelled.is_set():
            return Result(End.CANCELLED, detail="cancelled before it started")
        _preload()
        started = time.monotonic()
        deadline = started + (self._job.limits.seconds or math.inf)
        link = Link(deadline, self._cancelled.is_set, self._messages.append)
        value, detail, end = None, "", End.DONE
        try:
            value = self._job.function(self._job.payload, link)
        except Exception as error:  # what a worker process would report as its end
            end, detail = End.ERROR, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        if self._cancelled.is_set():
            end = End.CANCELLED
        elif time.monotonic() > deadline:
            end = End.TIMEOUT
        seconds = time.monotonic() - started
        return Result(end, value, detail, seconds, messages=tuple(self._messages))


@cache
def _preload() -> None:
    """What worker processes start with takes no job's time here either."""
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class InlineExecutor(Executor):
    """Limits are only asked for, not enforced: a debugger sees everything, a hanging job hangs."""

    name = "inline"

    def __init__(self, workers: int = 1, options: object = None) -> None:
        super().__init__(1, options)
        self._turn = threading.Lock()

    def submit(self, job: Job) -> Handle:
        return InlineHandle(job, self._turn)

    def wait(self, handles: Sequence[Handle], timeout: float | None = None) -> list[Handle]:
        return [handle for handle in handles[:1] if handle.result() is not None]
