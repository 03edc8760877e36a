"""The store: one SQLite file with every query, answer, attempt, option, version, seed and hash."""

from __future__ import annotations

import json
import math
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.model.answer import Answer, Attempt, Flag, Verdict, Witness
from verifolio.model.outputs import outputs_from_bytes, outputs_to_bytes
from verifolio.model.query import Query
from verifolio.portfolio.tree import Portfolio
from verifolio.run.settings import Settings
from verifolio.storage.database import Tables, marks
from verifolio.storage.invocation import INVOKED
from verifolio.storage.revision import SOUNDNESS_REVISION
from verifolio.storage.versions import versions

VERSION = 1  # of the tables; a file of another version is not read
SCHEMA = """
CREATE TABLE IF NOT EXISTS queries (
    sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, networks TEXT NOT NULL, specification TEXT NOT NULL,
    ball TEXT, shared_input INTEGER NOT NULL, labels TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS portfolios (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, tree TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY, query TEXT NOT NULL REFERENCES queries,
    portfolio TEXT NOT NULL REFERENCES portfolios, timeout REAL NOT NULL, memory INTEGER,
    cores INTEGER NOT NULL, seed INTEGER NOT NULL, device TEXT NOT NULL,
    verdict TEXT NOT NULL, verifier TEXT NOT NULL, reason TEXT NOT NULL, flags TEXT NOT NULL,
    seconds REAL NOT NULL, bound REAL, stats TEXT NOT NULL,
    witness_x BLOB, witness_y BLOB, margins TEXT NOT NULL,
    host TEXT NOT NULL, versions TEXT NOT NULL, created REAL NOT NULL, revision INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS answers_by_query ON answers (query, portfolio);
CREATE TABLE IF NOT EXISTS attempts (
    answer INTEGER NOT NULL REFERENCES answers ON DELETE CASCADE, position INTEGER NOT NULL,
    verifier TEXT NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL,
    peak_memory INTEGER NOT NULL, stats TEXT NOT NULL, log TEXT NOT NULL, refused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (answer, position)
);
CREATE TABLE IF NOT EXISTS findings (
    key TEXT PRIMARY KEY, networks TEXT NOT NULL, property TEXT NOT NULL, epsilon REAL NOT NULL, norm TEXT NOT NULL,
    low REAL NOT NULL, high REAL NOT NULL, label INTEGER NOT NULL, origin TEXT NOT NULL, shape TEXT NOT NULL,
    status TEXT NOT NULL, verifier TEXT NOT NULL, reason TEXT NOT NULL, flags TEXT NOT NULL, seconds REAL NOT NULL,
    reused INTEGER NOT NULL, near BLOB, witness_x BLOB, witness_y BLOB, distance REAL, run TEXT NOT NULL,
    created REAL NOT NULL, revision INTEGER NOT NULL DEFAULT 0
);
"""


