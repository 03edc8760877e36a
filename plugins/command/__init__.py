"""Other people's verifiers as members: one class for every tool that a YAML file describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .description import described
    from .verifier import make_class

    for description in described():
        registry.add(make_class(description))
