"""Arrays from .npy and .npz files: plain numbers and texts only, no larger than allowed, never a pickle."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from verifolio.files.bounded import unreadable

MAX_BYTES = 1 << 30  # of all arrays of a file together; CIFAR-10's training set as bytes is 150 MB
MAX_HEADER = 10_000  # numpy's own limit; headers of plain arrays have about a hundred bytes
CHUNK = 1 << 20  # a megabyte is read at a time, so that a file that lies about its size costs no more memory
KINDS = "fiubU"  # numbers, truth values and texts
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes
# what damaged archives and headers raise; MemoryError: the parser of headers, at deep nesting
DAMAGE = (OSError, EOFError, ValueError, KeyError, SyntaxError, RecursionError, MemoryError, RuntimeError)
DAMAGED = (*DAMAGE, zlib.error, zipfile.BadZipFile, NotImplementedError)


def read_array(path: Path, expected: str, limit: int = MAX_BYTES) -> NDArray[Any]:
    """The array of an .npy file."""
    try:
        with path.open("rb") as stream:
            return _array(stream, path.stat().st_size, limit)
    except DAMAGED as error:
        raise unreadable(path, expected, error) from None


def read_arrays(
    path: Path, expected: str, limit: int = MAX_BYTES, only: Collection[str] | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name, all of them or `only` those of these names."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _members(archive, limit, only)
    except DAMAGED as error:
        raise unreadable(path, expected, error) from None


def _members(archive: zipfile.ZipFile, limit: int, only: Collection[str] | None) -> dict[str, NDArray[Any]]:
    """`file_size` is what the directory claims, and the archive never gives more than that."""
    found: dict[str, NDArray[Any]] = {}
    left = limit
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if only is not None and name not in only:
            continue
        if info.compress_type not in COMPRESSIONS or info.file_size > left or name in found:
            remedy = f"more than {limit} bytes, a name twice, or a compression that numpy does not write"
            raise ValueError(f"{info.filename}: {remedy}")
        left -= info.file_size
        with archive.open(info) as stream:
            found[name] = _array(stream, info.file_size, left + info.file_size)
    return found


def _array(stream: IO[bytes], size: int, limit: int) -> NDArray[Any]:
    """The header is believed only as far as there are bytes for what it claims."""
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format; numbers need none above 2.0")
    shape, fortran, dtype = readers[version](stream, max_header_size=MAX_HEADER)
    if dtype.hasobject or dtype.kind not in KINDS or any(n < 0 for n in shape):
        raise ValueError(f"an array of {dtype}; only plain numbers are read, pickles never")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > limit or wanted > size:
        raise ValueError(f"an array of {dtype} of shape {shape}: more than the file has or is allowed")
    flat = np.frombuffer(_filled(stream, wanted), dtype) if wanted else np.zeros(0, dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _filled(stream: IO[bytes], wanted: int) -> bytearray:
    """So many bytes, without a second copy of them."""
    buffer = bytearray(wanted)
    have = 0
    while have < wanted:
        part = stream.read(min(CHUNK, wanted - have))
        if not part:
            raise ValueError(f"{have} bytes of values where the header claims {wanted}")
        buffer[have : have + len(part)] = part
        have += len(part)
    return buffer
