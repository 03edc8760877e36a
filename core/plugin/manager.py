"""The plugins: loaded one by one, so that a broken one is named and passed over, and the registries they fill.

Loading imports the modules that the entry points name and nothing else, which is enough for commands and
notifications and keeps the command line quick. A registry asks the plugins for its classes when it is first used.
"""

from __future__ import annotations

import logging
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from verifolio.errors import InputError
from verifolio.plugin import hookspecs
from verifolio.plugin.registry import Registry

if TYPE_CHECKING:
    from verifolio.plugin.account import Reader
    from verifolio.plugin.bounder import Bounder, Bounders
    from verifolio.plugin.data_source import DataSource
    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.executor import Executor
    from verifolio.plugin.exporter import Exporter
    from verifolio.plugin.property import Property
    from verifolio.plugin.regime import Regime
    from verifolio.plugin.section import Section
    from verifolio.plugin.verifier import Verifier

_log = logging.getLogger(__name__)
KINDS = (
    *("verifiers", "bounders", "properties", "estimators", "executors", "datasets"),
    *("choosers", "exporters", "regimes", "sections", "readers"),
)
DRIVER_ONLY = ("register_commands", "register_exporters", "register_readers")  # whose work no worker needs
SETS = 8  # that a worker keeps; a session has one or two


@dataclass(frozen=True, eq=False)
class Plugin:
    """What has the hooks, and where it comes from: `address` is what a worker imports, if it can."""

    name: str
    hooks: object
    address: str = ""
    distribution: str = ""
    installed: bool = False


class Plugins:
    """A set of plugins, and a registry for everything that they can add.

    It is made of modules, of their names, or of objects with hooks; `current_plugins()` gives those that are
    installed (entry points of the group `verifolio`), and `plus` adds to a set. What a caller brings fails loudly.
    """

    def __init__(self, *given: object) -> None:
        self.entries: tuple[Plugin, ...] = ()
        self.broken: dict[str, str] = {}  # by name why a plugin could not be used, as far as it was asked
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        for thing in given:
            self._add(_described(thing))

    def plus(self, *given: object) -> Plugins:
        """The same plugins and those given."""
        more = Plugins()
        more.broken.update(self.broken)
        for plugin in (*self.entries, *map(_described, given)):
            more._add(plugin)
        return more

    def _add(self, plugin: Plugin) -> None:
        if not self.manager.is_registered(plugin.hooks):
            self.manager.register(plugin.hooks, plugin.name)
            self.entries += (plugin,)

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

    @cached_property
    def exporters(self) -> Registry[Exporter]:
        return self._filled("exporter", "register_exporters")

    @cached_property
    def regimes(self) -> Registry[Regime]:
        return self._filled("regime", "register_regimes")

    @cached_property
    def sections(self) -> Registry[Section]:
        return self._filled("section", "register_sections")

    @cached_property
    def readers(self) -> Registry[Reader]:
        return self._filled("reader", "register_readers")

    @cached_property
    def choosers(self) -> Registry[Any]:
        return self._filled("chooser", "register_choosers")

    @cached_property
    def packages(self) -> frozenset[str]:
        """The distributions that answers depend on: the plugins' own, and those that they name."""
        named = {p.distribution for p in self.entries} - {""}
        self.call("register_packages", packages=named)
        return frozenset(named)

    def fill(self) -> None:
        """Ask every plugin for everything; `broken` is complete then."""
        for kind in KINDS:
            getattr(self, kind)

    def _filled(self, kind: str, hook: str) -> Registry[Any]:
        registry: Registry[Any] = Registry(kind)
        self.call(hook, registry=registry)
        return registry

    def call(self, hook: str, **arguments: object) -> None:
        """Call a hook of every plugin, each on its own, so that none can spoil it for the others."""
        everyone = [p.hooks for p in self.entries]
        for plugin in self.entries:
            others = [p for p in everyone if p is not plugin.hooks]
            try:
                self.manager.subset_hook_caller(hook, others)(**arguments)
            except Exception as error:  # a plugin may raise anything
                if not plugin.installed:
                    raise
                self.blame(plugin.name, error)

    def blame(self, name: str, error: Exception) -> None:
        """Note that a plugin failed; the first reason is kept."""
        _log.debug("plugin %s", name, exc_info=error)
        self.broken.setdefault(name, f"{type(error).__name__}: {' '.join(str(error).split())}")

    def all_bounders(self) -> Bounders:
        """One instance of every usable bounder, made when one is first wanted."""
        from verifolio.plugin.bounder import Bounders

        return Bounders(lambda: {name: cls() for name, cls in self.bounders.usable().items()})

    def make_executor(self, spec: str, workers: int = 1, device: str = "cpu") -> Executor:
        """The executor `NAME` or `NAME@ADDRESS`; one that has an option for devices is told the device."""
        from verifolio.plugin.options import build_options

        name, _, address = spec.partition("@")
        cls = self.executors.get(name)
        given: dict[str, object] = {"address": address} if address else {}
        if device != "cpu" and any(f.name == "device" for f in fields(cls.Options)):
            given["device"] = device
        return cls(workers, build_options(cls.Options, given, f"executor {name}") if given else None)

    @cached_property
    def addresses(self) -> tuple[str, ...] | None:
        """What a worker imports to have the same set; None where that is what it finds installed."""
        needed = [p for p in self.entries if self._registers(p)]
        if any(p.installed for p in self.entries) and all(p.installed for p in needed):
            return None
        for plugin in needed:
            if not plugin.address:
                raise InputError(
                    f"plugin {plugin.name}",
                    "a module that workers can import",
                    _shown(plugin.hooks),
                    "write it into a file on Python's path, import it from there and give the module",
                )
        return tuple(p.address for p in needed)

    def _registers(self, plugin: Plugin) -> bool:
        """Whether workers need it: those that only listen do so in the driver."""
        callers = self.manager.get_hookcallers(plugin.hooks) or []
        return any(c.name.startswith("register_") and c.name not in DRIVER_ONLY for c in callers)

    @contextmanager
    def in_use(self) -> Iterator[Plugins]:
        """Within it, `current_plugins()` gives this set (in the same thread)."""
        token = _IN_USE.set(self)
        try:
            yield self
        finally:
            _IN_USE.reset(token)


