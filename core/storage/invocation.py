"""The call of a command that a store remembers: its name, its options, the line that repeats it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Invocation:
    """One call of a command."""

    command: str
    options: Mapping[str, object]
    line: str
    id: str = field(default_factory=lambda: os.urandom(6).hex())


ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())  # of the command line, as typed
INVOKED: ContextVar[Invocation | None] = ContextVar("invocation", default=None)


@contextmanager
def invoked(command: str, options: Mapping[str, object]) -> Iterator[None]:
    """Around the work of a command: the stores that it opens remember it."""
    line = shlex.join(["verifolio", *(ARGUMENTS.get() or (command,))])
    token = INVOKED.set(Invocation(command, dict(options), line))
    try:
        yield
    finally:
        INVOKED.reset(token)
