"""Inputs from plain files: npz, npy and CSV, values as stored (bytes are scaled to [0, 1])."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.data import NO_LABEL, Dataset, DataSource
from verifolio.errors import InputError

IMAGE_KEYS = ("images", "x", "X", "data", "inputs")
LABEL_KEYS = ("labels", "y", "targets", "label")


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
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {k: np.asarray(file[k]) for k in file.files}
        except (OSError, ValueError, EOFError) as error:
            raise InputError(str(path), "an npz file of plain arrays", str(error), "save it again") from None
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
        try:
            images = np.load(path, allow_pickle=False)
            labels = np.load(beside, allow_pickle=False) if beside.is_file() else None
        except (OSError, ValueError, EOFError) as error:
            raise InputError(str(path), "an npy file of a plain array", str(error), "save it again") from None
        return make_dataset(path, split, images, labels)


class Csv(FileSource):
    """One input per line. A header may name the column `label`; without a header the label comes first."""

    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz")

    def read(self, path: Path, split: str) -> Dataset:
        rows = _csv_rows(path)
        header = [cell.strip().lower() for cell in rows[0][1]]
        column: int | None = 0
        if not all(_is_number(cell) for cell in header):
            rows = rows[1:]
            column = next((i for i, cell in enumerate(header) if cell in LABEL_KEYS), None)
        table = _numbers(path, rows, len(header))
        if column is None:
            return make_dataset(path, split, table, None)
        return make_dataset(path, split, np.delete(table, column, axis=1), table[:, column])


def _csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Non-empty lines with their numbers."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(str(path), "a CSV file in UTF-8", str(error), "save it again") from None
    rows = [(i, row) for i, row in enumerate(csv.reader(text.splitlines()), start=1) if row]
    if not rows:
        raise InputError(str(path), "at least one line of values", "an empty file", "check the path")
    return rows


def _numbers(path: Path, rows: list[tuple[int, list[str]]], width: int) -> NDArray[np.float64]:
    for line, row in rows:
        bad = next((i for i, cell in enumerate(row) if not _is_number(cell)), None)
        if bad is not None:
            raise InputError(f"{path}:{line}:{bad + 1}", "a number", repr(row[bad]), "correct the cell")
        if len(row) != width:
            raise InputError(f"{path}:{line}", f"{width} values", str(len(row)), "every line needs as many")
    return np.array([[float(c) for c in row] for _, row in rows], np.float64).reshape(len(rows), width)


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
