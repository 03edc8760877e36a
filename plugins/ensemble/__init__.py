"""Ensembles: attacks on several networks at once, exact games, and the selection of diverse members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer

    from verifolio.plugin.account import Reader
    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.property import Property
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_properties(registry: Registry[Property]) -> None:
    from .joint import SimultaneousMisclassification

    registry.add(SimultaneousMisclassification)


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .joint_gradient import JointGradient

    registry.add(JointGradient)


@hookimpl
def register_estimators(registry: Registry[Estimator]) -> None:
    from .attack import EnsembleAttack
    from .selection import EnsembleSelection

    registry.add(EnsembleAttack)
    registry.add(EnsembleSelection)


@hookimpl
def register_readers(registry: Registry[Reader]) -> None:
    from .account import EnsembleReader

    registry.add(EnsembleReader)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .commands import make_commands

    app.add_typer(make_commands(), name="ensemble")
