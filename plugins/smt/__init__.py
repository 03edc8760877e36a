"""Satisfiability modulo linear real arithmetic: the verifier `smt`, exact, on z3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Smt

    registry.add(Smt)


@hookimpl
def register_packages(packages: set[str]) -> None:
    packages |= {"z3-solver"}
