"""The clock of a command: a limit counts from the start of the process, and holds whatever the process does."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from verifolio.cli.keeper import announce, kept

# A limit may be overrun by half a second. So long after it the process is ended; the rest is for ending it, which
# takes the system a moment where gigabytes are to be freed.
OVERRUN = 0.2
# A query's own limit is this much shorter, so that verifiers that need all of their grace still answer in time;
RESERVE = 0.3
LEAST_SHARE = 0.05  # but no more than this part of it

_begun = time.monotonic()


def begin(at: float | None = None) -> None:
    """A command begins now, or began at this time of `time.monotonic`."""
    global _begun
    _begun = time.monotonic() if at is None else at


def at(seconds: float) -> float:
    """The time of `time.monotonic` so many seconds after the command began."""
    return _begun + seconds


def elapsed() -> float:
    """Seconds since the command began."""
    return time.monotonic() - _begun


def process_start() -> float:
    """When this process was started, on the clock of `time.monotonic`; now, where the system does not tell."""
    now = time.monotonic()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - max(0.0, age)


def left(limit: float) -> float:
    """How long a query may take so that its answer is there within the limit."""
    return limit - min(RESERVE, LEAST_SHARE * limit) - elapsed()


@contextmanager
def guard(limit: float, code: int, words: str) -> Iterator[Callable[[str], None]]:
    """Inside, the process ends soon after the limit with this exit code, whatever it does.

    Verifiers are stopped by their supervisors before. This is for a driver that does not come back: one that reads an
    enormous file, or imports a plugin that never ends. The process's keeper prints `words` and ends it; without a
    keeper a thread does. What is given is called with other words as soon as these are no longer true.
    """
    last = [words]
    if kept():
        announce(at(limit + OVERRUN), code, words)
        try:
            yield lambda words: announce(at(limit + OVERRUN), code, words)
        finally:
            announce(math.inf, code)
        return
    wait = limit + OVERRUN - elapsed()
    if wait > threading.TIMEOUT_MAX:
        yield last.append
        return
    lock = threading.Lock()

    def expire() -> None:
        if lock.acquire(blocking=False):
            end_process(code, last[-1])
            lock.release()  # in tests, whose process goes on

    timer = threading.Timer(max(0.0, wait), expire)
    timer.daemon = True
    timer.start()
    try:
        yield last.append
    finally:
        lock.acquire()  # an `expire` that has begun ends the process
        timer.cancel()


def end_process(code: int, words: str) -> None:
    """Print the words, and end this process and all below it."""
    from verifolio.run.tree import descendants, signal_all

    sys.stdout.write(words)
    sys.stdout.flush()
    signal_all(descendants(os.getpid()), signal.SIGKILL)
    os._exit(code)
