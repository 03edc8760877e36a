"""Files from strangers: read and decompressed up to a limit, never further."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from verifolio.errors import InputError

MAX_TABLE = 20_000_000  # bytes of a table of names and results; parsed, a byte becomes at most 20 in memory
MAX_COLUMNS = 1000  # tables of ours have below a hundred; more is another kind of file


def open_file(path: Path) -> BinaryIO:
    """A file's bytes as a stream, decompressed where its name ends in .gz."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def read_bytes(path: Path, expected: str, limit: int) -> bytes:
    """A file's bytes, decompressed; more than `limit` of them are refused before they are in memory."""
    try:
        with open_file(path) as stream:
            data = stream.read(limit + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise unreadable(path, expected, error) from None
    if len(data) > limit:
        raise InputError(str(path), f"at most {limit} bytes", "more", "use a smaller file")
    return data


def read_text(path: Path, expected: str, limit: int) -> str:
    """A file's text in UTF-8."""
    data = read_bytes(path, expected, limit)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"byte 0x{data[error.start]:02x}"
        raise InputError(f"{path}:{line}", "UTF-8 text", got, "save the file as UTF-8") from None


def read_rows(path: Path, expected: str) -> list[tuple[int, list[str]]]:
    """The rows of a table (CSV) that are not empty, with their lines."""
    return list(rows_of(io.StringIO(read_text(path, expected, MAX_TABLE), newline=""), path, MAX_COLUMNS))


def rows_of(lines: Iterator[str] | io.StringIO, path: Path, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Rows with their lines, one after the other."""
    reader = csv.reader(lines)
    try:
        for row in reader:
            if len(row) > columns:
                where = f"{path}:{reader.line_num}"
                raise InputError(where, f"at most {columns} columns", str(len(row)), "is it a table?")
            if any(cell.strip() for cell in row):
                yield reader.line_num, row
    except csv.Error as error:
        where = f"{path}:{reader.line_num}"
        raise InputError(where, "comma-separated values", str(error), "save it again") from None


def unreadable(path: Path, expected: str, error: Exception) -> InputError:
    """What to say of a file that cannot be read."""
    got = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return InputError(str(path), expected, " ".join(str(got).split())[:200], "check the path and the file")
