"""The driver's side of one supervisor: hands it jobs one by one and gathers what comes back."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import cast

from verifolio.run.job import End, Job, Result, SendError
from verifolio.run.wire import (
    Answered,
    Cancel,
    Final,
    Lost,
    Message,
    Quit,
    Ready,
    Report,
    Start,
    pack,
    unpack,
)

# A supervisor that is told to leave has this long.
PATIENCE = 10.0
ORPHANED = "the supervisor of the worker died"


class Slot:
    """Room for one running job: a supervisor, its worker, and the channel to it."""

    def __init__(self, light: bool = False) -> None:
        self.affinities: set[str] = set()
        self.light = light
        self.idle = False
        self._leaving = False
        self._awaited: Connection | None = None  # a supervisor that has not said hello yet
        self._control: Connection | None = None
        self._channel: Connection | None = None
        self._lock = threading.Lock()  # orders come from any thread
        self._current: int | None = None

    @property
    def connected(self) -> bool:
        """Whether a supervisor has said hello and not gone since."""
        return self._control is not None

    def connect(self, control: Connection) -> bool:
        """Wait for a new supervisor's hello; False if it will never come, or nobody wants it any more."""
        with self._lock:
            self._awaited = None if self._leaving else control
        try:
            if self._leaving:
                raise EOFError
            control.recv()
        except (EOFError, OSError):
            with self._lock:
                self._awaited = None
                control.close()
            return False
        with self._lock:
            self._awaited, self._control = None, control
        return True

    def disconnect(self) -> None:
        """Drop supervisor and channel; the other ends notice and leave."""
        with self._lock:
            for connection in (self._control, self._channel):
                if connection is not None:
                    connection.close()
            self._control = self._channel = None
            self.affinities.clear()

    def cancel(self, number: int) -> None:
        """Have the job stopped if this slot runs it."""
        with self._lock:
            if self._current == number:
                self._order(Cancel(number))

    def quit(self) -> None:
        """Have everything killed, and wait for no supervisor any more."""
        with self._lock:
            self._leaving = True
            self._order(Quit())
            if self._awaited is not None:
                with (
                    contextlib.suppress(OSError),
                    socket.socket(fileno=os.dup(self._awaited.fileno())) as other,
                ):
                    other.shutdown(socket.SHUT_RDWR)  # ends the wait for its hello

    def leave(self) -> None:
        """Have everything killed and wait until the supervisor has gone, too."""
        self.quit()
        with contextlib.suppress(EOFError, OSError):
            while self._control is not None and self._control.poll(PATIENCE):
                self._control.recv()
        self.disconnect()

    def perform(
        self, job: Job, number: int, wanted: Callable[[], bool], tell: Callable[[object], None]
    ) -> Result:
        """Run a job to its end, whatever that is, unless it is not `wanted` any more; `tell` its messages."""
        try:
            frame = pack((job.limits.cores, job.function, job.payload), "job")
            if not self._begin(job, number, wanted):
                return Result(End.CANCELLED, detail="cancelled before it started")
            control, channel = self._connections()
            with contextlib.suppress(OSError):  # a worker that has just died is reported by its supervisor
                channel.send_bytes(frame)
            del frame
            return self._gather(number, control, channel, tell)
        except SendError as error:
            return Result(End.ERROR, detail=str(error))
        except (EOFError, OSError):
            self.disconnect()
            return Result(End.CRASH, detail=ORPHANED)
        finally:
            with self._lock:
                self._current = None

    def _begin(self, job: Job, number: int, wanted: Callable[[], bool]) -> bool:
        """Have a worker wait for the job; False if the job was cancelled before."""
        if self._control is None:
            raise EOFError
        with self._lock:
            if not wanted():
                return False
            self._control.send(Start(number, job.limits))
            self._current = number
        if cast(Ready, self._control.recv()).fresh:
            if self._channel is not None:
                self._channel.close()
            self._channel = Connection(reduction.recv_handle(self._control))
            self.affinities.clear()
        if job.affinity:
            self.affinities.add(job.affinity)
        return True

    def _connections(self) -> tuple[Connection, Connection]:
        if self._control is None or self._channel is None:
            raise EOFError
        return self._control, self._channel

    def _gather(
        self, number: int, control: Connection, channel: Connection, tell: Callable[[object], None]
    ) -> Result:
        """Listen to worker and supervisor until the latter reports."""
        inbox = _Inbox(channel, tell)
        while True:
            sources = [control] if inbox.closed or inbox.final else [channel, control]
            if channel in (ready := wait(sources)):
                inbox.take()
                if inbox.final is not None:
                    self._tell(Answered(number, inbox.final.tidy))
                elif inbox.closed:
                    self._tell(Lost(number))
            elif control in ready:
                report = self._receive_report(number, control)
                break
        while not inbox.closed and inbox.final is None and channel.poll():
            inbox.take()
        if not report.alive:
            self.affinities.clear()
        if report.detail == ORPHANED:
            self.disconnect()
        return inbox.result(report)

    def _receive_report(self, number: int, control: Connection) -> Report:
        try:
            return cast(Report, control.recv())
        except (EOFError, OSError):
            return Report(number, End.CRASH, ORPHANED, 0.0, 0, "", alive=False)

    def _tell(self, order: object) -> None:
        with self._lock:
            self._order(order)

    def _order(self, order: object) -> None:
        with contextlib.suppress(OSError):  # a supervisor that is gone is noticed by who listens to it
            if self._control is not None:
                self._control.send(order)


class _Inbox:
    """What a worker has sent during one job."""

    def __init__(self, channel: Connection, tell: Callable[[object], None]) -> None:
        self.channel = channel
        self.tell = tell
        self.messages: list[object] = []
        self.final: Final | None = None
        self.body = b""
        self.closed = False
        self.spoiled = ""

    def take(self) -> None:
        """Receive one frame; a channel that ends or speaks nonsense counts as closed."""
        try:
            head, body = unpack(self.channel.recv_bytes(), "head"), self.channel.recv_bytes()
        except (EOFError, OSError, MemoryError, OverflowError, SendError):
            self.closed = True
            return
        if isinstance(head, Final):
            self.final, self.body = head, body
        elif isinstance(head, Message):
            self._take_message(body)
        else:
            self.closed = True

    def _take_message(self, body: bytes) -> None:
        try:
            message = unpack(body, "message")
        except SendError as error:
            self.spoiled = self.spoiled or str(error)
            return
        self.messages.append(message)
        self.tell(message)

    def result(self, report: Report) -> Result:
        """Put together what the worker said of itself and what the supervisor saw."""
        end, detail, seconds, value = report.end, report.detail, report.seconds, None
        if self.final is not None:
            end, seconds = self.final.end, self.final.seconds
            detail = self.final.detail or (detail if end is not End.DONE else "")
            try:
                value = unpack(self.body, "return value")
            except SendError as error:
                self.spoiled = self.spoiled or str(error)
        if end is End.DONE and self.spoiled:
            end, detail, value = End.ERROR, self.spoiled, None
        return Result(end, value, detail, seconds, report.peak_memory, tuple(self.messages), report.log)
