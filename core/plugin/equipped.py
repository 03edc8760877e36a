"""An executor whose jobs use a given set of plugins: their addresses travel with every job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verifolio.plugin.executor import Executor, Handle
from verifolio.plugin.manager import Plugins, plugins_at
from verifolio.run import Job, Link


@dataclass(frozen=True)
class Equipped:
    """A job's function and payload, and the plugins it is to use."""

    plugins: tuple[str, ...]
    function: Callable[[Any, Link], Any]
    payload: object


def run_equipped(task: Equipped, link: Link) -> Any:
    """The function a worker calls."""
    with plugins_at(task.plugins).in_use():
        return task.function(task.payload, link)


class EquippedExecutor(Executor):
    """Another executor, which it does everything by."""

    name = "equipped"

    def __init__(self, executor: Executor, plugins: tuple[str, ...]) -> None:
        super().__init__(executor.workers, executor.options)
        self._executor, self._plugins = executor, plugins

    def submit(self, job: Job) -> Handle:
        task = Equipped(self._plugins, job.function, job.payload)
        return self._executor.submit(replace(job, function=run_equipped, payload=task))

    def wait(self, handles: Sequence[Handle], timeout: float | None = None) -> list[Handle]:
        return self._executor.wait(handles, timeout)

    def share(self, queries: int, cores: int = 0) -> int:
        return self._executor.share(queries, cores)

    def warm(self, wait: bool = False) -> None:
        self._executor.warm(wait)

    def close(self) -> None:
        self._executor.close()


def equip(executor: Executor, plugins: Plugins) -> Executor:
    """The executor, whose workers use the given plugins; as it is where they find the same ones themselves."""
    addresses = plugins.addresses
    return executor if addresses is None else EquippedExecutor(executor, addresses)
