"""The studies of five papers, repeated: `verifolio study` measures their tables and figures and writes pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import study

    add_command(app, "study", study)
