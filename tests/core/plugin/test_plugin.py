"""One plugin object that implements every hook: what it registers is found, what happens reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from verifolio import (
    Answer,
    Bounder,
    Context,
    Estimator,
    Oracle,
    OracleLike,
    Outcome,
    Problem,
    Query,
    Registry,
    Verifier,
    hookimpl,
    single_verifier,
)
from verifolio.cli.app import build_app
from verifolio.cli.bundles import Running
from verifolio.cli.common import open_oracle
from verifolio.data import load_data
from verifolio.errors import UnknownPlugin
from verifolio.plugin.data_source import Dataset, DataSource
from verifolio.plugin.executor import Executor
from verifolio.plugin.manager import Plugins, current_plugins, installed_plugins
from verifolio.plugin.property import Property
from verifolio.storage.versions import OURS, versions
from verifolio.testing import EXAMPLES
from verifolio.testing.estimators import Clueless


class Mine(Clueless):
    name = "mine"


class Talker(Clueless):
    name = "talker"

    def run(self, problem: Problem, context: Context) -> Outcome:
        context.report("working")
        context.warn("look out")
        context.warn("look out")
        return super().run(problem, context)


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

    def run(self, request: Any, oracle: OracleLike, progress: Any = None) -> Any:
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
    """Every hook that registers something."""

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
        registry.add(type("Mine", (current_plugins().executors.get("inline"),), {"name": "mine"}))

    @hookimpl
    def register_datasets(self, registry: Registry[DataSource]) -> None:
        registry.add(MyData)

    @hookimpl
    def register_packages(self, packages: set[str]) -> None:
        packages |= {"pluggy"}

    @hookimpl
    def register_commands(self, app: typer.Typer) -> None:
        app.command("mine")(lambda: None)


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return current_plugins().plus(Plugin())


class Listener:
    """Only listens, which needs no worker."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []

    @hookimpl
    def query_started(self, query: Query) -> None:
        self.log.append(("started", query.name))

    @hookimpl
    def query_reported(self, query: Query, verifier: str, text: str, warning: bool) -> None:
        self.log.append(("reported", query.name, verifier, text, warning))

    @hookimpl
    def query_answered(self, query: Query, answer: Answer) -> None:
        self.log.append(("answered", query.name, answer.verdict.value))

    @hookimpl
    def progress(self, done: int, total: int, message: str) -> None:
        self.log.append(("progress", done, total))


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


def test_register_packages(plugins: Plugins) -> None:
    """What plugins name is in the record, what is not installed is not, and core names no backend."""
    with plugins.in_use():
        assert {"python", "verifolio", "torch", "highspy", "z3-solver", "pluggy"} <= versions().keys()
    with Plugins().in_use():
        assert versions().keys() == {"python", *OURS}


def test_register_commands(plugins: Plugins) -> None:
    with plugins.in_use():
        assert "mine" in [command.name for command in build_app(["mine"]).registered_commands]


def test_two_plugins_of_one_name(plugins: Plugins) -> None:
    with pytest.raises(UnknownPlugin, match="already taken"):
        plugins.verifiers.add(type("Other", (Mine,), {}))


def told(names: tuple[str, ...], folder: Path, verifier: type[Verifier] = Mine) -> list[tuple[object, ...]]:
    """What a listener hears while queries are decided."""
    queries = [e.query(folder) for e in EXAMPLES if e.name in names]
    listener = Listener()
    with Oracle(
        single_verifier(verifier()), "inline", timeout=20, plugins=current_plugins().plus(listener)
    ) as oracle:
        list(oracle.ask_many(queries))
    return listener.log


def test_query_started(tmp_path: Path) -> None:
    assert [entry[0] for entry in told(("corner",), tmp_path)].count("started") == 1


def test_query_answered(tmp_path: Path) -> None:
    assert [entry[2] for entry in told(("corner",), tmp_path) if entry[0] == "answered"] == ["unknown"]


def test_query_reported(tmp_path: Path) -> None:
    """What a verifier says reaches those who listen, once, from a worker as well."""
    found = [entry for entry in told(("corner",), tmp_path, Talker) if entry[0] == "reported"]
    assert [entry[2:] for entry in found] == [("talker", "working", False), ("talker", "look out", True)]


@pytest.mark.parametrize(
    ("verbose", "shown"),
    [(False, ["warning: talker: look out"]), (True, ["talker: working", "warning: talker: look out"])],
)
def test_the_command_line_shows_warnings(
    verbose: bool, shown: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = next(e for e in EXAMPLES if e.name == "corner").query(tmp_path)
    with open_oracle(Running(executor="inline"), verbose=verbose) as oracle:
        oracle.portfolio = single_verifier(Talker())
        oracle.ask(query)
    assert capsys.readouterr().err.splitlines() == shown


def test_progress(tmp_path: Path) -> None:
    found = told(("corner", "peaks"), tmp_path)
    assert [entry[1:] for entry in found if entry[0] == "progress"] == [(1, 2), (2, 2)]


def test_a_listener_needs_no_worker() -> None:
    """Objects that only listen stay in the driver; workers use what is installed as before."""
    assert current_plugins().addresses is None
    assert installed_plugins().plus(Listener()).addresses is None
