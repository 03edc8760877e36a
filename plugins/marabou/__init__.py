"""Marabou through its Python package (extra `marabou`): a simplex-based search over the phases of ReLUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.registry import Registry
    from verifolio.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Marabou

    registry.add(Marabou)
