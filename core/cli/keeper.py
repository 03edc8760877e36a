"""The keeper: a process that does nothing but wait, and ends a command in time whatever the command does.

A command with a limit runs in a child of the process that was started. A thread of the command could not hold its
limit: one call of a native library, or one collection of garbage, can keep all threads waiting for seconds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
from typing import NoReturn

from verifolio.run.tree import descendants, die_with_parent, signal_all

FROM_KERNEL = 128  # SI_KERNEL: a key pressed on the terminal, which signals the child as well
STOPPING = 0.002  # seconds that a process on another core takes at most to be stopped

_line: int | None = None


def keep() -> None:
    """Return in a child that goes on as the command; this process waits for it and ends as it ends.

    Where the system cannot do this, nothing happens. The keeper imports nothing of its own.
    """
    global _line
    if sys.platform != "linux":
        return
    watched = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    reading, writing = os.pipe()
    keeper, child = os.getpid(), os.fork()
    if child:
        os.close(writing)
        os.set_blocking(reading, False)
        _Keeper(child, reading).watch(watched)
    os.close(reading)
    die_with_parent()
    if os.getppid() != keeper:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _line = writing


def kept() -> bool:
    """Whether this process has a keeper."""
    return _line is not None


def announce(until: float, code: int, words: str = "") -> None:
    """From now on: at this time of `time.monotonic` the command is over, with this output and this exit code."""
    if _line is None:
        return
    text = json.dumps({"until": None if math.isinf(until) else until, "code": code, "words": words})
    with contextlib.suppress(OSError):
        os.write(_line, text.encode() + b"\n")
        os.kill(os.getppid(), signal.SIGUSR1)


class _Keeper:
    """What the keeper knows of its child."""

    def __init__(self, child: int, line: int) -> None:
        self.child, self.line = child, line
        self.received = b""
        self.until = math.inf
        self.code, self.words = 0, ""

    def watch(self, watched: set[signal.Signals]) -> NoReturn:
        """Wait for the child, for what it sends, for signals, and for the limit."""
        while True:
            left = self.until - time.monotonic()
            # an endless wait is cut into days, which the system's clock can hold
            info = signal.sigtimedwait(watched, min(max(left, 0.0), 86400.0))
            if info is None:
                if time.monotonic() >= self.until:
                    self._end()
            elif info.si_signo == signal.SIGCHLD:
                self._bury()
            elif info.si_signo == signal.SIGUSR1:
                self._read()
            elif info.si_code != FROM_KERNEL:
                os.kill(self.child, info.si_signo)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.line, 65536):
                self.received += piece
        *lines, self.received = self.received.split(b"\n")
        for line in lines[-1:]:
            order = json.loads(line)
            self.until = math.inf if order["until"] is None else order["until"]
            self.code, self.words = order["code"], order["words"]

    def _end(self) -> None:
        """Out of time, unless the child has just said otherwise: it is stopped before it is asked."""
        os.kill(self.child, signal.SIGSTOP)
        time.sleep(STOPPING)
        self._read()
        if time.monotonic() < self.until:
            os.kill(self.child, signal.SIGCONT)
            return
        with contextlib.suppress(OSError):
            os.write(1, self.words.encode())
        signal_all([*descendants(self.child), self.child], signal.SIGKILL)
        os._exit(self.code)

    def _bury(self) -> None:
        """End as the child has ended, if it has."""
        ended, status = os.waitpid(self.child, os.WNOHANG)
        if not ended:
            return
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            os._exit(code)
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        os._exit(128 - code)
