"""Numbers and tables as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOTHING = "-"  # where there is no number


def markdown(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    made = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return [*made, *("| " + " | ".join(map(str, line)) + " |" for line in lines)]


def shown(value: float | str | None, digits: int = 3) -> str:
    """A number with so many digits after the point; nothing for None, nan and the empty text."""
    if value is None or value == "":
        return NOTHING
    number = float(value)
    return NOTHING if math.isnan(number) else f"{number:.{digits}f}"


def three(paper: str, records: float | str | None, ours: float | None, digits: int = 3) -> str:
    """The paper's number, the one from its records, and ours."""
    return f"{paper or NOTHING} / {shown(records, digits)} / {shown(ours, digits)}"


def passes(p: float | str | None, level: float = 0.05) -> str:
    """Whether a test does not reject, in the paper's words."""
    if p is None or p == "" or math.isnan(float(p)):
        return NOTHING
    return str(float(p) >= level)
