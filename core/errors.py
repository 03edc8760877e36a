"""Every error a user can cause, each saying what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable


class VerifolioError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class InputError(VerifolioError):
    """Bad input: `where: expected, got; remedy`. Exit code 2."""

    def __init__(self, where: str, expected: str, got: str, remedy: str = "") -> None:
        self.where, self.expected, self.got, self.remedy = where, expected, got, remedy
        super().__init__(f"{where}: expected {expected}, got {got}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str, str]]:
        return type(self), (self.where, self.expected, self.got, self.remedy)


def near(name: str, known: Iterable[str]) -> str:
    """The name that may be meant, as the end of a message; nothing where none is like it."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


class UnsupportedNetwork(InputError):
    """A network that cannot be imported; names every unsupported operator at once."""


class UnknownPlugin(VerifolioError):
    """A name that no installed plugin registers, or one that is installed but unavailable."""


class SoundnessAlarm(VerifolioError):
    """Two answers contradict each other and the exact evaluation confirms the witness. Exit code 4."""