_IN_USE: ContextVar[Plugins | None] = ContextVar("plugins in use", default=None)


def current_plugins() -> Plugins:
    """The plugins of the oracle whose job or query this is; elsewhere those that are installed."""
    chosen = _IN_USE.get()
    return installed_plugins() if chosen is None else chosen


@cache
def installed_plugins() -> Plugins:
    """What the entry points name, loaded once per process."""
    found = Plugins()
    for entry in metadata.entry_points(group=hookspecs.PROJECT):
        try:
            distribution = entry.dist.name if entry.dist is not None else ""
            address = f"{entry.module}:{entry.attr}" if entry.attr else entry.module
            found._add(Plugin(entry.name, entry.load(), address, distribution, installed=True))
        except Exception as error:  # importing a stranger's module may raise anything
            found.blame(entry.name, error)
    return found


@lru_cache(maxsize=SETS)
def plugins_at(addresses: tuple[str, ...]) -> Plugins:
    """The plugins that a worker was told to use."""
    return Plugins(*addresses)


def _described(thing: object) -> Plugin:
    if isinstance(thing, Plugin):
        return thing
    if isinstance(thing, str):
        return Plugin(thing, _imported(thing), thing)
    if isinstance(thing, ModuleType):
        return Plugin(thing.__name__, thing, thing.__name__ if _importable(thing) else "")
    return Plugin(f"{type(thing).__name__} at {id(thing):#x}", thing)


def _imported(address: str) -> object:
    try:
        return pkgutil.resolve_name(address)
    except Exception as error:  # importing a stranger's module may raise anything
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"
        remedy = "install it on every machine, or mend what it says"
        raise InputError(f"plugin {address}", "a module that workers can import", got, remedy) from None


def _importable(module: ModuleType) -> bool:
    """Whether its name leads another process with the same path to the same file."""
    name, spec = module.__name__, module.__spec__
    parent = name.rpartition(".")[0]
    if spec is None or (parent and parent not in sys.modules):
        return False
    path = getattr(sys.modules[parent], "__path__", None) if parent else None
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    first = next((s for s in found if s is not None), None)
    return first is not None and first.origin == spec.origin


def _shown(hooks: object) -> str:
    if not isinstance(hooks, ModuleType):
        return f"an object of {type(hooks).__module__}.{type(hooks).__qualname__}"
    return f"the module {hooks.__name__}, which only this process has"
