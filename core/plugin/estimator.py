"""The estimator interface: a typed question about numbers or sets, answered through the oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Answer, Closest, Witness
from verifolio.model.batch import Batch, Sighting
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.model.radius import RadiusBounds, RadiusStart
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.options import NoOptions

if TYPE_CHECKING:
    from typing import Self

    from verifolio.onnx_import.network import Network
    from verifolio.plugin.property import Reference

T = TypeVar("T")
P = ParamSpec("P")
Progress = Callable[[int, int, str], None]


class AskingLike(Protocol):
    """A query that was submitted; `index` is whatever the asker wants to remember it by."""

    query: Query
    index: int

    def done(self) -> bool: ...

    def answer(self, timeout: float | None = None) -> Answer:
        """The answer, waiting for it; raises what went wrong, or TimeoutError."""

    def cancel(self) -> None:
        """Stop working on it: the answer becomes CANCELLED unless there is one already."""


class OracleLike(Protocol):
    """What an estimator sees of the oracle: the only way to proofs, attacks and replays.

    Nothing of it runs in the caller's process (unless the executor is `inline`), and all of it obeys the
    portfolio, the limits and the seed that the user chose.
    """

    @property
    def timeout(self) -> float: ...

    @property
    def seed(self) -> int: ...

    @property
    def counts(self) -> Mapping[str, int]: ...

    def ask(self, query: Query, timeout: float | None = None, attacked: bool = False) -> Answer: ...

    def ask_many(
        self, queries: Iterable[Query], timeout: float | None = None, attacked: bool = False
    ) -> Iterator[tuple[int, Answer]]: ...

    def submit(
        self, query: Query, timeout: float | None = None, index: int = 0, attacked: bool = False
    ) -> AskingLike: ...

    def wait(self, askings: Sequence[Any], timeout: float | None = None) -> list[Any]: ...

    def closest(self, query: Query, ball: Ball, timeout: float | None = None) -> Closest: ...

    def judge(
        self, query: Query, x: NDArray[np.floating], timeout: float | None = None
    ) -> Witness | None: ...

    def attack(
        self,
        batch: Batch,
        seconds: float = ...,
        starts: Mapping[int, Sequence[NDArray[np.float32]]] | None = None,
    ) -> list[Answer]: ...

    def bound(self, batch: Batch, seconds: float = ...) -> list[Answer]: ...

    def neuron_bounds(self, query: Query, seconds: float = ...) -> Bounds | None: ...

    def replay(
        self, batch: Batch, points: Sequence[tuple[int, NDArray[np.floating]]], seconds: float = ...
    ) -> list[Sighting]: ...

    def radius_bounds(
        self,
        starts: Sequence[RadiusStart],
        tolerance: float,
        seconds: float,
        radii: int = ...,
        again: bool = ...,
    ) -> list[RadiusBounds]: ...

    def compute(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class NoRequest:
    """For estimators that need nothing but the oracle."""


@dataclass(frozen=True)
class Claim:
    """No input closer than `radius` to a reference fools networks whose weights add up to more than `most`.

    A network is fooled where another class's score is above the label's. With `averaged` it is the sum of the
    networks' scores, each times its weight, that no input fools.
    """

    radius: float
    weights: tuple[Fraction, ...]
    most: Fraction = Fraction(0)
    averaged: bool = False


def silent(done: int, total: int, message: str) -> None:
    """The progress listener that says nothing."""


class Estimator(ABC):
    """Turns one request into queries and monotone inference; never knows which backend answered.

    Subclasses set `name`, `Options` (how to search: a frozen dataclass), `Request` (what is asked: a frozen
    dataclass) and write `run`, which returns a frozen dataclass of theirs. Queries go through `oracle.ask`,
    `oracle.ask_many` or `oracle.submit`, batches through `oracle.attack` and `oracle.bound`; three kinds of answer
    are worth telling apart: SAT, UNSAT, and anything undecided.
    """

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    Request: ClassVar[type] = NoRequest

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @classmethod
    def available(cls) -> str | None:
        """Why this estimator cannot be used here, or None; must not import heavy modules."""
        return None

    @abstractmethod
    def run(self, request: Any, oracle: OracleLike, progress: Progress = silent) -> Any:
        """Answer the request; call `progress(done, total, message)` as work moves on."""

    @classmethod
    def about_labels(
        cls, networks: Sequence[Network], reference: Reference, seconds: float
    ) -> tuple[Self, Any] | None:
        """An instance and a request: do the networks keep the label around this input? None: not its question.

        With `claims`, this is how a fuzzer judges an estimator by points whose outputs it knows.
        """
        return None

    def claims(self, request: Any, result: Any) -> tuple[Claim, ...]:
        """What the result of such a request rules out."""
        return ()
