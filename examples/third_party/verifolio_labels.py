"""More by a stranger: the estimator `count` with a command, and the section `by-label` of the distribution report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Annotated

import typer

from verifolio import Content, Estimator, Material, Query, Section, Table, hookimpl

if TYPE_CHECKING:
    from verifolio import OracleLike, Registry


@dataclass(frozen=True)
class Batch:
    """Queries to count."""

    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Counts:
    """How many have a counterexample, how many provably have none, how many are undecided."""

    sat: int
    unsat: int
    undecided: int


class Count(Estimator):
    """Counts the verdicts of many queries."""

    name = "count"
    Request = Batch

    def run(
        self,
        request: Batch,
        oracle: OracleLike,
        progress: Callable[[int, int, str], None] = lambda done, total, message: None,
    ) -> Counts:
        verdicts: list[str] = []
        for _, answer in oracle.ask_many(request.queries):
            verdicts.append(answer.verdict)
            progress(len(verdicts), len(request.queries), answer.verdict)
        sat, unsat = verdicts.count("sat"), verdicts.count("unsat")
        return Counts(sat, unsat, len(verdicts) - sat - unsat)


class ByLabel(Section):
    """The mean proved radius of every class."""

    name, report = "by-label", "distribution"

    def make(self, material: Material) -> Content:
        radii: dict[int, list[float]] = {}
        for record in material.records:
            if record["lower"] is not None:
                radii.setdefault(record["label"], []).append(record["lower"])
        rows = tuple((str(k), str(len(r)), f"{mean(r):.4g}") for k, r in sorted(radii.items()))
        return Content((Table("by_label", "Proved radii by class", ("label", "inputs", "mean"), rows),))


def count(
    network: Annotated[str, typer.Argument(help="An ONNX file.")],
    properties: Annotated[list[str], typer.Argument(help="VNN-LIB files.")],
    timeout: Annotated[float, typer.Option(help="Seconds per property.")] = 10.0,
) -> None:
    """Count the properties of a network that hold, fail, and stay open."""
    from verifolio import Oracle, current_plugins

    estimator = current_plugins().estimators.get("count")()
    with Oracle(timeout=timeout) as oracle:
        found = estimator.run(Batch(tuple(Query.from_files([network], p) for p in properties)), oracle)
    typer.echo(f"{found.sat} sat, {found.unsat} unsat, {found.undecided} undecided")


@hookimpl
def register_estimators(registry: Registry[Estimator]) -> None:
    registry.add(Count)


@hookimpl
def register_sections(registry: Registry[Section]) -> None:
    registry.add(ByLabel)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    app.command("count")(count)
