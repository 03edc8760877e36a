"""Who works on a store right now: how far the run is, how long the rest may take, and what continues it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from verifolio.errors import VerifolioError
from verifolio.storage.runs import StoredRun, read_run

from .look import has_table, looking

LEAST = 2  # finished inputs before a forecast says anything


def live_facts(store: Path) -> dict[str, Any]:
    """What the live panel shows; empty facts where the store has no run."""
    nothing = {"alive": False, "work": [], "processes": [], "total": 0, "done": 0, "now": time.time()}
    try:
        with looking(store) as connection:
            if not has_table(connection, "runs"):
                return nothing
            found = connection.execute("SELECT * FROM runs ORDER BY started DESC LIMIT 1").fetchone()
    except VerifolioError:
        return nothing
    return nothing if found is None else nothing | _facts(read_run(dict(found)))


def _facts(run: StoredRun) -> dict[str, Any]:
    now, alive = time.time(), run.alive()
    return {
        "alive": alive,
        "started": run.started,
        "ended": run.ended if run.ended is not None else None if alive else run.seen,
        "done": run.done,
        "total": run.total,
        "left": forecast(run, now) if alive else None,
        "work": run.working.get("work", []) if alive else [],
        "processes": run.working.get("processes", []) if alive else [],
        "host": run.host,
        "folder": run.folder,
        "line": run.line,
        "now": now,
    }


def forecast(run: StoredRun, now: float) -> float | None:
    """Seconds that the rest takes at the pace so far; nothing while too little is known.

    What an earlier session of the run had finished is known at once and took no time of this one.
    """
    fresh = run.done - run.before
    if fresh < LEAST or run.total <= run.done:
        return None
    return (now - run.started) / fresh * (run.total - run.done)
