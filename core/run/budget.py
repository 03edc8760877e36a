"""Budget: how long, how much memory, how many cores; and the token that says when to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Budget:
    """Limits of one piece of work. Verifiers poll `expired()`; core enforces it from outside too."""

    seconds: float = math.inf
    memory: int | None = None
    cores: int = 1
    started: float = field(default_factory=time.monotonic)
    stop: Callable[[], bool] = _never

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        return self.seconds - self.elapsed

    def expired(self) -> bool:
        """Whether to stop now: cancelled, or out of time."""
        return self.remaining <= 0 or self.stop()

    def share(self, seconds: float) -> Budget:
        """A part of this budget that starts now and never outlives the whole."""
        now = time.monotonic()
        return Budget(min(seconds, self.remaining), self.memory, self.cores, now, self.stop)
