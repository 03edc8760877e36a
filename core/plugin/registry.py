"""A registry: the classes of one kind that plugins add, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from verifolio.errors import UnknownPlugin, near

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes of one kind by name, in the order they were added."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        """Register a class under its `name`; a second one of that name is an error of the plugin."""
        name: str = cls.name  # type: ignore[attr-defined]
        if name in self._classes and self._classes[name] is not cls:
            theirs = self._classes[name].__module__
            raise UnknownPlugin(f"{self.kind} {name!r} of {cls.__module__} is already taken by {theirs}")
        self._classes[name] = cls

    def get(self, name: str) -> type[T]:
        """The class of that name; the error lists what there is and why one is unavailable."""
        if name not in self._classes:
            known = ", ".join(sorted(self._classes)) or "none"
            raise UnknownPlugin(
                f"no {self.kind} named {name!r}; installed: {known}{near(name, self._classes)}"
            )
        missing = self.unavailable(name)
        if missing is not None:
            raise UnknownPlugin(f"{self.kind} {name!r} is not available: {missing}")
        return self._classes[name]

    def unavailable(self, name: str) -> str | None:
        """Why the class cannot be used here, or None."""
        check = getattr(self._classes[name], "available", None)
        return None if check is None else check()

    def usable(self) -> dict[str, type[T]]:
        return {n: c for n, c in self._classes.items() if self.unavailable(n) is None}

    def __iter__(self) -> Iterator[type[T]]:
        return iter(self._classes.values())

    def __contains__(self, name: object) -> bool:
        return name in self._classes
