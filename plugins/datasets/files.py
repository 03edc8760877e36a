"""Inputs from plain files: npz, npy and CSV, values as stored (bytes are scaled to [0, 1])."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.files.arrays import read_array, read_arrays
from verifolio.files.bounded import open_file, rows_of, unreadable
from verifolio.plugin.data_source import NO_LABEL, Dataset, DataSource

IMAGE_KEYS = ("images", "x", "X", "data", "inputs")
LABEL_KEYS = ("labels", "y", "targets", "label", "target", "class")
MAX_TEXT = 1 << 28  # bytes of a CSV file, decompressed; MNIST's training set has 110 MB
MAX_LINE = 1 << 22  # bytes of one line; an ImageNet picture has 0.6 MB


class FileSource(DataSource):
    """Only reads files; there is nothing to load by name."""

    splits: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def available(cls) -> str | None:
        return f"{cls.name} is a kind of file; give a path ending in {' or '.join(cls.suffixes)}"

    def load(self, split: str) -> Dataset:
        raise InputError(self.name, "a path", repr(self.name), f"give a path ending in {self.suffixes[0]}")


class Npz(FileSource):
    """Arrays `images` and `labels` (or x and y), one pair per split as x_test, y_test or test_images."""

    name: ClassVar[str] = "npz"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    def read(self, path: Path, split: str) -> Dataset:
        arrays = read_arrays(path, "an npz file of plain arrays")
        images = _pick(arrays, IMAGE_KEYS, split)
        if images is None:
            wanted = f"an array named {' or '.join(_names(IMAGE_KEYS, split))}"
            raise InputError(
                str(path), wanted, ", ".join(arrays) or "no arrays", "rename it or choose a split"
            )
        return make_dataset(path, split, images, _pick(arrays, LABEL_KEYS, split))


class Npy(FileSource):
    """One array of inputs; labels come from `<stem>_labels.npy` beside it, if there is one."""

    name: ClassVar[str] = "npy"
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)

    def read(self, path: Path, split: str) -> Dataset:
        beside = path.with_name(f"{path.stem}_labels.npy")
        images = read_array(path, "an npy file of a plain array")
        labels = read_array(beside, "an npy file of labels") if beside.is_file() else None
        return make_dataset(path, split, images, labels)


class Csv(FileSource):
    """One input per line. A header names the features and the column `label` (or FILE.csv:COLUMN says which it is).

    Labels may be names. Without a header the label comes first.
    """

    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz")

    def read(self, path: Path, split: str) -> Dataset:
        try:
            with open_file(path) as stream:
                header, column, table, texts = _read_csv(
                    path, rows_of(_lines(path, stream), path, MAX_LINE), split
                )
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(path, "a CSV file", error) from None
        features = tuple(c for k, c in enumerate(header or ()) if k != column)
        if column is None:
            return replace(make_dataset(path, "", table, None), features=features)
        labels, names = _named_labels(texts)
        made = make_dataset(path, "", np.delete(table, column, axis=1), labels)
        return replace(made, features=features, class_names=names, classes=len(names) or made.classes)


def _lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    """Lines of text, each and all of them of bounded length."""
    size = 0
    for number in count(1):
        line = stream.readline(MAX_LINE + 1)
        size += len(line)
        if len(line) > MAX_LINE or size > MAX_TEXT:
            expected = f"at most {MAX_TEXT} bytes, {MAX_LINE} in a line"
            raise InputError(f"{path}:{number}", expected, "more", "save the data as .npz")
        if not line:
            return
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            got = f"byte 0x{line[error.start]:02x}"
            raise InputError(f"{path}:{number}", "UTF-8 text", got, "save the file as UTF-8") from None


def _named_labels(texts: list[str]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Class numbers; where the labels are names, their places in the sorted list of names."""
    if all(map(_is_number, texts)):
        return np.array(texts, np.float64), ()
    names = tuple(sorted(set(texts)))
    position = {name: k for k, name in enumerate(names)}
    return np.array([position[t] for t in texts], np.int64), names


