"""A report as files: the page, the data of its tables as CSV, and the figures of its sections."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from verifolio.errors import InputError
from verifolio.plugin.account import Account, Asked, InputResult
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.section import Content, Material, Section

from .content import as_plain, page_content
from .page import make_page, with_pictures
from .sentence import answer
from .sources import find_sources, read_accounts

PAGES = (".html", ".htm")


@dataclass(frozen=True, eq=False)
class Report:
    """What was written, and the essentials for people."""

    page: Path
    accounts: tuple[Account, ...]
    files: tuple[Path, ...]

    @property
    def lines(self) -> list[str]:
        alarms = [f"soundness alarm: {text}" for a in self.accounts for text in a.alarms]
        return [*alarms, *(answer(a) for a in self.accounts)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "page": str(self.page),
            "answers": [answer(a) for a in self.accounts],
            "alarms": [text for a in self.accounts for text in a.alarms],
            "files": [str(f) for f in self.files],
        }


def build_report(names: Sequence[str], out: Path, asked: Asked, sections: Sequence[str] = ()) -> Report:
    """Read, draw and write everything; where `out` is named like a page, the page alone."""
    accounts = read_accounts(find_sources(names), asked)
    chosen = [find_sections(a, sections) for a in accounts]
    if sections and not any(chosen):
        kinds = " or ".join(a.kind for a in accounts)
        raise InputError("--section", f"a section of the report {kinds}", ", ".join(sections))
    if out.suffix.lower() in PAGES and not out.is_dir():
        with tempfile.TemporaryDirectory(prefix="verifolio-") as folder:  # figures on their way into the page
            written = write_report(Path(folder), accounts, chosen)
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(written.page, out)
        return Report(out, written.accounts, ())
    return write_report(out, accounts, chosen)


def write_report(out: Path, accounts: Sequence[Account], chosen: Sequence[list[Section]]) -> Report:
    """The page in a folder, with figures and data beside it."""
    out.mkdir(parents=True, exist_ok=True)
    made = {k: make_sections(a, s, out) for k, (a, s) in enumerate(zip(accounts, chosen, strict=True))}
    written = [write_results(out, accounts)]
    for content in (c for contents in made.values() for c in contents):
        for table in content.tables:
            written.append(write_lines(out / f"{table.name}.csv", table.columns, table.rows))
        written += [path for _, path in content.pictures]
    page = out / "index.html"
    write_text(page, make_page(as_plain(with_pictures(page_content(accounts, made)))))
    return Report(page, tuple(accounts), tuple(written))


def find_sections(account: Account, names: Sequence[str]) -> list[Section]:
    """Sections by name, from any plugin, that belong to this kind of run; its own where none is named."""
    registry = current_plugins().sections
    found = [registry.get(name) for name in (names or account.sections)]
    return [cls() for cls in found if cls.report == account.kind]


def make_sections(account: Account, sections: Sequence[Section], out: Path) -> list[Content]:
    """What the sections say; a run that brings no material of its own has its results as records."""
    if not sections:
        return []
    if account.material is not None:
        material = account.material(out)
    else:
        material = Material([vars(r) for r in account.results], out)
    return [section.make(material) for section in sections]


def write_results(out: Path, accounts: Sequence[Account]) -> Path:
    """Every input of every run as one table."""
    names = [f.name for f in fields(InputResult)]
    rows = [
        [account.kind, *(_cell(getattr(r, name)) for name in names)]
        for account in accounts
        for r in account.results
    ]
    return write_lines(out / "inputs.csv", ["kind", *names], rows)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def write_lines(path: Path, columns: Sequence[str], lines: Sequence[Sequence[str]]) -> Path:
    """A table of text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> Path:
    """Replaced in one step, so that a reader never sees half of it."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.replace(path)
    return path
