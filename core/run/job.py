"""The nouns of running: a job, its limits, the link it works with, and the result it ends in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class JobError(ValueError):
    """A job that could never run."""


class SendError(TypeError):
    """A value or message that cannot cross the process boundary."""


class End(StrEnum):
    """How a job ended."""

    DONE = "done"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMOUT = "memout"
    CRASH = "crash"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Limits:
    """What a job may use.

    `seconds` counts from the moment the worker holds the whole job. `memory` is in bytes and compared with
    the summed resident sets of the worker and everything it started (with torch imported, a worker starts at
    some 170 MB). `grace` is the time between asking a job to stop (the link's token) and killing it; half-way
    a SIGTERM is sent.
    """

    seconds: float | None = None
    memory: int | None = None
    cores: int = 1
    grace: float = 1.0

    def __post_init__(self) -> None:
        for name, value, good in (
            ("seconds", self.seconds, self.seconds is None or self.seconds >= 0),
            ("memory", self.memory, self.memory is None or self.memory > 0),
            ("cores", self.cores, self.cores >= 1),
            ("grace", self.grace, 0 <= self.grace < math.inf),
        ):
            if not good:
                raise JobError(f"limit {name}: expected a positive number, got {value!r}; None is no limit")


class Link:
    """What a running job knows of the outside: the token to stop, the deadline, a way to report early."""

    def __init__(
        self, deadline: float, is_cancelled: Callable[[], bool], deliver: Callable[[object], None]
    ) -> None:
        """`deadline` is a `time.monotonic()` instant, infinite if there is none."""
        self._deadline = deadline
        self._is_cancelled = is_cancelled
        self._deliver = deliver

    def cancelled(self) -> bool:
        """True once the job was cancelled or is past its deadline; a good job then returns soon."""
        return self._is_cancelled() or time.monotonic() >= self._deadline

    def remaining(self) -> float:
        """Seconds left until the deadline, never negative, infinite if there is none."""
        return max(0.0, self._deadline - time.monotonic())

    def send(self, message: object) -> None:
        """Deliver a message to the driver now; it is kept whatever becomes of the job."""
        self._deliver(message)


@dataclass(frozen=True)
class Job:
    """A module-level function, what to call it with, and what it may use.

    An idle worker that has run the same `affinity` before is preferred: its module-level caches are warm. A `light`
    job needs few modules: while no full worker is ready it runs in one that has imported less.
    """

    function: Callable[[Any, Link], Any]
    payload: object = None
    limits: Limits = Limits()
    affinity: str = ""
    light: bool = False

    def __post_init__(self) -> None:
        module = getattr(self.function, "__module__", None)
        name = getattr(self.function, "__qualname__", "")
        if module == "__main__" or "<" in name:
            message = (
                f"expected a function that a worker can import, got {module}.{name}; "
                "define it at the top level of a module and import it from there"
            )
            raise JobError(message)


@dataclass(frozen=True)
class Result:
    """How a job ended and what it left.

    `value` is also set when a job answered after its deadline or cancellation but before it was killed.
    `detail` is a one-line message, followed by the traceback if there is one. `log` is the tail of everything
    the job and its children wrote to standard output and error.
    """

    end: End
    value: object = None
    detail: str = ""
    seconds: float = 0.0
    peak_memory: int = 0
    messages: tuple[object, ...] = ()
    log: str = ""
