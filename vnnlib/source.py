"""The text of a property file: read with bounded size, hashed, and able to name a position."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from verifolio.vnnlib.errors import VnnlibError

MAX_BYTES = 1 << 29
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, eq=False)
class Source:
    """A decompressed text, the name that errors show, and the hash of its bytes."""

    name: str
    text: str
    sha256: str

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    def locate(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def error(self, offset: int, *, expected: str, got: str, remedy: str) -> VnnlibError:
        """An error that points at an offset of this text."""
        line, column = self.locate(offset)
        return VnnlibError(self.name, line, column, expected, got, remedy)


def source_of_text(text: str, name: str) -> Source:
    """Wrap a text that is already in memory."""
    return Source(name, text, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def read_source(path: Path) -> Source:
    """Read a property file, decompressing it where its first bytes say gzip."""
    name = str(path)
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b"\0" * (MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise VnnlibError(name, 0, 0, "a readable file", reason, "check the path") from error
    if len(data) <= MAX_BYTES and (data.startswith(_GZIP_MAGIC) or name.endswith(".gz")):
        data = _decompress(data, name)
    if len(data) > MAX_BYTES:
        size = f"more than {MAX_BYTES >> 20} MiB"
        raise VnnlibError(name, 0, 0, f"at most {MAX_BYTES >> 20} MiB of text", size, "split the property")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        got = f"byte 0x{data[error.start]:02x}"
        raise VnnlibError(name, line, column, "UTF-8 text", got, "save the file as UTF-8") from error
    return Source(name, text, hashlib.sha256(data).hexdigest())


def _decompress(packed: bytes, name: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            return stream.read(MAX_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        got = str(error) or type(error).__name__
        raise VnnlibError(
            name, 0, 0, "a complete gzip file", got, "compress or copy the file again"
        ) from error
