"""The hooks: all a plugin can do. Register things, or be told what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import typer

    from verifolio.model.answer import Answer
    from verifolio.model.query import Query
    from verifolio.plugin.account import Reader
    from verifolio.plugin.bounder import Bounder
    from verifolio.plugin.data_source import DataSource
    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.executor import Executor
    from verifolio.plugin.exporter import Exporter
    from verifolio.plugin.property import Property
    from verifolio.plugin.regime import Regime
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.section import Section
    from verifolio.plugin.verifier import Verifier

PROJECT = "verifolio"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_verifiers(registry: Registry[Verifier]) -> None:
    """Add verifier classes: `registry.add(MyVerifier)`."""


@hookspec
def register_properties(registry: Registry[Property]) -> None:
    """Add property classes, which turn an input into a query."""


@hookspec
def register_estimators(registry: Registry[Estimator]) -> None:
    """Add estimator classes, which turn a question about numbers or sets into queries."""


@hookspec
def register_bounders(registry: Registry[Bounder]) -> None:
    """Add bounder classes, which bound neurons and output rows for every other plugin."""


@hookspec
def register_executors(registry: Registry[Executor]) -> None:
    """Add executor classes, which decide where jobs run: here, in worker processes, on a cluster."""


@hookspec
def register_datasets(registry: Registry[DataSource]) -> None:
    """Add data sources, found by the name in `--data NAME[:SPLIT]`."""


@hookspec
def register_exporters(registry: Registry[Exporter]) -> None:
    """Add exporters, which turn models of a library into ONNX networks, for `verifolio.verify(model, ...)`."""


@hookspec
def register_regimes(registry: Registry[Regime]) -> None:
    """Add training regimes, found by `verifolio train --regime NAME`."""


@hookspec
def register_sections(registry: Registry[Section]) -> None:
    """Add sections of a report, found by the report's `--section NAME`."""


@hookspec
def register_readers(registry: Registry[Reader]) -> None:
    """Add readers, which tell `report`, `watch` and `show` what a store says about runs of their kind."""


@hookspec
def register_choosers(registry: Registry[Any]) -> None:
    """Add choosers (`verifolio.Chooser`), which pick a portfolio for each query, found by `--portfolio NAME`."""


@hookspec
def register_packages(packages: set[str]) -> None:
    """Add names of distributions: their versions are kept with every answer. The plugin's own is there already."""


@hookspec
def register_commands(app: typer.Typer) -> None:
    """Add commands to the command line: `app.command("mine")(function)`."""


@hookspec
def query_started(query: Query) -> None:
    """A query is about to be decided."""


@hookspec
def work_started(number: int, verifier: str, about: str) -> None:
    """A verifier begins to work, on one query or on many at once; `number` is this piece of work."""


@hookspec
def work_ended(number: int) -> None:
    """The piece of work of that number has ended."""


@hookspec
def query_reported(query: Query, verifier: str, text: str, warning: bool) -> None:
    """A verifier has something to say about a query: a warning, or a remark that `--verbose` shows."""


@hookspec
def query_answered(query: Query, answer: Answer) -> None:
    """A query has its final answer."""


@hookspec
def progress(done: int, total: int, message: str) -> None:
    """Long work has moved on; `total` is 0 when unknown."""
