"""A clock that other processes do not move, for measurements on a machine that is not idle."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass, field

from verifolio.run.budget import Budget


def children_seconds() -> float:
    """The processor time of all child processes that have ended and been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap_children() -> None:
    """Wait for what a run has left behind: only then do its seconds count."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


@dataclass(frozen=True)
class CpuBudget(Budget):
    """A budget whose clock is this process's processor time."""

    started: float = field(default_factory=time.process_time)

    @property
    def elapsed(self) -> float:
        return time.process_time() - self.started

    def share(self, seconds: float) -> Budget:
        return CpuBudget(min(seconds, self.remaining), self.memory, self.cores, stop=self.stop)
