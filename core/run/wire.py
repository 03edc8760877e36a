"""What travels between driver, supervisor and worker, and how it is packed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verifolio.run.job import End, Limits, Link, SendError

# Fields of the page of doubles that a supervisor shares with its worker.
NUMBER, SECONDS, STARTED, DEADLINE, FINISHED, CANCEL = range(6)
PAGE_BYTES = 4096  # one page of memory, shared with the worker

# Cores, function, payload.
Task = tuple[int, Callable[[Any, Link], Any], object]


@dataclass(frozen=True)
class Message:
    """Worker to driver: an intermediate message follows, packed."""


@dataclass(frozen=True)
class Final:
    """Worker to driver: the function has returned or raised; its packed value follows.

    `tidy` says that, as far as the worker can tell, it may be used again.
    """

    end: End
    detail: str
    seconds: float
    tidy: bool


@dataclass(frozen=True)
class Start:
    """Driver to supervisor: have a worker ready for job `number`. Answered by `Ready`."""

    number: int
    limits: Limits


@dataclass(frozen=True)
class Ready:
    """Supervisor to driver: the worker waits; if `fresh`, a handle of its channel follows."""

    fresh: bool


@dataclass(frozen=True)
class Cancel:
    """Driver to supervisor: stop job `number`, gently first."""

    number: int


@dataclass(frozen=True)
class Answered:
    """Driver to supervisor: the answer of job `number` is here; keep the worker if `tidy`."""

    number: int
    tidy: bool


@dataclass(frozen=True)
class Lost:
    """Driver to supervisor: the channel of job `number` is closed or speaks nonsense."""

    number: int


@dataclass(frozen=True)
class Quit:
    """Driver to supervisor: kill everything and leave."""


@dataclass(frozen=True)
class Report:
    """Supervisor to driver: job `number` is over and, unless `alive`, so is its worker."""

    number: int
    end: End
    detail: str
    seconds: float
    peak_memory: int
    log: str
    alive: bool


def pack(value: object, what: str) -> bytes:
    """Pickle a value; anything that goes wrong, in whatever `__reduce__`, becomes a SendError."""
    try:
        # Not ForkingPickler: torch registers tensors in shared memory there, which die with the worker.
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        message = f"the {what} of type {type(value).__name__} cannot be pickled: {describe(error)}"
        raise SendError(message) from error


def unpack(body: bytes, what: str) -> object:
    """Undo `pack`; the bytes come from a process of ours, never from a file."""
    try:
        return pickle.loads(body)  # noqa: S301
    except Exception as error:
        message = f"the {what} cannot be unpickled: {describe(error)}"
        raise SendError(message) from error


def describe(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")
