"""Queries that travel light, and those that a worker has seen before, with their graphs and problems."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from verifolio.model.query import Query


class _Keyed:
    """A query that is equal to another one of the same content."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def __hash__(self) -> int:
        return hash(self.query.sha256)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.query.sha256 == other.query.sha256


@lru_cache(maxsize=4)
def _warm(keyed: _Keyed) -> Query:
    return keyed.query


def warm_query(query: Query) -> Query:
    """The same query as this worker saw it before, with its graph and problems, or this one."""
    return _warm(_Keyed(query))


def strip(query: Query) -> Query:
    """The query without cached graphs, so that it is cheap to send."""
    return replace(query)
