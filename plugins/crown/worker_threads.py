"""Worker threads that take pieces of work from one list.

Torch computes outside the interpreter's lock. Two threads with a batch each bound 1.6 times as many subproblems per
second as one, torch's own two as many as one (`verifolio.run.threads`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from verifolio.run.threads import one_thread

T = TypeVar("T")


class WorkerThreads(Generic[T]):
    """`take` gives the next piece of work, None if there is none at the moment; `work` does it, True ends it all.

    `take` is called by one thread at a time, with `lock` held; whoever adds to the work holds it too.
    """

    def __init__(self, size: int, take: Callable[[], T | None], work: Callable[[T], bool]) -> None:
        self.size, self.take, self.work = size, take, work
        self.lock = threading.Condition()
        self._busy = 0
        self._over = False
        self._errors: list[BaseException] = []

    def run(self) -> None:
        """Until nothing is left and nobody works any more; raises what went wrong."""
        helpers = [threading.Thread(target=self._serve, name=f"worker-{k}") for k in range(1, self.size)]
        for helper in helpers:
            helper.start()
        self._serve()
        for helper in helpers:
            helper.join()
        if self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        with one_thread():  # each thread has its own setting
            self._work()

    def _work(self) -> None:
        while (piece := self._next()) is not None:
            over = True
            try:
                over = self.work(piece)
            except BaseException as error:  # raised again by `run`
                self._errors.append(error)
            with self.lock:
                self._busy -= 1
                self._over |= over
                self.lock.notify_all()

    def _next(self) -> T | None:
        with self.lock:
            while not self._over:
                piece = self.take()
                if piece is not None:
                    self._busy += 1
                    return piece
                if not self._busy:
                    break
                self.lock.wait()
        return None
