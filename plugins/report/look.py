"""Stores as a reader sees them: opened to be read, never to be changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from verifolio.errors import InputError

SQLITE = b"SQLite format 3\x00"


def is_store(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(16) == SQLITE


@contextmanager
def looking(path: Path) -> Iterator[sqlite3.Connection]:
    """A store, to be read and not to be changed."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30.0)
    except sqlite3.Error as error:
        raise InputError(str(path), "a store that can be read", str(error), "check the file") from None
    with closing(connection):
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        except sqlite3.DatabaseError as error:
            raise InputError(str(path), "a store that is whole", str(error), "check the file") from None


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None
