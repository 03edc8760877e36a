"""The exporter interface: how a model of some library becomes an ONNX network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Export:
    """An ONNX model in bytes, and what the original says, so that both can be compared.

    `outputs` gives the original's outputs (n, m) for inputs (n, *shape); `predict` the positions of its classes (n,).
    Either may be missing. `classes` are the labels of the outputs and `features` the names of the inputs, in order.
    Features that are `categories` are read as positions in their lists of values, and cannot lie between two; one
    with an empty list is not read at all. `note` is what a user should know about the network. A regressor's outputs
    are `quantities`, which have no order of classes.
    """

    model: bytes
    name: str
    outputs: Callable[[Array], Array] | None = None
    predict: Callable[[Array], NDArray[np.int64]] | None = None
    classes: tuple[Any, ...] = ()
    features: tuple[str, ...] = ()
    categories: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    note: str = ""
    quantities: bool = False


class Exporter(ABC):
    """Turns models of one library into ONNX. Subclasses set `name` and write `accepts` and `export`."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()  # of files that `read` can load without running code from them

    @classmethod
    def available(cls) -> str | None:
        """Why models of this library cannot be exported here, or None; must not import heavy modules."""
        return None

    @classmethod
    @abstractmethod
    def accepts(cls, model: object) -> bool:
        """Whether it is a model of this library; must not import it: who has a model has imported it."""

    @abstractmethod
    def export(self, model: Any, shape: tuple[int, ...]) -> Export:
        """The network for one input of this shape (without the batch axis), in evaluation mode."""

    def read(self, path: Path) -> object:
        """The model in a file whose name ends in one of `suffixes`."""
        raise TypeError(f"exporter {self.name} reads no files")
