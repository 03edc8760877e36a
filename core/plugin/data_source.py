"""Data sets and where they come from: what a plugin that loads data implements."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError

Array = NDArray[np.float64]
NO_LABEL = -1  # no class has this number
SYSTEM = Path("/usr/share")  # where packages of the system put data sets


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels of one split.

    `raw` has one flat input per row, in the type it is stored in, and the values are `raw / scale`; `shape`
    is that of one input. Labels are class numbers, -1 where there are none; `classes` counts the classes.
    `features` are the names of the values and `class_names` those of the classes, where they have any. `categories`
    has the values of features that are no numbers, by position; an input has the place of its value there.
    """

    name: str
    split: str
    raw: NDArray[Any]
    labels: NDArray[np.int64]
    shape: tuple[int, ...]
    classes: int
    scale: float = 1.0
    features: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    categories: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = int(np.prod(self.shape))
        if self.raw.ndim != 2 or self.raw.shape[1] != size or len(self.raw) != len(self.labels):
            raise InputError(
                f"{self.name}:{self.split}",
                f"one row of {size} values for each of the {len(self.labels)} labels",
                f"an array of shape {self.raw.shape}",
                "check the file the data came from",
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> int:
        """How many values one input has."""
        return int(self.raw.shape[1])

    @cached_property
    def sha256(self) -> str:
        """A hash of the inputs and labels; names do not matter."""
        digest = hashlib.sha256(f"{self.raw.dtype} {self.raw.shape} {self.shape} {self.scale}".encode())
        digest.update(np.ascontiguousarray(self.raw).tobytes() + self.labels.tobytes())
        return digest.hexdigest()

    @cached_property
    def images(self) -> Array:
        """All inputs, flat, as float64."""
        return np.asarray(self.raw, np.float64) / self.scale

    def image(self, index: int) -> Array:
        """One input, flat, as float64; converts nothing else."""
        return np.asarray(self.raw[index], np.float64) / self.scale

    def origin(self, index: int) -> dict[str, str]:
        """Where an input comes from, for people: what a `Reference` says about itself."""
        name = f"{self.name}:{self.split}" if self.split else self.name
        shape = "x".join(map(str, self.shape))
        found = {"data": name, "index": str(index), "shape": shape, "sha256": self.sha256}
        lists = {"names": self.features, "classes": self.class_names}
        return found | {key: json.dumps(list(names)) for key, names in lists.items() if names}

    def take(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> Dataset:
        """The inputs at these positions, in this order."""
        index = np.asarray(indices, np.int64)
        return replace(self, raw=self.raw[index], labels=self.labels[index])


class DataSource(ABC):
    """Where inputs come from: a named set, a kind of file (`suffixes`), or both."""

    name: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    default_split: ClassVar[str] = "test"
    suffixes: ClassVar[tuple[str, ...]] = ()
    reads_folders: ClassVar[bool] = False  # whether `read` takes a folder too

    @classmethod
    def available(cls) -> str | None:
        """Why the set cannot be loaded here (where it was looked for and what to do), or None."""
        return None

    @abstractmethod
    def load(self, split: str) -> Dataset:
        """The inputs of one split."""

    def read(self, path: Path, split: str) -> Dataset:
        """The inputs in a file whose name ends in one of `suffixes`, or in a folder."""
        raise TypeError(f"data source {self.name} reads no files")


def data_folders(name: str) -> list[Path]:
    """Where a set's files may lie: `$VERIFOLIO_DATA/name`, and the shared folders of the system."""
    root = os.environ.get("VERIFOLIO_DATA", "")
    own = [Path(root) / name] if root else []
    shared = [SYSTEM / p for p in (f"datasets/{name}", f"dataset-{name}", f"dataset/{name}", name)]
    return [*own, *shared]
