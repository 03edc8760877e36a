"""How much memory a piece of work may use: what the user says, or else a share of the machine's."""

from __future__ import annotations

import os
from pathlib import Path

# Of the machine's memory, where the user names no limit: two verifiers side by side still fit. A choice.
SHARE = 0.5
_GROUP = Path("/sys/fs/cgroup/memory.max")  # of a container; absent elsewhere
_allowed: int | None = None


def machine_memory() -> int:
    """The bytes of memory of this machine, or of the container that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        text = _GROUP.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return total
    return min(total, int(text)) if text.isdigit() and int(text) > 0 else total


def default_memory() -> int:
    """The limit in bytes where the user names none."""
    return int(SHARE * machine_memory())


def allow(memory: int | None) -> None:
    """What the work of this process may use from now on, in bytes; None: the default."""
    global _allowed
    _allowed = memory


def allowed_memory() -> int:
    """What the work of this process may use, in bytes."""
    return default_memory() if _allowed is None else _allowed
