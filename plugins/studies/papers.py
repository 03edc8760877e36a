"""The papers by their numbers."""

from __future__ import annotations

import importlib

from verifolio import InputError

from .study import Study

PAPERS = {
    "000": "gross",
    "001": "amir",
    "002": "casadio",
    "003": "bastani",
    "004": "bosman",
}  # where STUDY is


def find_study(number: str) -> Study:
    """The study of a paper; its module is imported now."""
    if number not in PAPERS:
        raise InputError("PAPER", f"one of {', '.join(PAPERS)}", repr(number))
    found: Study = importlib.import_module(f"{__package__}.{PAPERS[number]}").STUDY
    return found
