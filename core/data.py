"""Data sets by name or by path: the one meaning of `--data SPEC` and `--indices`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError, near
from verifolio.plugin.data_source import Dataset, DataSource
from verifolio.plugin.manager import Plugins, current_plugins

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network

Array = NDArray[np.float64]
LAYOUTS = {"hwc": (0, 3, 1, 2), "chw": (0, 2, 3, 1)}  # of the data: how to turn it into the other one


def load_data(spec: str, plugins: Plugins | None = None) -> Dataset:
    """The data set that `spec` names: `name`, `name:split`, a path, or `path:split`."""
    registry = (current_plugins() if plugins is None else plugins).datasets
    if Path(spec).is_file():
        return _read_file(Path(spec), "", list(registry))
    if Path(spec).is_dir() and spec not in registry:
        return _read_folder(Path(spec), list(registry))
    name, _, split = spec.partition(":")
    if name in registry:
        why = registry.unavailable(name)
        if why is not None:
            raise InputError(f"data set {name}", "its files", why)
        source = registry.get(name)()
        return source.load(_known_split(source, split))
    path, _, split = spec.rpartition(":")
    if path and Path(path).is_file():
        return _read_file(Path(path), split, list(registry))
    names = ", ".join(sorted(s.name for s in registry if not s.suffixes))
    endings = sorted(e for s in registry for e in s.suffixes)
    for missing in (spec, path):
        if missing.endswith(tuple(endings)):
            raise InputError(f"data {spec!r}", f"a file {missing}", "no such file", "check the path")
    raise InputError(
        f"data {spec!r}",
        f"one of {names}, a folder, or a file ending in {', '.join(endings)}",
        "neither",
        "write NAME, NAME:SPLIT, PATH or PATH:SPLIT"
        + near(name, [s.name for s in registry if not s.suffixes]),
    )


def in_layout(data: Dataset, layout: str) -> Dataset:
    """The data with channels first where they were last (`hwc`), last where they were first (`chw`)."""
    if not layout:
        return data
    if layout not in LAYOUTS:
        raise InputError("--layout", "hwc or chw", repr(layout))
    if len(data.shape) != 3:
        raise InputError("--layout", "inputs with three axes", _shape(data.shape), "leave the option out")
    turned = data.raw.reshape(-1, *data.shape).transpose(LAYOUTS[layout])
    return replace(data, raw=turned.reshape(len(data), -1), shape=turned.shape[1:])


def check_shape(data: Dataset, network: Network) -> None:
    """Refuse inputs whose axes are not the network's; vectors fit anything of their length, and the reverse.

    Axes of length 1 do not count, because channels and batches of 1 come and go.
    """
    _check_class_names(data, network)
    tensors = network.inputs
    wanted = _axes(tensors[0].shape) if len(tensors) == 1 else (network.input_size,)
    got = _axes(data.shape)
    if math.prod(got) == math.prod(wanted) and (got == wanted or min(len(got), len(wanted)) <= 1):
        return
    turned = {name: tuple(got[k - 1] for k in order[1:]) for name, order in LAYOUTS.items() if len(got) == 3}
    fitting = [name for name, axes in turned.items() if axes == wanted]
    remedy = f"--layout {fitting[0]} turns the axes" if fitting else "use the data this network was made for"
    expected = f"inputs of shape {_shape(wanted)} for {network.path.name}"
    raise InputError(f"data {data.name}:{data.split}", expected, _shape(got), remedy)


def _check_class_names(data: Dataset, network: Network) -> None:
    """Refuse names of classes that may stand for other outputs: they are in order only if none is missing."""
    names, outputs = data.class_names, network.output_size
    if names and len(names) != outputs:
        expected = f"labels that name all {outputs} classes of {network.path.name}, or class numbers"
        remedy = "give the labels as numbers, the places of the classes among the outputs"
        raise InputError(
            f"data {data.name}:{data.split}", expected, f"{len(names)}: {', '.join(names[:5])}", remedy
        )


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1) or (1,)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def parse_range(text: str) -> tuple[float, float]:
    """LOW,HIGH, the legal values of inputs."""
    try:
        low, high = (float(v) for v in text.split(","))
    except ValueError:
        raise InputError("--range", "two numbers LOW,HIGH", repr(text)) from None
    if not low < high:  # nan too
        raise InputError("--range", "LOW,HIGH with LOW below HIGH", repr(text))
    return low, high


def check_range(data: Dataset, indices: Sequence[int], low: Array | float, high: Array | float) -> None:
    """Refuse inputs with values outside the legal range: nothing that is said around them would make sense.

    The range is one for all values, or one for each.
    """
    lows, highs = (np.broadcast_to(np.asarray(side, np.float64), (data.size,)) for side in (low, high))
    for i in indices:
        x = data.image(i)
        wrong = np.flatnonzero(~((x >= lows) & (x <= highs)))
        if len(wrong):
            k = wrong[0]
            raise InputError(
                f"data {data.name}:{data.split}, input {i}",
                f"values from {lows[k]:g} to {highs[k]:g}",
                f"{x[k]:g} at {data.features[k] if data.features else f'position {k}'}",
                _range_remedy(data, low, high),
            )


def _range_remedy(data: Dataset, low: Array | float, high: Array | float) -> str:
    if isinstance(low, np.ndarray) or isinstance(high, np.ndarray):
        return "give the feature another range, or none"
    least = min(low, float(np.asarray(data.raw.min(), np.float64)) / data.scale)
    most = max(high, float(np.asarray(data.raw.max(), np.float64)) / data.scale)
    return f"--range {least:g},{most:g} (range=({least:g}, {most:g}) in Python), or scale the data"


def _read_file(path: Path, split: str, sources: list[type[DataSource]]) -> Dataset:
    for cls in sources:
        if path.name.endswith(cls.suffixes) and cls.suffixes:
            return cls().read(path, split)
    endings = ", ".join(sorted(e for cls in sources for e in cls.suffixes))
    raise InputError(str(path), f"a file ending in {endings}", f"{path.name!r}", "convert the data")


def _read_folder(path: Path, sources: list[type[DataSource]]) -> Dataset:
    for cls in sources:
        if cls.reads_folders:
            return cls().read(path, "")
    raise InputError(str(path), "a file", "a folder", "no installed data source reads folders")


def _known_split(source: DataSource, split: str) -> str:
    if split and split not in source.splits:
        raise InputError(
            f"data set {source.name}", f"a split among {', '.join(source.splits)}", repr(split), "choose one"
        )
    return split or source.default_split


def parse_indices(text: str, size: int | None = None) -> list[int]:
    """Positions from text such as `0:100`, `5`, `0:10,20:30:2`; `size` closes open ranges and is a limit.

    Repeated positions are kept once, in the order of their first mention.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        found.update(dict.fromkeys(_indices_of(part.strip(), text, size)))
    if not found:
        raise InputError(f"indices {text!r}", "at least one input", "none", "write ranges like 0:20")
    return list(found)


def _indices_of(part: str, text: str, size: int | None) -> range:
    remedy = "write positions and ranges like 0:100,105"
    fields = part.split(":")
    try:
        numbers = [int(f) if f.strip() else None for f in fields]
    except ValueError:
        raise InputError(f"indices {text!r}", "whole numbers", repr(part), remedy) from None
    if not part or len(numbers) > 3 or any(n is not None and n < 0 for n in numbers):
        raise InputError(
            f"indices {text!r}", "numbers from 0, start:stop or start:stop:step", repr(part), remedy
        )
    if len(numbers) == 1:
        first = numbers[0] or 0
        span = range(first, first + 1)
    else:
        stop = size if numbers[1] is None else numbers[1]
        if stop is None or (len(numbers) == 3 and numbers[2] == 0):
            raise InputError(f"indices {text!r}", "an end and a step above 0", repr(part), remedy)
        span = range(numbers[0] or 0, stop, (numbers[2] if len(numbers) == 3 else None) or 1)
    if size is not None and len(span) and span[-1] >= size:
        raise InputError(f"indices {text!r}", f"positions below {size}", str(span[-1]), remedy)
    return span
