"""The one error of this package: where, what was expected, what was found, and what to do."""

from __future__ import annotations

from verifolio.errors import VerifolioError


class VnnlibError(VerifolioError, ValueError):
    """A text that is no valid VNN-LIB, or has no normal form; `line` is 0 where no text is involved."""

    def __init__(self, path: str, line: int, column: int, expected: str, got: str, remedy: str) -> None:
        super().__init__(path, line, column, expected, got, remedy)
        self.path = path
        self.line = line
        self.column = column
        self.expected = expected
        self.got = got
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{where}: expected {self.expected}, got {self.got}; {self.remedy}"


def shorten(text: str, limit: int = 40) -> str:
    """Quote a piece of the user's text, cut to a length that fits an error message."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")
