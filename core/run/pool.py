"""The pool: takes jobs, spreads them over supervised workers, and tells when they are done."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from verifolio.run.job import End, Job, Result
from verifolio.run.slot import Slot
from verifolio.run.template import Template, take

# A slot looks this far down the queue for a job it is warm for, and may overtake the first job this often.
WINDOW = 32
OVERTAKING = 16  # so that a job for a cold worker is not put off for ever

_log = logging.getLogger(__name__)


class PoolError(RuntimeError):
    """A pool that cannot take jobs."""


class Ticket:
    """A submitted job and, in time, its result."""

    def __init__(self, job: Job, number: int, pool: Pool) -> None:
        self.job = job
        self.result: Result | None = None
        self._number = number
        self._pool = pool
        self._slot: Slot | None = None
        self._light = False
        self._unwanted = False
        self._overtaken = 0

    def cancel(self) -> None:
        """Ask for the job's end: at once if it still waits, else within its grace; a result stays."""
        self._pool._cancel(self)

    def done(self) -> bool:
        """Whether the result is there."""
        return self.result is not None

    def wait(self, timeout: float | None = None) -> Result | None:
        """Wait for the result; None if it is not there in time."""
        self._pool.wait([self], timeout)
        return self.result


class Pool:
    """Up to `workers` jobs at a time, each in a process of its own, under a supervisor of its own.

    Nothing starts before the first job. Then a template process imports `preload` (what is installed of it)
    and for each worker forks a supervisor, which is the child subreaper of all that its worker starts, and
    which forks the worker: driver - template - supervisor - worker - whatever the job starts. The driver
    itself is left alone: it adopts no orphans and gets no signal handlers. Modules that jobs need and that
    are slow to import belong into `preload`, as long as importing them starts no computation. Workers for light jobs
    are forked as soon as `light` is imported; they are there until the first full worker is.

    A worker is used again unless its job died, was killed, or left a child, a thread or a closed output.
    `on_message` is called from threads of the pool, one job's messages in order; it should be quick. A pool
    is a context manager; leaving it cancels what is unfinished.
    """

    def __init__(
        self,
        workers: int = 1,
        preload: Sequence[str] = ("torch", "onnxruntime"),
        on_message: Callable[[Ticket, object], None] | None = None,
        light: Sequence[str] = (),
    ) -> None:
        if workers < 1:
            message = f"workers: expected at least 1, got {workers}"
            raise ValueError(message)
        self._workers = workers
        self._preload, self._light = tuple(preload), tuple(light)
        self._on_message = on_message
        self._numbers = itertools.count(1)
        self._queue: deque[Ticket] = deque()
        self._slots: list[Slot] = []
        self._threads: list[threading.Thread] = []
        self._template: Template | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._process = os.getpid()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, job: Job) -> Ticket:
        """Queue a job."""
        with self._changed:
            if self._closed or os.getpid() != self._process:
                message = "expected an open pool of this process, got a closed or forked one; make a new Pool"
                raise PoolError(message)
            ticket = Ticket(job, next(self._numbers), self)
            ticket._light = job.light and bool(self._light) and not self._full()
            self._queue.append(ticket)
            slots = [slot for slot in self._slots if slot.light == ticket._light]
            waiting = sum(other._light == ticket._light for other in self._queue)
            if waiting > sum(slot.idle for slot in slots) and len(slots) < self._workers:
                self._add_slot(ticket._light)
            self._changed.notify_all()
        return ticket

    def wait(self, tickets: Sequence[Ticket], timeout: float | None = None) -> list[Ticket]:
        """The tickets that are done, as soon as at least one is; none if that takes longer than `timeout`."""

        def finished() -> list[Ticket]:
            return [ticket for ticket in tickets if ticket.done()]

        if not tickets:
            return []
        with self._changed:
            return self._changed.wait_for(finished, timeout)

    def close(self) -> None:
        """Cancel everything, kill everything, and return when nothing of it is left."""
        with self._changed:
            self._closed = True
            while self._queue:
                self._queue.popleft().result = Result(End.CANCELLED, detail="the pool was closed")
            self._changed.notify_all()
        if os.getpid() != self._process:
            return
        for slot in self._slots:
            slot.quit()
        if self._template is not None and not any(slot.connected for slot in self._slots):
            self._template.kill()  # still importing
        for thread in self._threads:
            thread.join()
        if self._template is not None:
            self._template.close()
            self._template = None

    def _cancel(self, ticket: Ticket) -> None:
        with self._changed:
            ticket._unwanted = True
            if ticket in self._queue:
                self._queue.remove(ticket)
                ticket.result = Result(End.CANCELLED, detail="cancelled before it started")
                self._changed.notify_all()
        if ticket._slot is not None and not ticket.done():
            ticket._slot.cancel(ticket._number)

    def _full(self) -> bool:
        """Whether a full worker is there or about to be."""
        return any(slot.connected and not slot.light for slot in self._slots)

    def _add_slot(self, light: bool) -> None:
        slot = Slot(light)
        thread = threading.Thread(target=self._run, args=(slot,), name="verifolio-slot", daemon=True)
        self._slots.append(slot)
        self._threads.append(thread)
        thread.start()

    def _run(self, slot: Slot) -> None:
        """The life of a slot: connect, take a ticket, have it performed, again."""
        while True:
            complaint = self._connect(slot)
            ticket = self._take(slot)
            if ticket is None:
                break
            if complaint:
                # Costs a ticket, so that a template that never comes up cannot be tried for ever.
                result = Result(End.CRASH, detail=f"no worker could be started: {complaint}")
            else:
                result = self._perform(slot, ticket)
            with self._changed:
                ticket.result = result
                self._changed.notify_all()
        slot.leave()

    def _connect(self, slot: Slot) -> str:
        """Give the slot a supervisor if it has none; on failure, why."""
        if slot.connected:
            return ""
        with self._changed:
            if self._closed:
                return "the pool was closed"
            if self._template is None or not self._template.alive():
                self._template = take(self._preload, self._light)
            template = self._template
            control = template.supervise(slot.light)
        connected = slot.connect(control)
        with self._changed:
            self._changed.notify_all()  # light slots may leave
        return "" if connected else self._complaint(template)

    def _complaint(self, template: Template) -> str:
        return "the pool was closed" if self._closed else template.complaint()

    def _perform(self, slot: Slot, ticket: Ticket) -> Result:
        def tell(message: object) -> None:
            if self._on_message is None:
                return
            try:
                self._on_message(ticket, message)
            except Exception:
                _log.exception("on_message failed for %r", ticket.job.function)

        return slot.perform(ticket.job, ticket._number, lambda: not ticket._unwanted, tell)

    def _take(self, slot: Slot) -> Ticket | None:
        """Wait for a ticket that suits the slot; None when the pool closes, or the slot is not needed any more."""
        with self._changed:
            slot.idle = True
            self._changed.wait_for(
                lambda: self._closed or self._spare(slot) or self._choose(slot) is not None
            )
            slot.idle = False
            ticket = None if self._closed else self._choose(slot)
            if ticket is None:
                self._slots = [other for other in self._slots if other is not slot or self._closed]
                self._changed.notify_all()  # as below
                return None
            first = next(other for other in self._queue if other._light == slot.light)
            if ticket is not first:
                first._overtaken += 1
            self._queue.remove(ticket)
            ticket._slot = slot
            self._changed.notify_all()  # a ticket that was left to this slot may now be anyone's
            return ticket

    def _spare(self, slot: Slot) -> bool:
        """Whether it is for light jobs only, and there are full workers now."""
        return slot.light and self._full()

    def _choose(self, slot: Slot) -> Ticket | None:
        """The first job the slot is warm for, else the first that no other idle slot is warm for."""
        fitting = (ticket for ticket in self._queue if ticket._light == slot.light)
        window = list(itertools.islice(fitting, WINDOW))
        if window and window[0]._overtaken < OVERTAKING:
            for ticket in window:
                if ticket.job.affinity in slot.affinities:
                    return ticket
        return next((ticket for ticket in window if not self._suits_another(ticket, slot)), None)

    def _suits_another(self, ticket: Ticket, slot: Slot) -> bool:
        others = (o for o in self._slots if o is not slot and o.idle and o.light == slot.light)
        return any(ticket.job.affinity in other.affinities for other in others)
