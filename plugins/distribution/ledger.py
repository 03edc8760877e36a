"""What a distribution remembers in the store's file: runs, finished inputs, and every question asked."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Flag, Verdict
from verifolio.storage.database import Tables, marks
from verifolio.storage.revision import SOUNDNESS_REVISION

from .radius_search import Critical, SearchStatus, SearchStep
from .table import Row, distinct

SCHEMA = """
CREATE TABLE IF NOT EXISTS distribution_runs (
    run TEXT PRIMARY KEY, settings TEXT NOT NULL, created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS distribution_inputs (
    run TEXT NOT NULL REFERENCES distribution_runs, item TEXT NOT NULL, question TEXT NOT NULL,
    position INTEGER NOT NULL, network_key TEXT NOT NULL, data_key TEXT NOT NULL,
    network TEXT NOT NULL, split TEXT NOT NULL, image_id INTEGER NOT NULL, label INTEGER NOT NULL,
    predicted INTEGER NOT NULL, lower REAL, upper REAL, distance REAL, status TEXT NOT NULL,
    seconds REAL NOT NULL, queries INTEGER NOT NULL, cancelled INTEGER NOT NULL, flags TEXT NOT NULL,
    reason TEXT NOT NULL, witness BLOB, rounded INTEGER, reused INTEGER NOT NULL, terminated INTEGER,
    revision INTEGER NOT NULL DEFAULT 0, near BLOB, shape TEXT, becomes INTEGER, finished REAL,
    PRIMARY KEY (run, item)
);
CREATE TABLE IF NOT EXISTS distribution_steps (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, question TEXT NOT NULL, kind TEXT NOT NULL,
    radius REAL NOT NULL, verdict TEXT NOT NULL, verifier TEXT NOT NULL, seconds REAL NOT NULL,
    timeout REAL NOT NULL, proved REAL, distance REAL, witness BLOB, flags TEXT NOT NULL,
    elapsed REAL NOT NULL, reason TEXT NOT NULL, created REAL NOT NULL, unstable INTEGER,
    reused INTEGER NOT NULL DEFAULT 0, revision INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS distribution_steps_by_question ON distribution_steps (question, run);
"""
SHOWN = {"near": "BLOB", "shape": "TEXT", "becomes": "INTEGER", "finished": "REAL"}  # for reports alone
FOREVER = 1e300  # SQLite has no infinity
MEASURED = "status IN ('closed', 'open')"


@dataclass(frozen=True)
class Spent:
    """One input's search: seconds that passed, its queries, and the seconds of all of them together.

    Where answers were `reused`, the seconds are not those of this search.
    """

    seconds: float
    queries: int
    timeouts: int
    memouts: int
    cancelled: int
    busy: float
    reused: int


@dataclass(frozen=True)
class Entry:
    """What a row is about: hashes of the input, of the question, of the networks and of the data."""

    item: str
    question: str
    position: int
    network_key: str
    data_key: str


@dataclass(frozen=True, eq=False)
class Sight:
    """What a report shows of an input with a counterexample: its values as the data has them, its shape (as
    1x28x28), and the class that the counterexample is taken for."""

    near: NDArray[np.float32] | None = None
    shape: str = ""
    becomes: int | None = None


class DistributionLedger(Tables):
    """Tables beside the oracle's own in one file (or in memory); safe to use from several threads.

    Radii of an earlier soundness revision are left out; see `old_witnesses`.
    """

    schema = SCHEMA
    claims: ClassVar[Mapping[str, str]] = {
        "distribution_inputs": MEASURED,
        "distribution_steps": "proved > 0",
    }

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.executescript(self.schema)
        columns = {r["name"] for r in connection.execute("PRAGMA table_info(distribution_steps)")}
        for name, kind in (("unstable", "INTEGER"), ("reused", "INTEGER NOT NULL DEFAULT 0")):
            if name not in columns:  # a file of an earlier version
                connection.execute(f"ALTER TABLE distribution_steps ADD COLUMN {name} {kind}")
        columns = {r["name"] for r in connection.execute("PRAGMA table_info(distribution_inputs)")}
        for name, kind in SHOWN.items():
            if name not in columns:
                connection.execute(f"ALTER TABLE distribution_inputs ADD COLUMN {name} {kind}")
        super()._prepare(connection)

    def begin(self, run: str, settings: Mapping[str, object]) -> None:
        """Note a run; the same one again changes nothing."""
        text = json.dumps(dict(settings), sort_keys=True, default=str)
        self._write("INSERT OR IGNORE INTO distribution_runs VALUES (?, ?, ?)", (run, text, time.time()))

    def runs(self) -> list[tuple[str, dict[str, Any]]]:
        """Every run with its settings, oldest first."""
        found = self._read("SELECT * FROM distribution_runs ORDER BY created, rowid", ())
        with self._trusting():
            return [(r["run"], json.loads(r["settings"])) for r in found]

    def add_step(self, run: str, question: str, step: SearchStep) -> None:
        values = (
            *(run, question, step.kind, step.radius, step.verdict.value, step.verifier, step.seconds),
            *(_finite(step.timeout), step.proved, step.distance, _blob(step.witness)),
            *(json.dumps(sorted(f.value for f in step.flags)), step.elapsed, step.reason, time.time()),
            *(step.unstable, int(step.reused), SOUNDNESS_REVISION),
        )
        self._write(f"INSERT INTO distribution_steps VALUES (NULL, {marks(values)})", values)

    def steps(self, question: str, run: str | None = None, others: bool = False) -> list[SearchStep]:
        """The steps of a question, of one run, of all, or of all `others`, in order."""
        sql = "SELECT * FROM distribution_steps WHERE question = ? AND revision >= ?"
        given: list[object] = [question, SOUNDNESS_REVISION]
        if run is not None:
            sql, given = sql + (" AND run != ?" if others else " AND run = ?"), [*given, run]
        with self._trusting():
            return [_step(r) for r in self._read(sql + " ORDER BY id", tuple(given))]

    def old_witnesses(self, question: str) -> list[NDArray[np.float32]]:
        """Witnesses of earlier soundness revisions, the closest first; whoever uses them replays them first."""
        sql = (
            "SELECT witness FROM distribution_steps WHERE question = ? AND revision < ? "
            "AND witness IS NOT NULL AND distance IS NOT NULL ORDER BY distance"
        )
        found = self._read(sql, (question, SOUNDNESS_REVISION))
        return [np.frombuffer(r["witness"], np.float32) for r in found]

    def finish(
        self, run: str, entry: Entry, row: Row, found: Critical | None = None, sight: Sight | None = None
    ) -> None:
        """Keep an input's result; it will not be asked again in this run. `sight` is what a report shows of it."""
        seen = Sight() if sight is None else sight
        values: dict[str, object] = vars(entry) | {
            "run": run,
            "network": row.network,
            "split": row.split,
            "image_id": row.image_id,
            "label": row.label,
            "predicted": row.predicted,
            "lower": row.lower,
            "upper": row.upper,
            "distance": None if found is None else found.distance,
            "status": row.status.value,
            "seconds": row.seconds,
            "queries": row.queries,
            "cancelled": row.cancelled,
            "flags": json.dumps(list(row.flags)),
            "reason": row.reason,
            "witness": None if found is None else _blob(found.witness),
            "rounded": _truth(row.rounded),
            "reused": row.reused,
            "terminated": _truth(row.terminated),
            "revision": SOUNDNESS_REVISION,
            "near": _blob(seen.near),
            "shape": seen.shape,
            "becomes": seen.becomes,
            "finished": time.time(),
        }
        sql = (
            f"INSERT OR REPLACE INTO distribution_inputs ({', '.join(values)}) VALUES ({marks(list(values))})"
        )
        self._write(sql, tuple(values.values()))

    def finished(self, run: str) -> dict[str, Row]:
        """The finished inputs of a run by what they are; failed ones included."""
        return {r["item"]: _row(r) for r in self._inputs(run)}

    def rows(self, run: str) -> list[Row]:
        """The same in the order of the run; one name never stands for two networks or two sets of data."""
        found = self._inputs(run)
        networks = distinct([r["network"] for r in found], [r["network_key"] for r in found])
        splits = distinct([r["split"] for r in found], [r["data_key"] for r in found])
        return [replace(_row(r), network=n, split=s) for r, n, s in zip(found, networks, splits, strict=True)]

    def shown(self, run: str) -> list[sqlite3.Row]:
        """The finished inputs of a run with everything that is known about them, for reports."""
        return self._inputs(run)

    def events(self, run: str) -> list[sqlite3.Row]:
        """Every answer on the way, by question, in order."""
        sql = (
            "SELECT question, kind, radius, verdict, verifier, seconds, created, reused, proved, distance "
            "FROM distribution_steps WHERE run = ? AND revision >= ? ORDER BY id"
        )
        return self._read(sql, (run, SOUNDNESS_REVISION))

    def _inputs(self, run: str) -> list[sqlite3.Row]:
        sql = (
            "SELECT * FROM distribution_inputs WHERE run = ? "
            f"AND (revision >= ? OR NOT ({MEASURED})) ORDER BY position, rowid"
        )
        return self._read(sql, (run, SOUNDNESS_REVISION))

    def spent(self, run: str) -> list[Spent]:
        """What every measured input of a run cost; several sessions of a run have the same positions."""
        sql = (
            "SELECT i.seconds, COUNT(s.id) AS queries, COALESCE(SUM(s.verdict = 'timeout'), 0) AS timeouts, "
            "COALESCE(SUM(s.verdict = 'memout'), 0) AS memouts, "
            "COALESCE(SUM(s.verdict = 'cancelled'), 0) AS cancelled, "
            "COALESCE(SUM(s.seconds), 0.0) AS busy, i.reused FROM distribution_inputs i "
            "LEFT JOIN distribution_steps s ON s.run = i.run AND s.question = i.question "
            "WHERE i.run = ? AND i.status IN ('closed', 'open') GROUP BY i.item ORDER BY i.position, i.rowid"
        )
        return [Spent(**dict(r)) for r in self._read(sql, (run,))]


def _truth(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else FOREVER


def _blob(x: np.ndarray[tuple[int], np.dtype[np.float32]] | None) -> bytes | None:
    return None if x is None else np.ascontiguousarray(x, np.float32).tobytes()


def _step(r: sqlite3.Row) -> SearchStep:
    witness = None if r["witness"] is None else np.frombuffer(r["witness"], np.float32)
    flags = frozenset(Flag(f) for f in json.loads(r["flags"]))
    return SearchStep(
        *(r["kind"], r["radius"], Verdict(r["verdict"]), r["verifier"], r["seconds"], r["timeout"]),
        proved=r["proved"],
        distance=r["distance"],
        witness=witness,
        flags=flags,
        elapsed=r["elapsed"],
        reason=r["reason"],
        unstable=r["unstable"],
        reused=bool(r["reused"]),
    )


def _row(r: sqlite3.Row) -> Row:
    return Row(
        *(r["network"], r["split"], r["image_id"], r["label"], r["predicted"], r["lower"], r["upper"]),
        *(
            SearchStatus(r["status"]),
            r["seconds"],
            r["queries"],
            r["cancelled"],
            tuple(json.loads(r["flags"])),
        ),
        *(r["reason"], None if r["rounded"] is None else bool(r["rounded"]), r["reused"]),
        None if r["terminated"] is None else bool(r["terminated"]),
    )
