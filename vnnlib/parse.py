"""Entry points from text to syntax tree; the version line decides the dialect."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verifolio.vnnlib.lexer import read_items
from verifolio.vnnlib.parse1 import parse_first_dialect
from verifolio.vnnlib.parse2 import head_of, parse_second_dialect
from verifolio.vnnlib.source import Source, read_source, source_of_text
from verifolio.vnnlib.tree import Document


def parse(path: Path | str) -> Document:
    """Parse a file, gzipped or not."""
    return _parse(read_source(Path(path)))


def parse_text(text: str, name: str = "<text>") -> Document:
    """Parse a text; `name` is what errors show."""
    return _parse(source_of_text(text, name))


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the cycle collector from walking a growing tree again and again: it holds no cycles, only size."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parse(source: Source) -> Document:
    with collection_paused():
        return _parse_items(source)


def _parse_items(source: Source) -> Document:
    items = list(read_items(source))
    if not items:
        raise source.error(
            0,
            expected="declarations and assertions",
            got="an empty text",
            remedy="check that this is the right file",
        )
    if head_of(items[0]) == "vnnlib-version":
        return parse_second_dialect(source, items)
    return parse_first_dialect(source, items)
