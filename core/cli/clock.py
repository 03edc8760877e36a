"""The clock of a command: a limit counts from the start of the process, and holds whatever the process does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# After the limit, verifiers have `Settings.grace` to stop; this much more, and the driver itself hangs.
OVERRUN = 0.5

_begun = time.monotonic()


def begin(at: float | None = None) -> None:
    """A command begins now, or began at this time of `time.monotonic`."""
    global _begun
    _begun = time.monotonic() if at is None else at


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


@contextmanager
def guard(limit: float, leave: Callable[[], int]) -> Iterator[None]:
    """Inside, the process ends at the latest `OVERRUN` seconds after the limit, with the code of `leave`.

    Verifiers are stopped by their supervisors long before. This is for a driver that does not come back: one
    that reads an enormous file, or imports a plugin that never ends.
    """
    wait = limit + OVERRUN - elapsed()
    if wait > threading.TIMEOUT_MAX:
        yield
        return
    lock = threading.Lock()

    def expire() -> None:
        if lock.acquire(blocking=False):
            code = leave()
            _kill_children()
            os._exit(code)

    timer = threading.Timer(max(0.0, wait), expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        lock.acquire()  # an `expire` that has begun ends the process
        timer.cancel()


def _kill_children() -> None:
    """What this process started; workers notice its end themselves, a template that still imports does not."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue
