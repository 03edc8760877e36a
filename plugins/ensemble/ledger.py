"""What was found out about sets of networks at points, kept in a table of the results file.

Batched attacks and bounds decide most questions without a query of their own; this table holds them all, each
witness with its point, so that a later run asks nothing twice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Verdict
from verifolio.storage.database import MEMORY, Tables
from verifolio.storage.revision import SOUNDNESS_REVISION

SCHEMA = """
CREATE TABLE IF NOT EXISTS joint_facts (
    networks TEXT NOT NULL, spot TEXT NOT NULL, verdict TEXT NOT NULL, source TEXT NOT NULL,
    timeout REAL NOT NULL, x BLOB, created REAL NOT NULL, revision INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (networks, spot)
)
"""
PROVED = "verdict = 'unsat'"
Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Fact:
    """A verdict about a set of networks (their hashes, sorted and joined) at a spot (its hash).

    SAT has the point; an undecided verdict has the seconds that were not enough.
    """

    networks: str
    spot: str
    verdict: Verdict
    source: str
    x: Float32 | None = None
    timeout: float = 0.0


def set_key(hashes: Iterable[str]) -> str:
    return "+".join(sorted(hashes))


class EnsembleLedger(Tables):
    """The facts of one file (or of memory only, without a path); one writer.

    Proofs of an earlier soundness revision are left out. Witnesses are not: whoever takes one over replays it.
    """

    schema = SCHEMA
    claims: ClassVar[Mapping[str, str]] = {"joint_facts": PROVED}

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(MEMORY if path is None else path)
        sql = f"SELECT * FROM joint_facts WHERE revision >= ? OR NOT ({PROVED})"
        with self._trusting():
            facts = [_fact(row) for row in self._read(sql, (SOUNDNESS_REVISION,))]
        self._facts = {(f.networks, f.spot): f for f in facts}

    def __len__(self) -> int:
        return len(self._facts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def get(self, networks: str, spot: str, timeout: float = 0.0) -> Fact | None:
        """What is known: decided, or undecided after at least `timeout` seconds."""
        fact = self._facts.get((networks, spot))
        if fact is None or (not fact.verdict.decided and fact.timeout < timeout):
            return None
        return fact

    def shown(self) -> list[sqlite3.Row]:
        """All facts that are believed, oldest first, for reports."""
        sql = f"SELECT * FROM joint_facts WHERE revision >= ? OR NOT ({PROVED}) ORDER BY created, rowid"
        return self._read(sql, (SOUNDNESS_REVISION,))

    def add(self, facts: Sequence[Fact]) -> None:
        """Keep facts, in one transaction; a decided one is never replaced by an undecided one."""
        news = []
        for fact in facts:
            known = self._facts.get((fact.networks, fact.spot))
            if known is None or fact.verdict.decided or not known.verdict.decided:
                self._facts[fact.networks, fact.spot] = fact
                news.append(fact)
        sql = "INSERT OR REPLACE INTO joint_facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        with self._writing() as connection:
            connection.executemany(sql, [_row(f) for f in news])


def _row(fact: Fact) -> tuple[object, ...]:
    x = None if fact.x is None else fact.x.astype(np.float32).tobytes()
    timeout = min(fact.timeout, 1e300)
    return (
        fact.networks,
        fact.spot,
        fact.verdict.value,
        fact.source,
        timeout,
        x,
        time.time(),
        SOUNDNESS_REVISION,
    )


def _fact(row: sqlite3.Row) -> Fact:
    point = None if row["x"] is None else np.frombuffer(row["x"], np.float32)
    return Fact(row["networks"], row["spot"], Verdict(row["verdict"]), row["source"], point, row["timeout"])
