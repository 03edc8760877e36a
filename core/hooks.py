"""The plugin manager alone: for commands, executors and notifications, without loading plugin classes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pluggy

from verifolio import hookspecs

if TYPE_CHECKING:
    from verifolio.executor import Executor
    from verifolio.registry import Registry


@cache
def manager() -> pluggy.PluginManager:
    """Every installed plugin's module; what they register is not asked for yet."""
    found = pluggy.PluginManager(hookspecs.PROJECT)
    found.add_hookspecs(hookspecs)
    found.load_setuptools_entrypoints(hookspecs.PROJECT)
    return found


@cache
def executors() -> Registry[Executor]:
    """The installed executors."""
    from verifolio.registry import Registry

    registry: Registry[Executor] = Registry("executor")
    manager().hook.register_executors(registry=registry)
    return registry
