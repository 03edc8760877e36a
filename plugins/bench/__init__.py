"""Benchmark runs (`verifolio bench`), and portfolios learned from them (`verifolio portfolio`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import bench
    from .portfolio.command import make_commands

    add_command(app, "bench", bench)
    app.add_typer(make_commands(), name="portfolio")
