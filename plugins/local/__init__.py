"""Executors on this machine: `inline` for debugging, `process` for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.executor import Executor
    from verifolio.plugin.registry import Registry


@hookimpl
def register_executors(registry: Registry[Executor]) -> None:
    from verifolio.plugins.local.inline import InlineExecutor
    from verifolio.plugins.local.process import ProcessExecutor

    registry.add(ProcessExecutor)
    registry.add(InlineExecutor)
