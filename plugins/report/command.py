"""The commands `report`, `watch` and `show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import ASKED, WRITTEN, with_default
from verifolio.plugin.account import Asked
from verifolio.plugin.options import described

Sources = Annotated[
    list[str],
    typer.Argument(metavar="STORE|FOLDER...", help="Stores, tables of results, or folders of them."),
]
OneStore = Annotated[str, typer.Argument(metavar="STORE", help="The store of a run, which may be going on.")]


@dataclass(frozen=True, kw_only=True)
class Chosen(bundles.Bundle):
    """Which run."""

    panel: ClassVar[str] = ASKED
    run: str = described("", "Only this run of a store (by default its last).", metavar="RUN")


@dataclass(frozen=True, kw_only=True)
class Reported(Chosen):
    """What a report is about."""

    panel: ClassVar[str] = ASKED
    thresholds: str = described("", "Count at these radii, with commas.", metavar="NUMBERS")
    step: float = described(
        0.0, "The grid's step, for tables that do not name their time-outs; 0: the run's.", min=0.0
    )
    section: tuple[str, ...] = described(
        (), "Only this section: statistics, pictures, comparisons, or a plugin's. Repeatable.", metavar="NAME"
    )

    @property
    def asked(self) -> Asked:
        from verifolio.cli.parse import parse_numbers

        return Asked(self.run, parse_numbers(self.thresholds, "--thresholds"), self.step)


@dataclass(frozen=True, kw_only=True)
class ReportFolder(bundles.Json, bundles.Output):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    output: str = with_default(bundles.Output, "output", default="report")


def report(sources: Sources, reported: Reported, written: ReportFolder) -> None:
    """Make one page of any run, to be read and sent on.

    It has the answer, the curve, counterexamples, tables and provenance. The page is one file, index.html, that makes
    no request; figures (SVG and PDF) and data (CSV) lie beside it. With `-o PAGE.html` only that file is written.

    Example:
        verifolio distribution examples/networks/digits_dense.onnx --data digits --indices 1:3 \\
            --tolerance 0.01 --store radii.db
        verifolio report radii.db -o report
    """
    from verifolio.cli.output import say, say_json

    from .build import build_report

    made = build_report(sources, Path(written.output), reported.asked, reported.section)
    if written.json:
        say_json(made.as_dict())
        return
    for line in made.lines:
        say(line)
    say(f"written: {made.page}")


def show(sources: Sources, chosen: Chosen, written: bundles.Json) -> None:
    """Read the answers of a store back.

    They are shown as the sentence of a report and a line per input.

    Example:
        verifolio measure examples/networks/digits_dense.onnx --data digits --indices 0:3 --epsilon 0.02 \\
            --metrics csat --timeout 10 --store answers.db
        verifolio show answers.db
    """
    from .terminal import show_accounts

    show_accounts(sources, Asked(chosen.run), written.json)


@dataclass(frozen=True, kw_only=True)
class Served(bundles.Bundle):
    """Where the page is."""

    panel: ClassVar[str] = WRITTEN
    port: int = described(0, "The port on this machine; 0 for any that is free.", metavar="N", min=0)


def watch(store: OneStore, chosen: Chosen, served: Served) -> None:
    """Show the page of a run in a browser while it goes on.

    The browser is one on this machine. It listens on 127.0.0.1 only, and the address that is printed has a
    secret in it, without which nothing is shown. Stopping it (Ctrl-C) does not touch the run.

    Example (not run: it serves until it is stopped):
        verifolio watch radii.db
    """
    from .serve import serve

    serve(Path(store), Asked(chosen.run), served.port)