def _label_column(path: Path, header: list[str] | None, wanted: str) -> int | None:
    """Where the labels are: the column that the user names, one that is called so, or the first without a header."""
    if header is None:
        return 0
    if wanted:
        if wanted not in header:
            raise InputError(
                str(path), f"a column among {', '.join(header)}", repr(wanted), "FILE.csv:COLUMN"
            )
        return header.index(wanted)
    return next((k for k, name in enumerate(header) if name.lower() in LABEL_KEYS), None)


def _read_csv(
    path: Path, rows: Iterator[tuple[int, list[str]]], wanted: str
) -> tuple[list[str] | None, int | None, NDArray[np.float64], list[str]]:
    """The names of the columns, if the first line has any, the one of the labels, the numbers, and the labels."""
    first = next(rows, None)
    if first is None:
        raise InputError(str(path), "at least one line of values", "an empty file", "check the path")
    width = len(first[1])
    named = not all(_is_number(cell) for cell in first[1])
    header = [c.strip() for c in first[1]] if named else None
    column = _label_column(path, header, wanted)
    values, texts = array("d"), list[str]()  # grows without keeping the texts of the cells
    for line, row in rows if named else chain((first,), rows):
        if column is not None and column < len(row):
            texts.append(row[column].strip())
            row[column] = "0"
        try:
            values.extend(map(float, row))
        except ValueError:
            raise _bad_cell(path, line, row) from None
        if len(row) != width:
            raise InputError(f"{path}:{line}", f"{width} values", str(len(row)), "every line needs as many")
    table = np.frombuffer(values, np.float64) if values else np.zeros(0)
    return header, column, table.reshape(-1, width), texts


def _bad_cell(path: Path, line: int, row: list[str]) -> InputError:
    bad = next(i for i, cell in enumerate(row) if not _is_number(cell))
    remedy = (
        "correct the cell; labels of another name are FILE.csv:COLUMN; for a model that encodes texts, "
        "read the table with pandas and give the frame"
    )
    return InputError(f"{path}:{line}:{bad + 1}", "a number", repr(row[bad][:40]), remedy)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _names(keys: tuple[str, ...], split: str) -> list[str]:
    return [n for k in keys for n in ((f"{k}_{split}", f"{split}_{k}") if split else (k,))]


def _pick(arrays: Mapping[str, NDArray[Any]], keys: tuple[str, ...], split: str) -> NDArray[Any] | None:
    """The array of one of these names; without a split, the test split where only splits exist."""
    for name in (*_names(keys, split), *(() if split else _names(keys, "test"))):
        if name in arrays:
            return arrays[name]
    return None


def make_dataset(path: Path, split: str, images: NDArray[Any], labels: NDArray[Any] | None) -> Dataset:
    """A data set from arrays of any numeric type; the first axis counts the inputs."""
    if images.ndim < 2 or images.dtype.kind not in "fiub" or images.size == 0:
        got = f"{images.dtype} of shape {images.shape}"
        raise InputError(str(path), "numbers with one input per row", got, "save inputs along the first axis")
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    flat = images.reshape(len(images), -1)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise InputError(str(path), "finite values", "nan or infinity", "clean the data")
    numbers = np.full(len(images), NO_LABEL) if labels is None else np.asarray(labels).ravel()
    whole = numbers.astype(np.int64) if numbers.dtype.kind in "fiub" else np.full(len(numbers), -2)
    if len(whole) != len(flat) or (whole != numbers).any() or (whole < NO_LABEL).any():
        raise InputError(
            str(path), f"{len(flat)} class numbers", "other labels", "labels count classes from 0"
        )
    classes = int(whole.max(initial=NO_LABEL)) + 1
    return Dataset(path.name, split or "all", flat, whole, images.shape[1:], classes, scale)
