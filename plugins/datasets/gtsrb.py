"""German traffic signs from the official folders or from Kaggle's tables, unpacked or in zip files."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.files.bounded import read_bytes
from verifolio.plugin.data_source import Dataset, DataSource, data_folders

from .pictures import pixels_of

SIDE = 32  # pixels: what networks of the literature read
CLASSES = 43  # kinds of signs
MOST_BYTES = 1 << 22  # of one picture or table; the largest table has 1 MB
MOST_PICTURES = 100_000  # twice as many as there are
# how tables of a split are called: Kaggle's, then the official ones, which lie beside their pictures
TABLES = {"train": ("Train.csv", "GT-000"), "test": ("Test.csv", "GT-final_test.csv")}


@dataclass(frozen=True)
class Archive:
    """Files below a folder and inside the zip files that lie in it, by the last parts of their paths."""

    root: Path

    def tables(self, split: str) -> list[tuple[str, bytes]]:
        """The tables of a split with their paths; Kaggle's where there are any."""
        for name in TABLES[split]:
            found = [p for p in self.names if PurePosixPath(p).name.startswith(name) and p.endswith(".csv")]
            if found:
                return [(p, self.read(p)) for p in sorted(found)]
        return []

    @cached_property
    def names(self) -> dict[str, tuple[Path, str]]:
        """Where every file is: its own path, or a zip file and the name in it."""
        found: dict[str, tuple[Path, str]] = {}
        for path in sorted(self.root.rglob("*")):
            if path.suffix == ".zip" and path.is_file():
                found |= {name: (path, name) for name in inside(path)}
            elif path.suffix in (".csv", ".png", ".ppm"):
                found[path.relative_to(self.root).as_posix()] = (path, "")
        return found

    def read(self, name: str) -> bytes:
        path, member = self.names[name]
        return read_member(path, member)


def inside(path: Path) -> list[str]:
    """The names in a zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(str(path), "a zip file", str(error)[:120], "fetch the file again") from None


def read_member(path: Path, member: str, archive: zipfile.ZipFile | None = None) -> bytes:
    """A file's bytes, or those of a member of a zip file, up to a limit."""
    if not member:
        return read_bytes(path, "a file of the traffic signs", MOST_BYTES)
    try:
        with (archive or zipfile.ZipFile(path)).open(member) as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}:{member}", "a file of the archive", str(error)[:120]) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}:{member}", f"at most {MOST_BYTES} bytes", "more", "is it a zip bomb?")
    return data


class Gtsrb(DataSource):
    """Photographs of German traffic signs, made 3 x 32 x 32, 43 classes, in the order of the tables."""

    name: ClassVar[str] = "gtsrb"

    @classmethod
    def find(cls, split: str) -> tuple[Archive, list[tuple[str, bytes]]] | None:
        for folder in data_folders(cls.name):
            if folder.is_dir() and (tables := Archive(folder).tables(split)):
                return Archive(folder), tables
        return None

    @classmethod
    def available(cls) -> str | None:
        if any(folder.is_dir() and any(folder.iterdir()) for folder in data_folders(cls.name)):
            return None
        looked = ", ".join(map(str, data_folders(cls.name)))
        return (
            f"no traffic signs in {looked}; put the official folders, Kaggle's, or their zip files into "
            f"$VERIFOLIO_DATA/{cls.name}/"
        )

    def load(self, split: str) -> Dataset:
        found = self.find(split)
        if found is None:
            looked = ", ".join(map(str, data_folders(self.name)))
            expected = " or ".join(TABLES[split])
            raise InputError(
                f"data set {self.name}:{split}", f"a table {expected}", f"none in {looked}", "put it there"
            )
        archive, tables = found
        rows = [row for path, data in tables for row in table_rows(path, data)]
        if len(rows) > MOST_PICTURES:
            raise InputError(f"data set {self.name}", f"at most {MOST_PICTURES} pictures", str(len(rows)))
        images = np.stack(list(pictures(archive, [path for path, _ in rows])))
        labels = np.array([label for _, label in rows], np.int64)
        return Dataset(
            self.name, split, images.reshape(len(images), -1), labels, (3, SIDE, SIDE), CLASSES, 255.0
        )


def table_rows(path: str, data: bytes) -> Iterator[tuple[str, int]]:
    """Where a picture is, as seen from the table's folder, and its class."""
    text = data.decode("utf-8-sig", "replace")
    reader = csv.DictReader(io.StringIO(text), delimiter=";" if ";" in text[:200] else ",")
    names = reader.fieldnames or []
    column = "Path" if "Path" in names else "Filename"
    if column not in names or "ClassId" not in names:
        got = ", ".join(names) or "nothing"
        raise InputError(
            f"{path}:1", "the columns ClassId and Path or Filename", got, "is it the right table?"
        )
    folder = PurePosixPath(path).parent
    for row in reader:
        label = row["ClassId"] or ""
        if not label.isdigit() or int(label) >= CLASSES:
            raise InputError(f"{path}:{reader.line_num}", f"a class below {CLASSES}", repr(label))
        yield str(folder / (row[column] or "")), int(label)


def endings(known: Mapping[str, tuple[Path, str]]) -> dict[tuple[str, ...], tuple[Path, str]]:
    """Files by the last two parts of their paths and by the last one, where no other file ends so."""
    found: dict[tuple[str, ...], list[tuple[Path, str]]] = {}
    for path, place in known.items():
        parts = PurePosixPath(path).parts
        for end in {parts[-2:], parts[-1:]}:
            found.setdefault(end, []).append(place)
    return {end: places[0] for end, places in found.items() if len(places) == 1}


def pictures(archive: Archive, paths: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
    """The pictures of a table, by their whole path or, where folders have been moved, by its end."""
    known = archive.names
    ends = endings(known)
    opened: dict[Path, zipfile.ZipFile] = {}
    try:
        for path in paths:
            parts = PurePosixPath(path).parts
            place = known.get(path) or ends.get(parts[-2:]) or ends.get(parts[-1:])
            if place is None:
                raise InputError(str(archive.root / path), "a picture that the table names", "no such file")
            file, member = place
            if member and file not in opened:
                opened[file] = zipfile.ZipFile(file)
            data = read_member(file, member, opened.get(file))
            yield pixels_of(io.BytesIO(data), str(archive.root / path), (SIDE, SIDE))
    finally:
        for one in opened.values():
            one.close()
