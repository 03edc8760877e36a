"""A clock that other processes do not move, for measurements on a machine that is not idle."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from verifolio.run.budget import Budget


@dataclass(frozen=True)
class CpuBudget(Budget):
    """A budget whose clock is this process's processor time."""

    started: float = field(default_factory=time.process_time)

    @property
    def elapsed(self) -> float:
        return time.process_time() - self.started

    def share(self, seconds: float) -> Budget:
        return CpuBudget(min(seconds, self.remaining), self.memory, self.cores, stop=self.stop)
