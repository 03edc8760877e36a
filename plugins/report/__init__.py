"""What a run came to, for people: `verifolio report`, `verifolio watch` and `verifolio show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer

    from verifolio.plugin.account import Reader
    from verifolio.plugin.registry import Registry


@hookimpl
def register_readers(registry: Registry[Reader]) -> None:
    from .answers import AnswerReader
    from .findings import FindingReader

    registry.add(FindingReader)
    registry.add(AnswerReader)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import report, show, watch

    add_command(app, "report", report)
    add_command(app, "watch", watch)
    add_command(app, "show", show)
