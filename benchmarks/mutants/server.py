"""One process collects all tests once; every change is tried in a fork of it, by the tests that are asked for."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from .swap import NotInPlaceError

POLL = 0.02  # seconds
IDLE = 10  # times the limit in seconds of the clock: more than any load that was seen stretches a run
UNUSABLE = 77  # of a fork whose change could not be made in place
Change = Callable[[], None]


class Server:
    """A pytest plugin: `work` is called with it in the place of the tests, and runs tests in forks."""

    def __init__(self, work: Callable[[Server], None]) -> None:
        self.work = work
        self.session: pytest.Session | None = None
        self.first_failure = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def add(self, plugin: object) -> None:
        """In a fork: another plugin."""
        if self.session is not None:
            self.session.config.pluginmanager.register(plugin)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.first_failure:
            self.first_failure = report.nodeid

    def try_tests(
        self, tests: Sequence[str], seconds: float, log: Path, change: Change, stop: bool = True
    ) -> tuple[int | None, str]:
        """Run tests in a fork after a change: the exit code (None if time was up) and the first that failed."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._run(tests, log, change, stop)
        code = wait(child, seconds)
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        failed = [line.removeprefix("FAILED ") for line in lines if line.startswith("FAILED ")]
        return code, failed[0] if failed else ""

    def _run(self, tests: Sequence[str], log: Path, change: Change, stop: bool) -> NoReturn:
        """In the fork; `stop` at the first failure."""
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = os.fdopen(output, "w", buffering=1)
        code = UNUSABLE
        try:
            change()
            code = 1
            code = self._each([self.items[t] for t in tests if t in self.items], stop)
        except NotInPlaceError as found:
            print(found)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _each(self, items: list[pytest.Item], stop: bool) -> int:
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.first_failure and stop:
                os.write(1, f"\nFAILED {self.first_failure}\n".encode())  # pytest may hold sys.stdout
                return 1
        return 0


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a process; None if time is up, and it is stopped with everything it started.

    Time is that of the processor, so that a busy machine makes no mutant look harmless; a process that sleeps for
    ever is stopped as well.
    """
    deadline = time.monotonic() + IDLE * seconds
    while time.monotonic() < deadline and processor_seconds(child) < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def processor_seconds(process: int) -> float:
    """What a process and its children that have ended have used."""
    try:
        used = psutil.Process(process).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(used.user + used.system + used.children_user + used.children_system)
