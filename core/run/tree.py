"""Process trees: who descends from a process, how much memory they hold, how to end them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1  # from Linux's prctl.h: the parent's death sends a signal
PR_SET_CHILD_SUBREAPER = 36  # from Linux's prctl.h: processes whose parents are gone become our children
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_STATM = Path("/proc/self/statm").exists()
_LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _prctl(option: int, value: int) -> bool:
    """Call prctl where it exists; elsewhere say no."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def become_subreaper() -> bool:
    """Adopt every orphan below this process, however it was daemonised."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """Have the kernel kill this process when its parent is gone."""
    return _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The direct children of a process; empty if it is gone."""
    found: list[int] = []
    if not _LISTS_CHILDREN:
        return _children_portably(pid)
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has just ended
                found += map(int, (thread / "children").read_bytes().split())
    return found


def _children_portably(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def descendants(pid: int) -> list[int]:
    """Everything below a process, without itself."""
    found: list[int] = []
    fresh = children(pid)
    while fresh:
        found += fresh
        fresh = [child for parent in fresh for child in children(parent) if child not in found]
    return found


def resident(pids: Iterable[int]) -> int:
    """Summed resident sets in bytes; a process that is gone counts nothing."""
    return sum(map(_resident_of, pids))


def _resident_of(pid: int) -> int:
    if not _HAS_STATM:
        return _resident_portably(pid)
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _resident_portably(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, psutil.Error):
        return 0


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, passing over those that are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> dict[int, int]:
    """Collect every dead child of this process: pid to wait status."""
    dead: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            dead[found[0]] = found[1]
    return dead


def kill_below(patience: float = 5.0) -> dict[int, int]:
    """Kill and reap everything below this process, until nothing is left or patience ends."""
    dead: dict[int, int] = {}
    limit = time.monotonic() + patience
    pause = 0.0005
    while time.monotonic() < limit:
        dead |= reap()
        below = descendants(os.getpid())
        if not below:
            break
        signal_all(below, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return dead
