"""Pieces of work, announced: whoever listens hears which verifier works on what."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from verifolio.model.query import Query
from verifolio.plugin.choice import Choice
from verifolio.plugin.verifier import Verifier

_NUMBERS = itertools.count()
MANY = "many questions at once"


@contextmanager
def working(hook: Any, verifier: str, about: str) -> Iterator[None]:
    """Around a piece of work; `hook` are the hooks of all plugins."""
    number = next(_NUMBERS)
    hook.work_started(number=number, verifier=verifier, about=about)
    try:
        yield
    finally:
        hook.work_ended(number=number)


def names_in(payload: object) -> str:
    """The verifiers that a job's payload names."""
    if not is_dataclass(payload):
        return ""
    values = (getattr(payload, f.name) for f in fields(payload))
    return "+".join(dict.fromkeys(v.name for v in values if isinstance(v, Choice | Verifier)))


def describe(query: Query) -> str:
    """A query in a few words: its networks, and what it is about."""
    networks = "+".join(n.path.name for n in query.networks)
    index, epsilon = query.labels.get("index"), query.labels.get("epsilon")
    about = f"input {index}" if index is not None else query.name.rpartition("/")[2]
    return f"{networks} {about}" + (f" at {float(epsilon):g}" if epsilon else "")
