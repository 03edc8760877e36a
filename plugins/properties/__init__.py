"""Properties around an input: robustness in its several meanings, ranges, equivalence, files and formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.property import Property
    from verifolio.registry import Registry


@hookimpl
def register_properties(registry: Registry[Property]) -> None:
    from verifolio.plugins.properties.classification import Classification

    registry.add(Classification)
