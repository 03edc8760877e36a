"""Pointwise falsifiers: `pointwise-lp`, a linear program per activation pattern, and the baseline `lbfgs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.registry import Registry
    from verifolio.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Lbfgs, PointwiseLp

    registry.add(PointwiseLp)
    registry.add(Lbfgs)
