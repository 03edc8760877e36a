"""Falsifiers: fgsm, one signed-gradient step, and pgd, many of them from many starts plus sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .falsifiers import Fgsm, Pgd

    registry.add(Fgsm)
    registry.add(Pgd)
