"""The executor interface: where jobs run. Here, in worker processes, or on other machines."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar

from verifolio.plugin.options import NoOptions
from verifolio.run import Job, Result

MANY_CORES = 8  # more are of little use for one query unless it is asked for


class Handle(ABC):
    """A submitted job."""

    @abstractmethod
    def cancel(self) -> None:
        """Ask for the job to be stopped; it then ends soon, as CANCELLED unless it was quicker."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> Result | None:
        """How the job ended, waiting at most `timeout` seconds (None: as long as it takes)."""

    @abstractmethod
    def messages(self) -> tuple[object, ...]:
        """What the job has sent so far, in order."""


class Executor(ABC):
    """Runs jobs with limits and gives their results; jobs beyond `workers` wait for a free place.

    An executor keeps the promise of `verifolio.run`: a job ends by its limits whatever it does, and its
    messages survive it. Only `inline` does not, because it shares the caller's process.
    """

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions

    def __init__(self, workers: int = 1, options: Any = None) -> None:
        self.workers = workers
        self.options = self.Options() if options is None else options

    @classmethod
    def available(cls) -> str | None:
        """Why this executor cannot be used here, or None; must not import heavy modules."""
        return None

    @abstractmethod
    def submit(self, job: Job) -> Handle:
        """Start a job, or queue it."""

    @abstractmethod
    def wait(self, handles: Sequence[Handle], timeout: float | None = None) -> list[Handle]:
        """The handles that have ended; blocks until there is one, or until `timeout` seconds have passed."""

    def share(self, queries: int, cores: int = 0) -> int:
        """How many cores each of several queries at a time may use: `cores`, or an equal part of what is here.

        It is told before the first job, so that an executor on several machines can divide them accordingly.
        """
        return cores or max(1, min(usable_cores() // queries, MANY_CORES))

    def warm(self, wait: bool = False) -> None:
        """Begin what takes time to start, and perhaps wait for it; the default has nothing to begin."""
        return

    def close(self) -> None:
        """Stop everything; the default has nothing to stop."""
        return

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def usable_cores() -> int:
    """The cores of this machine that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
