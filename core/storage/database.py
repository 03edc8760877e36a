"""Tables in one SQLite file: opened in one way, shared by threads, every write survives the process."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from verifolio.errors import InputError
from verifolio.storage.revision import SOUNDNESS_REVISION

MEMORY = ":memory:"
_told: set[Path] = set()  # files whose old proofs the user has heard of
DAMAGE = (sqlite3.Error, ValueError, TypeError, KeyError, IndexError)  # what reading foreign rows raises


class Tables:
    """What a subclass keeps in the tables of its `schema`; several subclasses may share one file.

    One process writes; others may look on meanwhile (WAL). `claims` are the tables whose rows carry the soundness
    revision of whoever wrote them (their last column, `revision`), each with the SQL condition by which a row
    claims a proof.
    """

    schema: ClassVar[str] = ""
    claims: ClassVar[Mapping[str, str]] = {}

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
        """Make the tables that are missing, and the columns that files of earlier versions lack."""
        connection.executescript(self.schema)
        old = 0
        for table, condition in self.claims.items():
            columns = {r["name"] for r in connection.execute(f"PRAGMA table_info({table})")}
            if "revision" not in columns:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN revision INTEGER NOT NULL DEFAULT 0")
            sql = f"SELECT COUNT(*) FROM {table} WHERE revision < ? AND ({condition})"
            old += int(connection.execute(sql, (SOUNDNESS_REVISION,)).fetchone()[0])
        if old:
            self._tell(old)

    def _tell(self, old: int) -> None:
        """Say once per file that its old proofs are not believed."""
        if self.path.resolve() in _told:
            return
        _told.add(self.path.resolve())
        sys.stderr.write(
            f"{self.path}: {old} proofs of an earlier version are not used: errors in proofs were mended since; "
            "they are asked again\n"
        )

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
