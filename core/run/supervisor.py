"""The supervisor: parent and subreaper of one worker, which it watches, limits, kills and replaces."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import selectors
import shutil
import signal
import socket
import time
import traceback
from dataclasses import dataclass
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from verifolio.run import tree, worker
from verifolio.run.job import End, Limits
from verifolio.run.wire import (
    CANCEL,
    DEADLINE,
    FINISHED,
    NUMBER,
    PAGE_BYTES,
    SECONDS,
    STARTED,
    Answered,
    Cancel,
    Lost,
    Quit,
    Ready,
    Report,
    Start,
)

# seconds: memory is read so often that a job cannot grow by gigabytes in between, at 0.1 % of a core
POLL = 0.05
LOG_BYTES = 64 * 1024  # the tail of what a job prints: what a person reads
# A complete answer that has not reached the driver after this time never will.
DELIVERY = 60.0
# After its channel closed a worker gets this long to die by itself, which tells why.
LAST_WORDS = 0.2
NEAR = 0.9  # of the memory limit: who is killed from outside beyond it was out of memory


@dataclass
class Active:
    """The job that is running."""

    number: int
    limits: Limits
    since: float
    look_at: float
    peak: int = 0
    end: End | None = None
    detail: str = ""
    term_at: float = math.inf
    kill_at: float = math.inf

    def stop(self, end: End, detail: str, now: float, grace: float) -> None:
        """Decide how the job ends; the first decision stands."""
        if self.end is None:
            self.end, self.detail = end, detail
            self.term_at, self.kill_at = now + grace / 2, now + grace


class Supervisor:
    """Serves one driver over `control`; runs at most one worker and one job at a time."""

    def __init__(self, control: Connection, driver: int | None, root: Path) -> None:
        self.control = control
        self.root = root
        self.page: memoryview[float] = memoryview(mmap.mmap(-1, PAGE_BYTES)).cast("d")
        self.worker: int | None = None
        self.active: Active | None = None
        self.output: int | None = None
        self.log = bytearray()
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self._obey)
        if driver is not None:
            self.selector.register(driver, selectors.EVENT_READ, self._quit)
        self.driver = driver
        self.alarm, self.bell = socket.socketpair()
        self._listen_for_deaths()

    def _listen_for_deaths(self) -> None:
        for end in (self.alarm, self.bell):
            end.setblocking(False)
        signal.set_wakeup_fd(self.bell.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.selector.register(self.alarm, selectors.EVENT_READ, self._hush)

    def serve(self) -> None:
        """Obey and watch until the driver is gone or says so."""
        try:
            while True:
                for key, _ in self.selector.select(self._patience()):
                    key.data()
                self._bury()
                if self.active is not None:
                    self._watch(self.active)
        except (_Leave, EOFError, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._clear()
            shutil.rmtree(self.root, ignore_errors=True)

    def _patience(self) -> float | None:
        """How long to sleep: until something must be looked at."""
        if self.active is None:
            return None
        due = min(self.active.look_at, self.active.term_at, self.active.kill_at)
        if self.active.end is None and self.page[STARTED]:
            due = min(due, self.page[DEADLINE])
        return max(0.0, due - time.monotonic())

    # Orders of the driver.

    def _obey(self) -> None:
        order = self.control.recv()
        active = self.active
        if isinstance(order, Quit):
            self._quit()
        elif isinstance(order, Start):
            self._start(order)
        elif active is None or order.number != active.number:
            return  # about a job that has ended meanwhile
        elif isinstance(order, Answered):
            self._settle(active, order.tidy)
        elif isinstance(order, Cancel):
            self.page[CANCEL] = 1.0
            if not self.page[FINISHED]:
                active.stop(End.CANCELLED, "cancelled", time.monotonic(), active.limits.grace)
        elif isinstance(order, Lost):
            detail = "the worker closed its channel or wrote nonsense to it"
            active.stop(End.CRASH, detail, time.monotonic(), LAST_WORDS)
            active.term_at = math.inf

    def _quit(self) -> None:
        if self.active is not None:
            self.active.stop(End.CANCELLED, "the pool was closed", time.monotonic(), 0.0)
            self._conclude(self.active)
        raise _Leave

    def _start(self, order: Start) -> None:
        self._bury()
        if order.limits.memory is not None and self._used() > order.limits.memory / 2:
            self._clear()  # what earlier jobs left in the worker would be held against this one
        for field in (STARTED, FINISHED, CANCEL):
            self.page[field] = 0.0
        self.page[NUMBER] = order.number
        self.page[SECONDS] = math.inf if order.limits.seconds is None else order.limits.seconds
        self.log.clear()
        channel = self._fork() if self.worker is None else None
        now = time.monotonic()
        self.active = Active(order.number, order.limits, now, now + POLL)
        self.control.send(Ready(fresh=channel is not None))
        if channel is not None:
            reduction.send_handle(self.control, channel.fileno(), os.getppid())
            channel.close()

    def _fork(self) -> Connection:
        """Start a worker; gives the driver's end of its channel."""
        ours, theirs = Pipe()
        reading, writing = os.pipe()
        supervisor = os.getpid()
        self.worker = os.fork()
        if self.worker == 0:
            self._become_worker(supervisor, ours, theirs, reading, writing)
        theirs.close()
        os.close(writing)
        os.set_blocking(reading, False)
        self.output = reading
        self.selector.register(reading, selectors.EVENT_READ, self._drain)
        return ours

    def _become_worker(
        self, supervisor: int, ours: Connection, theirs: Connection, reading: int, writing: int
    ) -> NoReturn:
        """In the fork: drop everything that belongs to the supervisor."""
        tree.die_with_parent()
        if os.getppid() != supervisor:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for end in (self.control, self.alarm, self.bell, ours):
            end.close()
        os.close(reading)
        if self.driver is not None:
            os.close(self.driver)
        worker.start(theirs, self.page, self.root, writing)

    # Watching.

    def _watch(self, active: Active) -> None:
        """Enforce deadline and memory; carry out what was decided."""
        now = time.monotonic()
        if now >= active.look_at:
            active.look_at = now + POLL
            self._measure(active, now)
        if self.page[FINISHED]:
            if now > self.page[FINISHED] + DELIVERY:
                active.stop(End.CRASH, "the answer never arrived", now, 0.0)
        elif self._is_late(now):
            active.stop(End.TIMEOUT, self._lateness(active), now, active.limits.grace)
        if now >= active.kill_at:
            self._conclude(active)
        elif now >= active.term_at:
            active.term_at = math.inf
            tree.signal_all(tree.descendants(os.getpid()), signal.SIGTERM)

    def _measure(self, active: Active, now: float) -> None:
        """Look at the memory of everything below."""
        used = self._used()
        active.peak = max(active.peak, used)
        if active.limits.memory is not None and used > active.limits.memory:
            detail = f"resident set of {used} bytes is above the limit of {active.limits.memory}"
            active.stop(End.MEMOUT, detail, now, 0.0)
            active.kill_at = now

    def _used(self) -> int:
        return tree.resident(tree.descendants(os.getpid()))

    def _is_late(self, now: float) -> bool:
        return bool(self.page[STARTED]) and now >= self.page[DEADLINE]

    def _lateness(self, active: Active) -> str:
        return f"no answer within {active.limits.seconds} seconds"

    def _bury(self) -> None:
        """Collect the dead; if the worker is among them, its job is over."""
        status = tree.reap().get(self.worker or 0)
        if status is None:
            return
        if self.active is None:
            self._clear()
            return
        code = os.waitstatus_to_exitcode(status)
        self.active.end, self.active.detail = self._autopsy(self.active, code)
        self._conclude(self.active)

    def _autopsy(self, active: Active, code: int) -> tuple[End, str]:
        """Why a worker that was not killed by us died."""
        if active.end not in (None, End.CRASH):
            return active.end, active.detail
        if self._is_late(time.monotonic()) and not self.page[FINISHED]:
            return End.TIMEOUT, self._lateness(active)
        limit = active.limits.memory
        if code == -signal.SIGKILL and limit is not None and active.peak >= NEAR * limit:
            return End.MEMOUT, f"killed from outside at {active.peak} bytes, near the limit of {limit}"
        if code >= 0:
            return End.CRASH, f"the worker exited with code {code} before it answered"
        return End.CRASH, f"the worker was killed by signal {-code} ({_signal_name(-code)})"

    # Endings.

    def _settle(self, active: Active, tidy: bool) -> None:
        """The answer has arrived: keep the worker if it is as good as new, and nothing else of the job."""
        below = tree.descendants(os.getpid())
        active.peak = max(active.peak, tree.resident(below))
        self._drain()
        if not tidy or below != [self.worker]:
            self._clear()
        self._report(active, active.end or End.DONE, active.detail)

    def _conclude(self, active: Active) -> None:
        """Kill what is left of the job and say how it ended."""
        self._clear()
        self._report(active, active.end or End.CRASH, active.detail)

    def _report(self, active: Active, end: End, detail: str) -> None:
        self.active = None
        seconds = time.monotonic() - (self.page[STARTED] or active.since)
        shutil.rmtree(self.root / str(active.number), ignore_errors=True)
        log = self.log.decode(errors="replace")
        alive = self.worker is not None
        self.control.send(Report(active.number, end, detail, seconds, active.peak, log, alive))

    def _clear(self) -> None:
        """Kill the worker and everything that came from it."""
        tree.kill_below()
        self.worker = None
        if self.output is not None:
            self._drain()
        if self.output is not None:
            self._close_output(self.output)

    def _drain(self) -> None:
        """Take what the worker has written, keeping the tail.

        At most a pipe full: a job that writes without end must not hold up its own supervisor.
        """
        for _ in range(16):
            if self.output is None:
                return
            try:
                piece = os.read(self.output, LOG_BYTES)
            except BlockingIOError:
                return
            if not piece:
                self._close_output(self.output)
                return
            self.log += piece
            del self.log[:-LOG_BYTES]

    def _close_output(self, output: int) -> None:
        self.selector.unregister(output)
        os.close(output)
        self.output = None

    def _hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.alarm.recv(4096)


class _Leave(Exception):
    """The supervisor has nothing left to do."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def run(control: Connection, driver: int | None, root: Path) -> NoReturn:
    """Be a supervisor, with a folder of its own, until the driver is gone; it leaves as workers do."""
    code = 1
    try:
        tree.become_subreaper()
        root.mkdir()
        supervisor = Supervisor(control, driver, root)
        control.send("hello")
        supervisor.serve()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
