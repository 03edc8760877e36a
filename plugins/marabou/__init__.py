"""Marabou through its Python package (extra `marabou`): a simplex-based search over the phases of ReLUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Marabou

    registry.add(Marabou)


@hookimpl
def register_packages(packages: set[str]) -> None:
    packages |= {"maraboupy"}
