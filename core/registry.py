"""Registries of plugins, filled through pluggy from the entry-point group `verifolio`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import pluggy

from verifolio.errors import UnknownPlugin
from verifolio.hooks import load_modules

if TYPE_CHECKING:
    from verifolio.bounder import Bounder, Bounders
    from verifolio.data import DataSource
    from verifolio.estimator import Estimator
    from verifolio.executor import Executor
    from verifolio.property import Property
    from verifolio.verifier import Verifier


class Named(Protocol):
    """What every registered class has."""

    name: str


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
            raise UnknownPlugin(f"no {self.kind} named {name!r}; installed: {known}")
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


def _registry(kind: str) -> Registry[T]:
    return Registry(kind)


@dataclass(frozen=True)
class Plugins:
    """All registries, the manager that filled them, and why a plugin could not be loaded."""

    manager: pluggy.PluginManager
    verifiers: Registry[Verifier] = field(default_factory=lambda: _registry("verifier"))
    bounders: Registry[Bounder] = field(default_factory=lambda: _registry("bounder"))
    properties: Registry[Property] = field(default_factory=lambda: _registry("property"))
    estimators: Registry[Estimator] = field(default_factory=lambda: _registry("estimator"))
    executors: Registry[Executor] = field(default_factory=lambda: _registry("executor"))
    datasets: Registry[DataSource] = field(default_factory=lambda: _registry("data set"))
    broken: Mapping[str, str] = field(default_factory=dict)

    def all_bounders(self) -> Bounders:
        """One instance of every usable bounder."""
        from verifolio.bounder import Bounders

        return Bounders({name: cls() for name, cls in self.bounders.usable().items()})


def load_plugins(extra: tuple[object, ...] = ()) -> Plugins:
    """Load every installed plugin, plus the given plugin objects (modules or instances with hooks)."""
    loaded = load_modules(extra)
    plugins = Plugins(loaded.manager, broken=loaded.broken)
    loaded.call("register_verifiers", registry=plugins.verifiers)
    loaded.call("register_bounders", registry=plugins.bounders)
    loaded.call("register_properties", registry=plugins.properties)
    loaded.call("register_estimators", registry=plugins.estimators)
    loaded.call("register_executors", registry=plugins.executors)
    loaded.call("register_datasets", registry=plugins.datasets)
    return plugins


@cache
def installed() -> Plugins:
    """The installed plugins, loaded once per process."""
    return load_plugins()
