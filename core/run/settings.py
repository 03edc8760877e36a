"""What applies to every member of a portfolio while a query is decided."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What applies to every member: the query's time, memory in bytes, cores, seed, device.

    `cores` are for each member, however many run side by side, unless `total` says how many the whole query
    may use: members that run side by side then share these, and take turns if there are more of them.
    """

    timeout: float = math.inf
    memory: int | None = None
    cores: int = 1
    seed: int = 0
    device: str = "cpu"
    grace: float = 0.3  # a limit is a promise to whoever waits: half a second late at most, driver included
    total: int = 0
