"""Critical radii and robustness distributions: four searches, two commands, statistics and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer

    from verifolio.plugin.account import Reader
    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.section import Section


@hookimpl
def register_estimators(registry: Registry[Estimator]) -> None:
    from .bracket import Bracket
    from .closest import ClosestSearch
    from .grid_search import Binary, KBinary
    from .many import Many

    for cls in (Bracket, Binary, KBinary, ClosestSearch, Many):
        registry.add(cls)


@hookimpl
def register_readers(registry: Registry[Reader]) -> None:
    from .account import DistributionReader

    registry.add(DistributionReader)


@hookimpl
def register_sections(registry: Registry[Section]) -> None:
    from .report import SECTIONS

    for cls in SECTIONS:
        registry.add(cls)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import make_commands
    from .critical import critical

    app.add_typer(make_commands(), name="distribution")
    add_command(app, "critical", critical)
