"""What a study is: measurements that keep rows, and parts (tables and figures) that are made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Literal

Key = tuple[str, ...]
Record = Mapping[str, str]  # one row of a table, by the names of its columns
Say = Callable[[str], None]


class Judgement(StrEnum):
    """What our rows say about a statement of a paper."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Statement:
    """What the paper says, what came out here, and on how much that rests."""

    text: str
    judgement: Judgement
    sample: str
    reason: str = ""


def judged(text: str, holds: bool | None, sample: str, reason: str = "") -> Statement:
    """A statement that holds, does not hold, or that the rows do not decide (None)."""
    words = {True: Judgement.CONFIRMED, False: Judgement.REFUTED, None: Judgement.UNDECIDED}
    return Statement(text, words[holds], sample, reason)


@dataclass(frozen=True)
class Size:
    """How much is measured: everything, or the little that tests have time for."""

    quick: bool = False


class Measurement(ABC):
    """Something that is measured once and kept: `name` is that of its file, `key` the columns that identify a row."""

    name: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
    columns: ClassVar[tuple[str, ...]]  # besides the key
    shared: ClassVar[int] = 0  # rows with these first columns of the key in common are measured together,
    most: ClassVar[int] = 1  # so many of them at most

    @abstractmethod
    def wanted(self, size: Size) -> list[Key]:
        """The rows that there should be, in the order in which they are worth having."""

    @abstractmethod
    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        """These rows, each as soon as it is known; a row has all columns."""

    def groups(self, keys: Sequence[Key]) -> Iterator[list[Key]]:
        """What is measured together, in order; nothing is stopped within a group."""
        for _, group in groupby(keys, key=lambda k: k[: self.shared]):
            mine = list(group)
            yield from (mine[start : start + self.most] for start in range(0, len(mine), self.most))


@dataclass(frozen=True)
class Place:
    """Where a measurement keeps what is too large for rows (stores, networks), its size, and whom it tells."""

    folder: Path
    size: Size
    say: Say = lambda _text: None
    only: tuple[str, ...] = ()  # measurements of these names, or rows with one of these values in their key


@dataclass(frozen=True)
class Tables:
    """The rows that are there, by the name of the measurement."""

    rows: Mapping[str, Sequence[Record]]

    def of(self, name: str, **wanted: str) -> list[Record]:
        """The rows of a measurement with these values."""
        found = self.rows.get(name, ())
        return [r for r in found if all(r[k] == v for k, v in wanted.items())]


@dataclass(frozen=True)
class Shown:
    """A part as text: lines of Markdown, and what the paper says about it."""

    lines: Sequence[str]
    statements: Sequence[Statement] = ()


Show = Callable[[Tables], Shown]
Draw = Callable[[Tables, Path], None]


@dataclass(frozen=True)
class Part:
    """A table or a figure of the paper; `absent` says why one cannot be had."""

    kind: Literal["table", "figure"]
    number: int
    title: str
    show: Show | None = None
    needs: tuple[Measurement, ...] = ()
    absent: str = ""
    draw: Draw | None = None

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True)
class Study:
    """A paper: its number, its reference, what it says in short, its parts in their order."""

    number: str
    title: str
    reference: str
    about: str
    parts: tuple[Part, ...] = field(repr=False)

    def part(self, kind: str, number: int) -> Part | None:
        return next((p for p in self.parts if (p.kind, p.number) == (kind, number)), None)

    @property
    def measurements(self) -> dict[str, list[Measurement]]:
        """All of them by the name of their file; several may share one."""
        found: dict[str, list[Measurement]] = {}
        for part in self.parts:
            for one in part.needs:
                found.setdefault(one.name, []).append(one)
        return found
