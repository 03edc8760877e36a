"""The verdict in what a tool wrote: one declared line, or nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .description import Description

SHOWN = 5  # lines of a contradiction that are shown
WIDTH = 80  # characters of a line that are shown
# A verdict is a short line. Longer ones are values or progress, and matching them would cost time.
LONGEST = 500


@dataclass(frozen=True)
class Statement:
    """`verdict` is empty where the tool states none; `conflict` shows the lines that contradict each other."""

    verdict: str = ""
    conflict: str = ""


def read_verdict(tool: Description, text: str) -> Statement:
    """What a tool states in its answer.

    In a results file the verdict is the first line that is not empty; on standard output it is any line. A
    line counts only if all of it matches. Lines of different verdicts contradict each other, wherever they are.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [(word, line) for line in lines if (word := line_verdict(tool, line))]
    if len({word for word, _ in found}) > 1:
        return Statement(conflict=_shown(found))
    if not found or (tool.answer == "results" and line_verdict(tool, lines[0]) != found[0][0]):
        return Statement()
    return Statement(found[0][0])


def line_verdict(tool: Description, line: str) -> str:
    """The verdict that a whole line states; a line that fits two patterns states the first of them."""
    if len(line) > LONGEST:
        return ""
    fits = (v for v, pattern in tool.verdicts.items() if re.fullmatch(pattern, line, re.IGNORECASE))
    return next(fits, "")


def _shown(found: list[tuple[str, str]]) -> str:
    """Lines of every verdict, those that repeat one of them left out first."""
    first = dict[str, str]()
    for word, line in found:
        first.setdefault(word, line[:WIDTH])
    return " | ".join(list(first.values())[:SHOWN])
