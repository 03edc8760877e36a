"""The `process` executor: jobs run in supervised worker processes that start warm."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verifolio.plugin.executor import Executor, Handle
from verifolio.plugin.options import described
from verifolio.run import Job, Link, Pool, Result, Ticket
from verifolio.run.template import LIGHT, PRELOAD


@dataclass(frozen=True)
class ProcessOptions:
    """Options of `process`."""

    preload: tuple[str, ...] = described(
        PRELOAD,
        "Modules that every worker starts with; they must run no operation when imported.",
    )
    light: tuple[str, ...] = described(
        LIGHT,
        "Modules with which workers start before the others are imported; those run early members of portfolios.",
    )


class ProcessHandle(Handle):
    """A ticket of the pool, and the messages of its job so far."""

    def __init__(self, ticket: Ticket, inbox: list[object]) -> None:
        self.ticket = ticket
        self._inbox = inbox

    def cancel(self) -> None:
        self.ticket.cancel()

    def result(self, timeout: float | None = None) -> Result | None:
        return self.ticket.wait(timeout)

    def messages(self) -> tuple[object, ...]:
        done = self.ticket.result
        return tuple(self._inbox) if done is None else done.messages


class ProcessExecutor(Executor):
    """A pool of workers; nothing starts before the first job."""

    name = "process"
    Options = ProcessOptions

    def __init__(self, workers: int = 1, options: Any = None) -> None:
        super().__init__(workers, options)
        self._lock = threading.Lock()
        self._inboxes: dict[Ticket, list[object]] = {}
        self._first: Ticket | None = None
        self._pool = Pool(workers, self.options.preload, self._deliver, self.options.light)

    def _deliver(self, ticket: Ticket, message: object) -> None:
        with self._lock:
            self._inboxes.setdefault(ticket, []).append(message)

    def submit(self, job: Job) -> Handle:
        ticket = self._pool.submit(job)
        with self._lock:
            # messages of a quick job may have come first
            self._inboxes = {t: box for t, box in self._inboxes.items() if not t.done() or t is ticket}
            return ProcessHandle(ticket, self._inboxes.setdefault(ticket, []))

    def wait(self, handles: Sequence[Handle], timeout: float | None = None) -> list[Handle]:
        by_ticket = {h.ticket: h for h in handles if isinstance(h, ProcessHandle)}
        return [by_ticket[t] for t in self._pool.wait(list(by_ticket), timeout)]

    def warm(self, wait: bool = False) -> None:
        if self._first is None:
            self._first = self._pool.submit(Job(_nothing))
        if wait:
            self._first.wait()

    def close(self) -> None:
        self._pool.close()


def _nothing(payload: object, link: Link) -> None:
    """The job that only makes the pool start."""
