"""Where a report comes from: stores and tables, given by name or found in a folder, and who reads them."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from verifolio.errors import InputError
from verifolio.plugin.account import Account, Asked, Reader
from verifolio.plugin.manager import current_plugins

from .look import has_table, is_store, looking
from .provenance import command_facts, portfolio_facts

ENDINGS = (".db", ".sqlite", ".csv")  # what is looked at in a folder


def find_sources(names: Sequence[str]) -> list[Path]:
    """Files as given, and those in folders that a reader knows."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.suffix in ENDINGS and p.is_file())
            stores = [p for p in inside if is_store(p) and readers_of(p)]
            tables = [p for p in inside if not is_store(p) and readers_of(p)]
            if not (stores or tables):
                got = f"a folder without one ({len(inside)} files were looked at)"
                raise InputError(name, "a store or a table of results", got, "name the file")
            found += stores or tables  # a store says more than the tables beside it
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(
                name, "a store, a table of results or a folder", "no such file", "check the path"
            )
    return found


def read_accounts(sources: Sequence[Path], asked: Asked) -> list[Account]:
    """What all readers say, the newest run of each kind; each source must have a reader."""
    readers = {path: readers_of(path) for path in sources}
    for path, mine in readers.items():
        if not mine:
            kinds = ", ".join(sorted(r.name for r in current_plugins().readers))
            remedy = "run a command with --store FILE, or let the one that was interrupted go on"
            raise InputError(str(path), f"a store or table with results ({kinds})", "none yet", remedy)
    accounts = []
    for reader in current_plugins().readers:
        own = [path for path, chosen in readers.items() if reader in chosen]
        account = reader().read(own, asked) if own else None
        if account is not None:
            accounts.append(with_provenance(account, own, asked))
    if not accounts:
        expected = f"run {asked.run}" if asked.run else "at least one result"
        raise InputError(str(sources[0]), expected, "none", "leave --run out" if asked.run else "")
    return accounts


def with_provenance(account: Account, sources: Sequence[Path], asked: Asked) -> Account:
    """The account with what the stores know of the command that wrote them; the reader's own words come first."""
    facts: dict[str, str] = {}
    for source in sources:
        if is_store(source):
            with looking(source) as connection:
                facts |= command_facts(connection, asked.run) | portfolio_facts(connection)
    return replace(account, provenance={**facts, **account.provenance})


def readers_of(path: Path) -> list[type[Reader]]:
    """Who reads a file; general readers only where nobody else does."""
    everyone = list(current_plugins().readers)
    if is_store(path):
        with looking(path) as connection:
            able = [r for r in everyone if r.tables and _rows(connection, r.tables[0])]
    else:
        header = _header(path)
        able = [r for r in everyone if any(columns <= header for columns in r.columns)]
    return [r for r in able if not r.general] or able


def _rows(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a table is there and has rows; names of tables are constants of readers."""
    if not has_table(connection, table):
        return False
    return connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None


def _header(path: Path) -> frozenset[str]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return frozenset(next(csv.reader(stream), []))
    except (UnicodeDecodeError, csv.Error):
        return frozenset()
