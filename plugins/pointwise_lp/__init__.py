"""Pointwise falsifiers: `pointwise-lp`, a linear program per activation pattern, and the baseline `lbfgs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Lbfgs, PointwiseLp

    registry.add(PointwiseLp)
    registry.add(Lbfgs)


@hookimpl
def register_packages(packages: set[str]) -> None:
    packages |= {"highspy"}
