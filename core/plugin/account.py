"""The reader interface: what a store says about a run, as `report`, `watch` and `show` tell it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.plugin.section import Material

Array = NDArray[np.float64]


@dataclass(frozen=True)
class InputResult:
    """What is known about one input (or instance) of a run.

    `status` is proved, refuted, open, misclassified, error, or closed for a bracket that is as narrow as asked for.
    `lower` and `upper` are the two sides of a critical radius, where one was searched (`upper` is None while no
    counterexample is known); `epsilon` is the radius that a verdict is about. `when` is seconds since 1970.
    """

    network: str
    data: str
    index: str
    status: str
    lower: float | None = None
    upper: float | None = None
    epsilon: float | None = None
    label: str = ""
    predicted: str = ""
    verifier: str = ""
    seconds: float = 0.0
    reused: bool = False
    flags: tuple[str, ...] = ()
    reason: str = ""
    when: float = 0.0

    @property
    def place(self) -> tuple[str, str, str]:
        """Which input of which data on which network."""
        return self.network, self.data, self.index


@dataclass(frozen=True, eq=False)
class Example:
    """A counterexample `x` (flat), and the input `near` it where that was kept, in the units of the data.

    `shape` is that of one input; `names` are those of its values, where they have any. `low` and `high` are the legal
    values, which a picture shows as black and white.
    """

    network: str
    data: str
    index: str
    x: Array
    near: Array | None = None
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    label: str = ""
    becomes: str = ""
    distance: float | None = None
    epsilon: float | None = None
    outputs: tuple[float, ...] = ()
    verifier: str = ""
    when: float = 0.0

    @property
    def place(self) -> tuple[str, str, str]:
        """Which input of which data on which network."""
        return self.network, self.data, self.index


@dataclass(frozen=True)
class Event:
    """One answer on the way: when it was there, who gave it after how long, and what it says."""

    when: float
    verifier: str
    verdict: str
    seconds: float
    network: str = ""
    index: str = ""
    radius: float | None = None
    reused: bool = False


@dataclass(frozen=True)
class Asked:
    """What the reader of a report asked for: a run by name, radii to count at, the step of a grid."""

    run: str = ""
    thresholds: tuple[float, ...] = ()
    step: float = 0.0


@dataclass(frozen=True, eq=False)
class Account:
    """Everything that is told about one run.

    `networks` are names and hashes, `thresholds` the radii at which networks are counted and compared, `provenance`
    facts by name. `material` makes what sections of a report are made of, in a folder; `sections` are those that
    the report has unless others are asked for. `total` is how many inputs there will be, 0 where nobody knows.
    """

    kind: str
    run: str = ""
    networks: Mapping[str, str] = field(default_factory=dict)
    results: tuple[InputResult, ...] = ()
    examples: tuple[Example, ...] = ()
    events: tuple[Event, ...] = ()
    alarms: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    material: Callable[[Path], Material] | None = None
    sections: tuple[str, ...] = ()
    total: int = 0

    @property
    def brackets(self) -> bool:
        """Whether it is about critical radii."""
        return any(r.lower is not None for r in self.results)


class Reader(ABC):
    """Reads the runs of one kind back. Subclasses set `name`, what they read, and write `read`."""

    name: ClassVar[str]
    tables: ClassVar[
        tuple[str, ...]
    ] = ()  # of a store; a store that has rows in the first is for this reader
    columns: ClassVar[tuple[frozenset[str], ...]] = ()  # of tables in files (CSV) that it reads as well
    general: ClassVar[bool] = False  # asked only about stores that no other reader reads

    @classmethod
    def available(cls) -> str | None:
        """Why it cannot be used here, or None; must not import heavy modules."""
        return None

    @abstractmethod
    def read(self, sources: Sequence[Path], asked: Asked) -> Account | None:
        """The run that is asked for (by default the last one) in these stores and tables, or None."""
