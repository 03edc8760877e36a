"""The estimator interface: a typed question about numbers or sets, answered through the oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from verifolio.plugin.verifier import NoOptions

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class NoRequest:
    """For estimators that need nothing but the oracle."""


def silent(done: int, total: int, message: str) -> None:
    """The progress listener that says nothing."""


class Estimator(ABC):
    """Turns one request into queries and monotone inference; never knows which backend answered.

    Subclasses set `name`, `Options` (how to search: a frozen dataclass), `Request` (what is asked: a frozen
    dataclass) and write `run`, which returns a frozen dataclass of theirs. Queries go through `oracle.ask`,
    `oracle.ask_many` or `oracle.submit`; three kinds of answer are worth telling apart: SAT, UNSAT, and
    anything undecided.
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
    def run(self, request: Any, oracle: Oracle, progress: Progress = silent) -> Any:
        """Answer the request; call `progress(done, total, message)` as work moves on."""
