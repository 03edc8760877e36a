"""Tables in one SQLite file: opened in one way, shared by threads, every write survives the process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from verifolio.errors import InputError

MEMORY = ":memory:"
DAMAGE = (sqlite3.Error, ValueError, TypeError, KeyError, IndexError)  # what reading foreign rows raises


class Tables:
    """What a subclass keeps in the tables of its `schema`; several subclasses may share one file.

    One process writes; others may look on meanwhile (WAL).
    """

    schema: ClassVar[str] = ""

    def __init__(self, path: str | Path = MEMORY) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            if str(path) != MEMORY:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {setting}")
            self._prepare(self._connection)
            self._connection.commit()
        except (OSError, ValueError, sqlite3.Error) as error:
            remedy = "choose another file, or remove this one"
            raise InputError(str(path), "a store that can be written", str(error), remedy) from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables that are missing."""
        connection.executescript(self.schema)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _trusting(self, *wrong: type[Exception]) -> Iterator[None]:
        """Inside, the file is taken as ours; a damaged or foreign one shows by these errors and is told as such."""
        try:
            yield
        except DAMAGE as error:
            if wrong and not isinstance(error, wrong):
                raise
            got = " ".join(str(error).split())[:200]
            remedy = "choose another file, or remove this one"
            raise InputError(str(self.path), "a store that is whole", got, remedy) from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Several statements as one transaction."""
        with self._trusting(sqlite3.Error), self._lock, self._connection:
            yield self._connection

    def _write(self, sql: str, values: Sequence[object]) -> None:
        with self._writing() as connection:
            connection.execute(sql, tuple(values))

    def _read(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._trusting(sqlite3.Error), self._lock:
            return self._connection.execute(sql, tuple(values)).fetchall()


def marks(values: Sequence[object]) -> str:
    """As many question marks as values."""
    return ", ".join("?" * len(values))
