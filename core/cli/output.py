"""Output for people and for programs: plain and untruncated when piped, JSON on request."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """One JSON object on one line; numbers JSON cannot hold become text or null."""
    say(json.dumps(plain(value)))


def plain(value: Any) -> Any:
    """`value` in types that JSON has."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else (None if math.isnan(value) else str(value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return value if isinstance(value, str | int | bool) or value is None else str(value)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table: drawn on a terminal, tab-separated and complete in a pipe."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            say("\t".join(str(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        drawn.add_row(*(str(cell) for cell in row))
    Console().print(drawn)


def complain(text: str) -> None:
    """One message on standard error."""
    with contextlib.suppress(BrokenPipeError):  # nobody reads it, which changes no exit code
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def going_on(kept: str, remedy: str = "start the same command again to go on") -> Iterator[None]:
    """Around long work: an interruption says what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        complain(f"{kept}; {remedy}")
        raise


def kept_in(store: str) -> tuple[str, str]:
    """What `going_on` says of a command whose answers are in a store, if there is one."""
    if store:
        return f"the answers so far are kept in {store}", "start the same command again to go on"
    return "no answer is kept", "with --store FILE the same command would go on where it stopped"
