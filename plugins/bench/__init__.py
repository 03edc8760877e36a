"""Benchmark runs (`verifolio bench`), and portfolios learned from them (`verifolio portfolio`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .command import bench
    from .portfolio.command import group

    app.command("bench")(bench)
    app.add_typer(group, name="portfolio")
