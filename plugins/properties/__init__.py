"""Properties around an input: robustness in its several meanings, ranges, equivalence, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.property import Property
    from verifolio.plugin.registry import Registry


@hookimpl
def register_properties(registry: Registry[Property]) -> None:
    from verifolio.plugins.properties.classification import Classification
    from verifolio.plugins.properties.distances import Lipschitz, Standard
    from verifolio.plugins.properties.file import Vnnlib
    from verifolio.plugins.properties.outputs import Equivalence, Monotonic, OutputRange
    from verifolio.plugins.properties.strong import StrongClassification
    from verifolio.plugins.properties.targets import Targeted, TopK

    for cls in (
        Classification,
        StrongClassification,
        Standard,
        Lipschitz,
        Targeted,
        TopK,
        Monotonic,
        Equivalence,
        OutputRange,
        Vnnlib,
    ):
        registry.add(cls)
