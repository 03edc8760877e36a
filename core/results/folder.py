"""What results write into a folder besides their own tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

STORE = "store.db"


def copy_store(store: Path | None, folder: Path) -> None:
    """A copy that is whole while others write: SQLite's own, which reads the write-ahead log as well."""
    if store is None or not store.is_file():
        return
    target = folder / STORE
    if target.exists() and target.samefile(store):
        return  # it is there already
    with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as source:
        target.unlink(missing_ok=True)
        with closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
