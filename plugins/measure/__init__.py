"""`verifolio measure`: constraint satisfaction, security and accuracy of networks on data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import measure

    add_command(app, "measure", measure)
