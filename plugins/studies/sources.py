"""Where studies find things: data and networks below $VERIFOLIO_DATA, published numbers beside their code."""

from __future__ import annotations

import csv
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from verifolio import Dataset, InputError, current_plugins

from .study import Record


def published(folder: Path, name: str) -> list[Record]:
    """A published table, transcribed as CSV."""
    with (folder / "published" / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def shared(*parts: str) -> Path:
    """A file or folder below $VERIFOLIO_DATA; says what is missing where it is not there."""
    root = os.environ.get("VERIFOLIO_DATA", "")
    path = Path(root).joinpath(*parts)
    if not root or not path.exists():
        got = f"no {path}" if root else "VERIFOLIO_DATA is not set"
        raise InputError("study", f"{'/'.join(parts)} in the folder $VERIFOLIO_DATA", got, "put it there")
    return path


def have(*parts: str) -> bool:
    """Whether it is there."""
    root = os.environ.get("VERIFOLIO_DATA", "")
    return bool(root) and Path(root).joinpath(*parts).exists()


@cache
def dataset(name: str, split: str) -> Dataset:
    """An installed data source's split, loaded once."""
    known = current_plugins().datasets
    why = known.unavailable(name)
    if why is not None:
        raise InputError(f"data set {name}", "its files", why)
    return known.get(name)().load(split)


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: sums then have the same order on every machine, and small networks learn faster so."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
