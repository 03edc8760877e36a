"""The section interface: a part of a report, made from what the report is about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A name for its file, a title, columns, and rows of text."""

    name: str
    title: str
    columns: Cells
    rows: tuple[Cells, ...]


@dataclass(frozen=True)
class Material:
    """What a report is made of: one record per line of its table, by the names of the columns.

    `folder` is where the report goes: pictures are written there. A report may hand over a subclass with more.
    """

    records: Sequence[Mapping[str, Any]]
    folder: Path


@dataclass(frozen=True)
class Content:
    """What a section adds: tables, and pictures (PNG files) with their captions."""

    tables: tuple[Table, ...] = ()
    pictures: tuple[tuple[str, Path], ...] = ()


class Section(ABC):
    """A part of the report that `report` names. Subclasses set both names and write `make`."""

    name: ClassVar[str]
    report: ClassVar[str]

    @classmethod
    def available(cls) -> str | None:
        """Why this section cannot be made here, or None; must not import heavy modules."""
        return None

    @abstractmethod
    def make(self, material: Any) -> Content:
        """The section; empty where there is nothing to say. `material` is a `Material` or the report's own kind."""
