"""Who asked: the commands that used a store, how far they are, and what works for them right now."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifolio.plugin.hookspecs import hookimpl
from verifolio.storage.database import Tables, marks
from verifolio.storage.invocation import Invocation
from verifolio.storage.versions import versions

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, command TEXT NOT NULL, line TEXT NOT NULL, options TEXT NOT NULL, folder TEXT NOT NULL,
    host TEXT NOT NULL, pid INTEGER NOT NULL, versions TEXT NOT NULL, started REAL NOT NULL, seen REAL NOT NULL,
    ended REAL, before INTEGER NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL, working TEXT NOT NULL
);
"""
BEAT = 1.0  # seconds between two looks at who works
SILENT = 10.0  # a run that was not seen for so long has ended without a word


@dataclass(frozen=True)
class Work:
    """A verifier at work."""

    verifier: str
    about: str
    since: float


@dataclass(frozen=True)
class StoredRun:
    """A command that used the store."""

    id: str
    command: str
    line: str
    options: Mapping[str, Any]
    folder: str
    host: str
    pid: int
    versions: Mapping[str, str]
    started: float
    seen: float
    ended: float | None
    before: int  # of `done`, what was known when it began
    done: int
    total: int
    working: Mapping[str, Any]

    def alive(self, now: float | None = None) -> bool:
        """Whether it seems to go on."""
        return self.ended is None and (time.time() if now is None else now) - self.seen < SILENT


class RunLedger(Tables):
    """The runs of one file."""

    schema = SCHEMA

    def begin(self, invocation: Invocation) -> None:
        """Note a command; one that is there already (it opened the store twice) goes on."""
        options = json.dumps(dict(invocation.options), default=str)
        now = time.time()
        values = (
            *(invocation.id, invocation.command, invocation.line, options, str(Path.cwd())),
            *(platform.node(), os.getpid(), json.dumps(versions()), now, now, None, 0, 0, 0, "{}"),
        )
        self._write(f"INSERT OR IGNORE INTO runs VALUES ({marks(values)})", values)

    def beat(self, run: str, counts: tuple[int, int, int], working: Mapping[str, object]) -> None:
        """How far it is (known before, done, in all), and who works."""
        sql = "UPDATE runs SET seen = ?, before = ?, done = ?, total = ?, working = ? WHERE id = ?"
        self._write(sql, (time.time(), *counts, json.dumps(dict(working)), run))

    def end(self, run: str) -> None:
        sql = "UPDATE runs SET seen = ?1, ended = ?1, working = '{}' WHERE id = ?2"
        self._write(sql, (time.time(), run))

    def runs(self) -> list[StoredRun]:
        """All of them, oldest first."""
        with self._trusting():
            return [read_run(dict(r)) for r in self._read("SELECT * FROM runs ORDER BY started, rowid")]


def read_run(row: dict[str, Any]) -> StoredRun:
    """A row of the table."""
    for name in ("options", "versions", "working"):
        row[name] = json.loads(row[name])
    return StoredRun(**row)


class Recorder:
    """A plugin that listens: writes down who works, once a second, for whoever looks on."""

    def __init__(self, path: str | Path, invocation: Invocation) -> None:
        self._ledger = RunLedger(path)
        self._run = invocation.id
        self._lock = threading.Lock()
        self._work: dict[int, Work] = {}
        self._before, self._done, self._total = 0, 0, 0
        self._stop = threading.Event()
        self._ledger.begin(invocation)
        self._thread = threading.Thread(target=self._beat, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        self._write()
        self._ledger.end(self._run)
        self._ledger.close()

    @hookimpl
    def work_started(self, number: int, verifier: str, about: str) -> None:
        with self._lock:
            self._work[number] = Work(verifier, about, time.time())

    @hookimpl
    def work_ended(self, number: int) -> None:
        with self._lock:
            self._work.pop(number, None)

    @hookimpl
    def progress(self, done: int, total: int) -> None:
        with self._lock:
            if total < self._total:  # a part of the work reports smaller totals
                return
            if total > self._total:  # the first of them: what was done before it was known already
                self._before = max(0, done - 1)
            self._done, self._total = done, total

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            self._write()

    def _write(self) -> None:
        with self._lock:
            work = [w.__dict__ for w in self._work.values()]
            counts = (self._before, self._done, self._total)
        self._ledger.beat(self._run, counts, {"work": work, "processes": processes()})


def processes() -> list[dict[str, object]]:
    """The processes of this run on this machine: number, age in seconds, memory in bytes, share of a core."""
    import psutil

    found: list[dict[str, object]] = []
    for child in psutil.Process().children(recursive=True):
        try:
            with child.oneshot():
                times = child.cpu_times()
                busy = times.user + times.system
                found.append(
                    {
                        "pid": child.pid,
                        "started": child.create_time(),
                        "memory": child.memory_info().rss,
                        "busy": busy,
                    }
                )
        except psutil.Error:  # it has ended meanwhile
            continue
    return found
