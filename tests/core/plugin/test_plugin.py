"""One plugin object that implements every hook: what it registers is found, what happens reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from verifolio import Answer, Bounder, Estimator, Oracle, Query, Registry, Verifier, hookimpl, single
from verifolio.cli.app import build_app
from verifolio.data import load_data
from verifolio.errors import UnknownPlugin
from verifolio.plugin.data_source import Dataset, DataSource
from verifolio.plugin.executor import Executor
from verifolio.plugin.hooks import executors, manager
from verifolio.plugin.property import Property
from verifolio.plugin.registry import Plugins, load_plugins
from verifolio.testing import EXAMPLES
from verifolio.testing.estimators import Clueless


class Mine(Clueless):
    name = "mine"


class MyBounder(Bounder):
    name = "mine"

    def bound(self, problems: Any, budget: Any = None, known: Any = None) -> list[Any]:
        return []


class MyData(DataSource):
    name = "mine"
    splits = ("test",)

    def load(self, split: str) -> Dataset:
        return Dataset(self.name, split, np.eye(2), np.array([0, 1]), (2,), 2)


class MyEstimator(Estimator):
    name = "mine"

    def run(self, request: Any, oracle: Oracle, progress: Any = None) -> Any:
        return request


class MyProperty(Property):
    name = "mine"

    def query(self, networks: Any, reference: Any) -> Query:
        raise NotImplementedError

    def satisfied(self, points: Any) -> Any:
        raise NotImplementedError

    def loss(self, points: Any) -> Any:
        raise NotImplementedError


class Plugin:
    """Every hook; `log` is what it was told."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []

    @hookimpl
    def register_verifiers(self, registry: Registry[Verifier]) -> None:
        registry.add(Mine)

    @hookimpl
    def register_bounders(self, registry: Registry[Bounder]) -> None:
        registry.add(MyBounder)

    @hookimpl
    def register_properties(self, registry: Registry[Property]) -> None:
        registry.add(MyProperty)

    @hookimpl
    def register_estimators(self, registry: Registry[Estimator]) -> None:
        registry.add(MyEstimator)

    @hookimpl
    def register_executors(self, registry: Registry[Executor]) -> None:
        registry.add(type("Mine", (executors().get("inline"),), {"name": "mine"}))

    @hookimpl
    def register_datasets(self, registry: Registry[DataSource]) -> None:
        registry.add(MyData)

    @hookimpl
    def register_commands(self, app: typer.Typer) -> None:
        app.command("mine")(lambda: None)

    @hookimpl
    def query_started(self, query: Query) -> None:
        self.log.append(("started", query.name))

    @hookimpl
    def query_answered(self, query: Query, answer: Answer) -> None:
        self.log.append(("answered", query.name, answer.verdict.value))

    @hookimpl
    def progress(self, done: int, total: int, message: str) -> None:
        self.log.append(("progress", done, total))


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins((Plugin(),))


@pytest.fixture
def listening() -> Iterator[Plugin]:
    plugin = Plugin()
    manager().register(plugin)
    yield plugin
    manager().unregister(plugin)


def test_register_verifiers(plugins: Plugins) -> None:
    assert plugins.verifiers.get("mine") is Mine
    with pytest.raises(UnknownPlugin, match=r"installed: .*mine"):
        plugins.verifiers.get("yours")


def test_register_bounders(plugins: Plugins) -> None:
    assert isinstance(plugins.all_bounders()["mine"], MyBounder)


def test_register_properties(plugins: Plugins) -> None:
    assert plugins.properties.get("mine") is MyProperty


def test_register_estimators(plugins: Plugins) -> None:
    assert plugins.estimators.get("mine") is MyEstimator


def test_register_executors(plugins: Plugins) -> None:
    assert plugins.executors.get("mine").name == "mine"


def test_register_datasets(plugins: Plugins) -> None:
    assert load_data("mine", plugins).labels.tolist() == [0, 1]


def test_register_commands(listening: Plugin) -> None:
    assert "mine" in [command.name for command in build_app(["mine"]).registered_commands]


def test_two_plugins_of_one_name(plugins: Plugins) -> None:
    with pytest.raises(UnknownPlugin, match="already taken"):
        plugins.verifiers.add(type("Other", (Mine,), {}))


def ask(names: tuple[str, ...], folder: Path) -> None:
    queries = [e.query(folder) for e in EXAMPLES if e.name in names]
    with Oracle(single(Mine()), "inline", timeout=20) as oracle:
        list(oracle.ask_many(queries))


def test_query_started(listening: Plugin, tmp_path: Path) -> None:
    ask(("corner",), tmp_path)
    assert [entry[0] for entry in listening.log].count("started") == 1


def test_query_answered(listening: Plugin, tmp_path: Path) -> None:
    ask(("corner",), tmp_path)
    assert [entry[2] for entry in listening.log if entry[0] == "answered"] == ["unknown"]


def test_progress(listening: Plugin, tmp_path: Path) -> None:
    ask(("corner", "peaks"), tmp_path)
    assert [entry[1:] for entry in listening.log if entry[0] == "progress"] == [(1, 2), (2, 2)]
