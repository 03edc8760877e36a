"""MNIST and Fashion-MNIST from their original idx files, compressed or not."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.files.bounded import read_bytes
from verifolio.plugin.data_source import Dataset, DataSource, data_folders

PREFIX = {"train": "train", "test": "t10k"}
UNSIGNED_BYTE = 0x08  # the code for bytes in MNIST's file format
LARGEST = 1 << 30  # bytes of a file, decompressed; the largest of MNIST has 47 MB


class IdxSource(DataSource):
    """A pair of idx files per split, in one of the known folders or in a `data` folder below it."""

    classes: ClassVar[int] = 10

    @classmethod
    def folders(cls) -> Iterable[Path]:
        for folder in data_folders(cls.name):
            yield from (folder, folder / "data", folder / "package" / "data", folder / "raw")

    @classmethod
    def find(cls, split: str, kind: str) -> Path | None:
        """The file of a split; kind is `images-idx3` or `labels-idx1`."""
        dotted = kind.replace("-idx", ".idx")
        for folder in cls.folders():
            for stem in (f"{PREFIX[split]}-{kind}-ubyte", f"{PREFIX[split]}-{dotted}-ubyte"):
                for path in (folder / stem, folder / f"{stem}.gz"):
                    if path.is_file():
                        return path
        return None

    @classmethod
    def available(cls) -> str | None:
        if any(cls.find(s, "images-idx3") and cls.find(s, "labels-idx1") for s in PREFIX):
            return None
        looked = ", ".join(map(str, data_folders(cls.name)))
        return (
            f"no {cls.name} idx files in {looked}; put train-images-idx3-ubyte[.gz] and its three companions "
            f"into $VERIFOLIO_DATA/{cls.name}/"
        )

    def load(self, split: str) -> Dataset:
        images = read_idx(self._path(split, "images-idx3"))
        labels = read_idx(self._path(split, "labels-idx1"))
        shape = (1, *images.shape[1:])
        flat = images.reshape(len(images), -1)
        return Dataset(self.name, split, flat, labels.astype(np.int64), shape, self.classes, scale=255.0)

    def _path(self, split: str, kind: str) -> Path:
        path = self.find(split, kind)
        if path is None:
            looked = ", ".join(map(str, data_folders(self.name)))
            raise InputError(
                f"data set {self.name}:{split}",
                f"{PREFIX[split]}-{kind}-ubyte[.gz]",
                f"no such file in {looked}",
                f"put it into $VERIFOLIO_DATA/{self.name}/",
            )
        return path


class Mnist(IdxSource):
    """Handwritten digits, 28 x 28."""

    name: ClassVar[str] = "mnist"


class FashionMnist(IdxSource):
    """Pictures of clothes, 28 x 28."""

    name: ClassVar[str] = "fashion-mnist"


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes as an array of the shape its header names."""
    data = read_bytes(path, "a readable idx file", LARGEST)
    broken = InputError(str(path), "an idx file of unsigned bytes", "another header", "fetch the file again")
    if len(data) < 4 or data[:3] != bytes((0, 0, UNSIGNED_BYTE)) or len(data) < 4 + 4 * data[3]:
        raise broken
    shape: tuple[Any, ...] = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    start = 4 + 4 * data[3]
    count = int(np.prod(shape, dtype=np.float64))
    if count > LARGEST or len(data) - start != count:
        raise InputError(
            str(path), f"{count} values, as its header says", f"{len(data) - start}", "fetch the file again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
