"""CIFAR-10 from its binary version: records of one label byte and 3072 pixel bytes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from verifolio.errors import InputError
from verifolio.files.bounded import read_bytes
from verifolio.plugin.data_source import Dataset, DataSource, data_folders

RECORD = 1 + 3 * 32 * 32  # a label and an image, as the data's page has it
LARGEST = 10**6 * RECORD  # a hundred times the pictures of a file
FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}


class Cifar10(DataSource):
    """Colour pictures, 3 x 32 x 32, ten classes."""

    name: ClassVar[str] = "cifar10"

    @classmethod
    def find(cls, file: str) -> Path | None:
        folders = [p for f in data_folders(cls.name) for p in (f, f / "cifar-10-batches-bin")]
        return next((f / file for f in folders if (f / file).is_file()), None)

    @classmethod
    def available(cls) -> str | None:
        if cls.find("test_batch.bin") or cls.find("data_batch_1.bin"):
            return None
        looked = ", ".join(map(str, data_folders(cls.name)))
        return (
            f"no CIFAR-10 files in {looked}; unpack its binary version (test_batch.bin) into "
            f"$VERIFOLIO_DATA/{cls.name}/"
        )

    def load(self, split: str) -> Dataset:
        records = np.concatenate([self._records(split, file) for file in FILES[split]])
        labels = records[:, 0].astype(np.int64)
        return Dataset(self.name, split, records[:, 1:], labels, (3, 32, 32), 10, scale=255.0)

    def _records(self, split: str, file: str) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        path = self.find(file)
        if path is None:
            looked = ", ".join(map(str, data_folders(self.name)))
            where = f"data set {self.name}:{split}"
            raise InputError(
                where, file, f"no such file in {looked}", f"put it into $VERIFOLIO_DATA/{self.name}/"
            )
        data = np.frombuffer(read_bytes(path, "records of CIFAR-10", LARGEST), np.uint8)
        if len(data) == 0 or len(data) % RECORD:
            raise InputError(
                str(path),
                f"records of {RECORD} bytes",
                f"{len(data)} bytes",
                "fetch the binary version again",
            )
        return data.reshape(-1, RECORD)
