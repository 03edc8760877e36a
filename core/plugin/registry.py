"""Registries of plugins, filled through pluggy from the entry-point group `verifolio`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pluggy

from verifolio.errors import UnknownPlugin
from verifolio.plugin.hooks import Modules, load_modules

if TYPE_CHECKING:
    from verifolio.plugin.bounder import Bounder, Bounders
    from verifolio.plugin.data_source import DataSource
    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.executor import Executor
    from verifolio.plugin.property import Property
    from verifolio.plugin.verifier import Verifier


class Named(Protocol):
    """What every registered class has."""

    name: str


T = TypeVar("T")
KINDS = ("verifiers", "bounders", "properties", "estimators", "executors", "datasets")


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


@dataclass(frozen=True)
class Plugins:
    """All registries; each asks the plugins for its classes when it is first used.

    Workers need verifiers and bounders only, and should not wait for what the others import.
    """

    modules: Modules

    @property
    def manager(self) -> pluggy.PluginManager:
        return self.modules.manager

    @cached_property
    def verifiers(self) -> Registry[Verifier]:
        return self._filled("verifier", "register_verifiers")

    @cached_property
    def bounders(self) -> Registry[Bounder]:
        return self._filled("bounder", "register_bounders")

    @cached_property
    def properties(self) -> Registry[Property]:
        return self._filled("property", "register_properties")

    @cached_property
    def estimators(self) -> Registry[Estimator]:
        return self._filled("estimator", "register_estimators")

    @cached_property
    def executors(self) -> Registry[Executor]:
        return self._filled("executor", "register_executors")

    @cached_property
    def datasets(self) -> Registry[DataSource]:
        return self._filled("data set", "register_datasets")

    @property
    def broken(self) -> Mapping[str, str]:
        """Why a plugin could not be loaded, or could not register something; asks all of them."""
        self.fill()
        return self.modules.broken

    def fill(self) -> None:
        """Ask every plugin for everything."""
        for kind in KINDS:
            getattr(self, kind)

    def _filled(self, kind: str, hook: str) -> Registry[Any]:
        registry: Registry[Any] = Registry(kind)
        self.modules.call(hook, registry=registry)
        return registry

    def all_bounders(self) -> Bounders:
        """One instance of every usable bounder."""
        from verifolio.plugin.bounder import Bounders

        return Bounders({name: cls() for name, cls in self.bounders.usable().items()})


def load_plugins(extra: tuple[object, ...] = ()) -> Plugins:
    """Load every installed plugin, plus the given plugin objects (modules or instances with hooks)."""
    plugins = Plugins(load_modules(extra))
    plugins.fill()
    return plugins


@cache
def installed() -> Plugins:
    """The installed plugins, loaded once per process."""
    return Plugins(load_modules())
