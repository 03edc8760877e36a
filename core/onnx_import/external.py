"""External data: the tensors that a model keeps in files beside it, put back into the model, within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verifolio.errors import InputError

MAX_EXTERNAL = 1 << 30  # bytes of all such tensors together; a protobuf message ends at twice that
_KEY = b"\x0a\x08location\x12"  # how the encoding of an external tensor names its file
_REMEDY = "keep the data beside the model, or save the model in one file"


def embedded(path: Path, data: bytes) -> bytes:
    """The model's bytes with all external data in place; the same bytes where there is none."""
    if _KEY not in data:
        return data
    import onnx

    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # no model: whoever reads it says so
        return data
    found = [t for t in _tensors(model) if len(t.external_data)]
    if not found:
        return data
    total = 0
    for tensor in found:
        total += _embed(path, tensor, MAX_EXTERNAL - total)
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except Exception as error:  # protobuf has a limit of its own
        raise InputError(str(path), "a model of less than 2 GB", f"{error}", _REMEDY) from None


def _embed(path: Path, tensor: Any, most: int) -> int:
    """Read one tensor's bytes, at most so many; gives their number."""
    facts = {entry.key: entry.value for entry in tensor.external_data}
    file = _inside(path, facts.get("location", ""))
    start, length = _extent(path, facts, file)
    if length > most:
        got = f"more in {file.name}"
        raise InputError(str(path), f"at most {MAX_EXTERNAL} bytes of external data", got, _REMEDY)
    try:
        with file.open("rb") as stream:
            stream.seek(start)
            tensor.raw_data = stream.read(length)
    except OSError as error:
        got = error.strerror or type(error).__name__
        raise InputError(str(path), f"readable external data {file.name}", got, _REMEDY) from None
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    return length


def _inside(path: Path, location: str) -> Path:
    """The file of a location, which has to lie in the model's folder, links followed."""
    folder = path.parent.resolve()
    try:
        file = (folder / location).resolve(strict=True)
        known = file.is_relative_to(folder) and file.is_file() and file != path.resolve()
    except (OSError, ValueError, RuntimeError):  # absent, a zero byte, a circle of links
        known = False
    if not location or Path(location).is_absolute() or not known:
        raise InputError(str(path), "external data in a file of the model's folder", repr(location), _REMEDY)
    return file


def _extent(path: Path, facts: Mapping[str, str], file: Path) -> tuple[int, int]:
    """Where the bytes begin and how many there are."""
    size = file.stat().st_size
    try:
        start = int(facts.get("offset", "0"))
        length = int(facts.get("length", str(size - start)))
    except ValueError:
        start = length = -1
    if start < 0 or length < 0 or start + length > size:
        got = f"offset {facts.get('offset')!r}, length {facts.get('length')!r} of {size}"
        raise InputError(str(path), f"an extent inside {file.name}", got, _REMEDY)
    return start, length


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors that the model stores, in graphs, attributes and functions."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            nodes.extend(graph.node)
            continue
        for attribute in nodes.pop().attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
            graphs.extend([attribute.g] if attribute.HasField("g") else [])
            graphs.extend(attribute.graphs)
