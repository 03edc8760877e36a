"""Loading plugins one by one: a broken one is reported and passed over, the others work.

`modules()` has the plugins' modules alone, which is enough for commands, executors and notifications, and
keeps the command line quick; `verifolio.plugin.registry.installed()` also has their classes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

import pluggy

from verifolio.plugin import hookspecs

if TYPE_CHECKING:
    from verifolio.plugin.executor import Executor
    from verifolio.plugin.registry import Registry

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Modules:
    """The manager, where each plugin comes from, and why some could not be used."""

    manager: pluggy.PluginManager
    sources: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def blame(self, name: str, error: Exception) -> None:
        """Note that a plugin failed; the first reason is kept."""
        _log.debug("plugin %s", name, exc_info=error)
        self.broken.setdefault(name, f"{type(error).__name__}: {' '.join(str(error).split())}")

    def call(self, hook: str, **arguments: object) -> None:
        """Call a hook of every plugin, each on its own, so that none can spoil it for the others."""
        everyone = dict(self.manager.list_name_plugin())
        for name, plugin in everyone.items():
            others = [p for p in everyone.values() if p is not plugin]
            try:
                self.manager.subset_hook_caller(hook, others)(**arguments)
            except Exception as error:  # a plugin may raise anything
                if name not in self.sources:
                    raise  # the caller's own plugin object
                self.blame(name, error)


def load_modules(extra: tuple[object, ...] = ()) -> Modules:
    """Every installed plugin's module, plus the given plugin objects; nothing is registered yet."""
    found = Modules(pluggy.PluginManager(hookspecs.PROJECT))
    found.manager.add_hookspecs(hookspecs)
    for entry in metadata.entry_points(group=hookspecs.PROJECT):
        try:
            plugin = entry.load()
            if not found.manager.is_registered(plugin):
                found.manager.register(plugin, entry.name)
                found.sources[entry.name] = entry.dist.name if entry.dist is not None else ""
        except Exception as error:  # importing a stranger's module may raise anything
            found.blame(entry.name, error)
    for plugin in extra:
        found.manager.register(plugin)
    return found


@cache
def modules() -> Modules:
    """The installed plugins' modules, loaded once per process."""
    return load_modules()


def manager() -> pluggy.PluginManager:
    """For notifications."""
    return modules().manager


@cache
def executors() -> Registry[Executor]:
    """The installed executors."""
    from verifolio.plugin.registry import Registry

    registry: Registry[Executor] = Registry("executor")
    modules().call("register_executors", registry=registry)
    return registry


def make_executor(spec: str, workers: int = 1, device: str = "cpu") -> Executor:
    """The executor `NAME` or `NAME@ADDRESS`; one that has an option for devices is told the device."""
    from verifolio.plugin.options import build_options

    name, _, address = spec.partition("@")
    cls = executors().get(name)
    given: dict[str, object] = {"address": address} if address else {}
    if device != "cpu" and any(f.name == "device" for f in fields(cls.Options)):
        given["device"] = device
    return cls(workers, build_options(cls.Options, given, f"executor {name}") if given else None)
