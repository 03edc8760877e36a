"""Weights in files beside the model, as torch writes them: read into the model, from its own folder only."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from verifolio.errors import InputError

MAX_EXTERNAL = 1 << 30  # bytes of all such files together; ONNX's own limit for one message is 2 GB
MARK = b"location"  # the key that every reference to such a file has


def with_external_data(path: Path, data: bytes) -> bytes:
    """The model with the weights of other files in it; models without such files stay as they are, byte by byte."""
    if MARK not in data:
        return data
    import onnx

    try:
        model = onnx.load_model_from_string(data)
    except (
        Exception
    ):  # protobuf's own errors derive from Exception alone; whoever parses it next says what is wrong
        return data
    outside = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return data
    left = MAX_EXTERNAL
    for tensor in outside:
        raw = _read(path, tensor, left)
        left -= len(raw)
        tensor.raw_data = raw
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
    return bytes(model.SerializeToString(deterministic=True))


def _read(path: Path, tensor: Any, left: int) -> bytes:
    """The bytes that one tensor refers to."""
    where = f"{path}: tensor {tensor.name!r}"
    told = {entry.key: entry.value for entry in tensor.external_data}
    file = _inside(where, path.parent, told.get("location", ""))
    start, size = (_number(where, key, told.get(key)) for key in ("offset", "length"))
    try:
        there = file.stat().st_size
        size = there - (start or 0) if size is None else size
        if (start or 0) + size > there or size < 0:
            raise InputError(
                where, f"{size} bytes from {start or 0} on in {file.name}", f"{there} bytes in all"
            )
        if size > left:
            raise InputError(where, f"weights of at most {MAX_EXTERNAL} bytes in all", "more")
        with file.open("rb") as stream:
            stream.seek(start or 0)
            return stream.read(size)
    except OSError as error:
        got = error.strerror or type(error).__name__
        raise InputError(
            where, f"the file {file.name} beside the model", got, "keep both files together"
        ) from None


def _inside(where: str, folder: Path, location: str) -> Path:
    """The file of a reference: a name below the model's folder, also where links lead."""
    named = PurePosixPath(location)
    file = (folder / named).resolve()
    if (
        not location
        or named.is_absolute()
        or ".." in named.parts
        or not file.is_relative_to(folder.resolve())
    ):
        remedy = "put the weights beside the model, or save the model as one file"
        raise InputError(where, "weights in a file inside the model's folder", repr(location), remedy)
    return file


def _number(where: str, key: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InputError(where, f"a number of bytes for {key}", repr(text[:40]))
    return int(text)
