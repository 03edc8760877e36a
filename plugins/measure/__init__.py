"""`verifolio measure`: constraint satisfaction, security and accuracy of networks on data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer

    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.registry import Registry


@hookimpl
def register_estimators(registry: Registry[Estimator]) -> None:
    from .satisfaction import Satisfaction

    registry.add(Satisfaction)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import measure

    add_command(app, "measure", measure)
