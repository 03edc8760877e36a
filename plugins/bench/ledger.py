"""What a benchmark run remembers in the store's file: one line per finished instance."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from verifolio.model.answer import Verdict
from verifolio.onnx_import.network import Network
from verifolio.storage.database import Tables, marks
from verifolio.storage.revision import SOUNDNESS_REVISION
from verifolio.vnnlib.source import read_source

from .instances import Instance
from .results import InstanceResult

if TYPE_CHECKING:
    from verifolio.model.query import Query

SCHEMA = """
CREATE TABLE IF NOT EXISTS bench_results (
    run TEXT NOT NULL, content TEXT NOT NULL, timeout REAL NOT NULL, label TEXT NOT NULL,
    verdict TEXT NOT NULL, seconds REAL NOT NULL, verifier TEXT NOT NULL, reason TEXT NOT NULL,
    flags TEXT NOT NULL, counterexample TEXT NOT NULL, created REAL NOT NULL,
    revision INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (run, content, timeout)
);
"""


class BenchLedger(Tables):
    """A table beside the oracle's own in one file."""

    schema = SCHEMA
    claims: ClassVar[Mapping[str, str]] = {"bench_results": "verdict = 'unsat'"}

    def find(self, run: str, content: str, timeout: float) -> InstanceResult | None:
        """The result that serves: decided within the time asked for, or undecided with at least as much.

        Decided ones of an earlier soundness revision do not: the oracle replays its witness, or decides anew.
        """
        sql = (
            "SELECT * FROM bench_results WHERE run = ? AND content = ? "
            "AND (revision >= ? OR verdict NOT IN ('sat', 'unsat')) ORDER BY timeout DESC"
        )
        rows = self._read(sql, (run, content, SOUNDNESS_REVISION))
        with self._trusting():
            for row in rows:
                if (_decided(row) and row["seconds"] <= timeout) or row["timeout"] == timeout:
                    return _result(row)
            return next((_result(r) for r in rows if r["timeout"] >= timeout and not _decided(r)), None)

    def add(self, run: str, content: str, instance: Instance, result: InstanceResult) -> None:
        """Keep a result; it will not be asked for again in this run."""
        values = (
            *(run, content, instance.timeout, instance.label, result.verdict.value, result.seconds),
            *(result.verifier, result.reason, json.dumps(list(result.flags)), result.counterexample),
            time.time(),
            SOUNDNESS_REVISION,
        )
        self._write(f"INSERT OR REPLACE INTO bench_results VALUES ({marks(values)})", values)


def _decided(row: sqlite3.Row) -> bool:
    return Verdict(row["verdict"]).decided


def _result(row: sqlite3.Row) -> InstanceResult:
    return InstanceResult(
        Verdict(row["verdict"]),
        row["seconds"],
        row["verifier"],
        row["reason"],
        tuple(json.loads(row["flags"])),
        row["counterexample"],
    )


def content_of(instance: Instance) -> str:
    """A hash of what the instance asks: a changed file is another question."""
    hashes = [(name, Network.load(path).sha256) for name, path in instance.networks]
    return _content(hashes, read_source(instance.specification).sha256)


def content_of_query(instance: Instance, query: Query) -> str:
    """The same hash, of what was loaded and not of what the files hold by now."""
    loaded = {network.path: network.sha256 for network in query.networks}
    hashes = [(name, loaded.get(path.resolve(), "")) for name, path in instance.networks]
    return _content(hashes, query.specification.sha256)


def _content(networks: Iterable[tuple[str, str]], specification: str) -> str:
    digest = hashlib.sha256()
    for name, sha256 in (*networks, ("", specification)):
        digest.update(f"{name}\0".encode() + bytes.fromhex(sha256))
    return digest.hexdigest()