class Store(Tables):
    """Answers on disk, written by the driver only."""

    schema = SCHEMA
    claims: ClassVar[Mapping[str, str]] = {"answers": "verdict = 'unsat'", "findings": "status = 'proved'"}

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found not in (0, VERSION):
            expected = f"version {VERSION} of the store"
            raise InputError(str(self.path), expected, f"version {found}", "use a new file")
        super()._prepare(connection)
        columns = {r["name"] for r in connection.execute("PRAGMA table_info(attempts)")}
        if "refused" not in columns:  # a file of an earlier version, in which the reason alone says so
            connection.execute("ALTER TABLE attempts ADD COLUMN refused INTEGER NOT NULL DEFAULT 0")
            connection.execute("UPDATE attempts SET refused = 1 WHERE reason LIKE 'refuses: %'")
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def find(self, query: Query, portfolio: str, settings: Settings) -> Answer | None:
        """The newest stored answer that serves: decided, or undecided with at least this much time.

        Of an earlier soundness revision only undecided ones do, because they claim nothing.
        """
        sql = (
            "SELECT * FROM answers WHERE query = ? AND portfolio = ? AND seed = ? "
            "AND (revision >= ? OR verdict NOT IN ('sat', 'unsat')) ORDER BY id DESC"
        )
        rows = self._read(sql, (query.sha256, portfolio, settings.seed, SOUNDNESS_REVISION))
        with self._trusting():
            row = next((r for r in rows if serves(r["verdict"], r["timeout"], settings.timeout)), None)
            return None if row is None else self._answer(row)

    def old_witness(self, query: Query) -> NDArray[np.float32] | None:
        """The newest witness of an earlier soundness revision; whoever uses it replays it first."""
        sql = (
            "SELECT witness_x FROM answers WHERE query = ? AND verdict = 'sat' AND revision < ? "
            "AND witness_x IS NOT NULL ORDER BY id DESC LIMIT 1"
        )
        rows = self._read(sql, (query.sha256, SOUNDNESS_REVISION))
        return np.frombuffer(rows[0]["witness_x"], np.float32) if rows else None

    def _answer(self, row: sqlite3.Row) -> Answer:
        sql = "SELECT * FROM attempts WHERE answer = ? ORDER BY position"
        attempts = tuple(_attempt(a) for a in self._read(sql, (row["id"],)))
        flags = frozenset(Flag(f) for f in json.loads(row["flags"]))
        witness = None
        if row["witness_x"] is not None:
            witness = Witness(
                np.frombuffer(row["witness_x"], np.float32),
                outputs_from_bytes(row["witness_y"]),
                tuple(json.loads(row["margins"])),
                flags,
            )
        return Answer(
            Verdict(row["verdict"]),
            row["verifier"],
            row["reason"],
            witness,
            flags,
            row["seconds"],
            row["bound"] if row["revision"] >= SOUNDNESS_REVISION else None,
            json.loads(row["stats"]),
            attempts,
        )

    def save(self, query: Query, answer: Answer, portfolio: Portfolio, settings: Settings) -> int:
        """Write an answer with all it depends on, in one transaction; gives its id."""
        with self._writing() as connection:
            _insert(connection, "queries", _query_row(query), ignore=True)
            tree = json.dumps(portfolio.root.describe(), sort_keys=True, default=str)
            _insert(
                connection,
                "portfolios",
                {"key": portfolio.key, "name": portfolio.name, "tree": tree},
                ignore=True,
            )
            number = _insert(connection, "answers", _answer_row(query, answer, portfolio, settings))
            for position, attempt in enumerate(answer.attempts):
                row = asdict(attempt) | {"answer": number, "position": position}
                row |= {
                    "stats": json.dumps(dict(attempt.stats), default=str),
                    "verdict": attempt.verdict.value,
                    "refused": int(attempt.refused),
                }
                _insert(connection, "attempts", row)
        return number

    def add_finding(self, row: Mapping[str, object]) -> None:
        """Keep what a property came to around an input, for reports; an open one never replaces a decided one."""
        invocation = INVOKED.get()
        more = {"run": "" if invocation is None else invocation.id, "created": time.time()}
        whole = dict(row) | more | {"revision": SOUNDNESS_REVISION}
        stale = "" if row["status"] != "open" else " AND (status = 'open' OR revision < ?2)"
        given = (row["key"], SOUNDNESS_REVISION)[: 2 if stale else 1]
        with self._writing() as connection:
            connection.execute(f"DELETE FROM findings WHERE key = ?1{stale}", given)
            _insert(connection, "findings", whole, ignore=True)

    def answers(self) -> Iterator[dict[str, Any]]:
        """Every answer with its query, oldest first, as plain values."""
        sql = (
            "SELECT answers.*, queries.name AS query_name, queries.labels FROM answers "
            "JOIN queries ON queries.sha256 = answers.query ORDER BY answers.id"
        )
        return (dict(row) for row in self._read(sql))


def serves(verdict: str, had: float, wanted: float) -> bool:
    """Whether a stored verdict answers a request: undecided ones only if they had as much time."""
    return Verdict(verdict).decided or had >= wanted


def _query_row(query: Query) -> dict[str, object]:
    networks = [{"path": str(n.path), "sha256": n.sha256} for n in query.networks]
    ball = query.ball
    described = None
    if ball is not None:
        described = json.dumps(
            {"centre": ball.centre.tolist(), "radius": ball.radius, "norm": str(ball.norm)}
        )
    return {
        "sha256": query.sha256,
        "name": query.name,
        "networks": json.dumps(networks),
        "specification": query.specification.sha256,
        "ball": described,
        "shared_input": int(query.shared_input),
        "labels": json.dumps(query.labels),
    }


def _answer_row(query: Query, answer: Answer, portfolio: Portfolio, settings: Settings) -> dict[str, object]:
    witness = answer.witness
    return {
        "query": query.sha256,
        "portfolio": portfolio.key,
        "timeout": settings.timeout if math.isfinite(settings.timeout) else 1e300,
        "memory": settings.memory,
        "cores": settings.cores,
        "seed": settings.seed,
        "device": settings.device,
        "verdict": answer.verdict.value,
        "verifier": answer.verifier,
        "reason": answer.reason,
        "flags": json.dumps(sorted(f.value for f in answer.flags)),
        "seconds": answer.seconds,
        "bound": answer.bound,
        "stats": json.dumps(dict(answer.stats), default=str),
        "witness_x": None if witness is None else witness.x.astype(np.float32).tobytes(),
        "witness_y": None if witness is None else outputs_to_bytes(witness.y),
        "margins": json.dumps([] if witness is None else list(witness.margins)),
        "host": platform.node(),
        "versions": json.dumps(versions()),
        "created": time.time(),
        "revision": SOUNDNESS_REVISION,
    }


def _insert(
    connection: sqlite3.Connection, table: str, row: Mapping[str, object], ignore: bool = False
) -> int:
    """Table and column names are constants of this module; values are bound."""
    verb, values = "INSERT OR IGNORE" if ignore else "INSERT", tuple(row.values())
    sql = f"{verb} INTO {table} ({', '.join(row)}) VALUES ({marks(values)})"
    cursor = connection.execute(sql, values)
    return int(cursor.lastrowid or 0)


def _attempt(row: sqlite3.Row) -> Attempt:
    return Attempt(
        row["verifier"],
        Verdict(row["verdict"]),
        row["reason"],
        row["seconds"],
        row["peak_memory"],
        json.loads(row["stats"]),
        row["log"],
        bool(row["refused"]),
    )
