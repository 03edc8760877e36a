"""`verifolio fuzz`: random networks and properties of known truth against every installed verifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .command import fuzz

    app.command("fuzz")(fuzz)
