"""`verifolio train` and `verifolio cycle`: small, honest training for robustness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .command import train
    from .cycle import cycle

    app.command("train")(train)
    app.command("cycle")(cycle)
