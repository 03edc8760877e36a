"""`verifolio train` and `verifolio cycle`: small, honest training for robustness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer

    from verifolio.plugin.regime import Regime
    from verifolio.plugin.registry import Registry


@hookimpl
def register_regimes(registry: Registry[Regime]) -> None:
    from .regimes import Adversarial, Augment, Baseline, Certified, Constraint

    for cls in (Baseline, Augment, Adversarial, Constraint, Certified):
        registry.add(cls)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .command import train
    from .cycle import cycle

    app.command("train")(train)
    app.command("cycle")(cycle)
