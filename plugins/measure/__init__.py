"""`verifolio measure`: constraint satisfaction, security and accuracy of networks on data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .command import measure

    app.command("measure")(measure)
