"""Subproblems that wait: taken in batches from the top, so that a search goes deep before it goes wide."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar


class Batch(Protocol):
    """Many subproblems in one object."""

    def __len__(self) -> int: ...
    def pick(self, index: slice) -> Self: ...
    @classmethod
    def join(cls, parts: list[Self]) -> Self: ...


B = TypeVar("B", bound=Batch)


class Frontier(Generic[B]):
    """Batches on top of each other; whoever uses it from several threads holds a lock."""

    def __init__(self) -> None:
        self._parts: list[B] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, items: B) -> None:
        if len(items):
            self._parts.append(items)

    def take(self, room: int, among: int = 1, least: int = 1) -> B | None:
        """Up to `room` from the top, a fair part where several want some, but no part of fewer than `least`."""
        if not self._parts:
            return None
        among = max(1, min(among, len(self) // least))
        room = max(1, min(room, -(-len(self) // among)))
        parts: list[B] = []
        while self._parts and room > 0:
            top = self._parts.pop()
            if len(top) > room:
                self._parts.append(top.pick(slice(0, len(top) - room)))
                top = top.pick(slice(len(top) - room, len(top)))
            parts.append(top)
            room -= len(top)
        return parts[0].join(parts)

    def all(self) -> B | None:
        """Everything that is left."""
        return self._parts[0].join(self._parts) if self._parts else None
