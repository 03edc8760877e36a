"""The `ray` executor: the same jobs on the nodes of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.executor import Executor
    from verifolio.plugin.registry import Registry


@hookimpl
def register_executors(registry: Registry[Executor]) -> None:
    from verifolio.plugins.ray.executor import RayExecutor

    registry.add(RayExecutor)


@hookimpl
def register_packages(packages: set[str]) -> None:
    packages |= {"ray"}
