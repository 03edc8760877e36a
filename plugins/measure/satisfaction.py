"""The estimator `satisfaction`: around which of these inputs is a property proved, refuted or open?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import Claim, Estimator, OracleLike, Progress, silent
from verifolio.plugin.property import Property, Reference
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import PropertyStatus

from .metrics import Item, satisfaction


@dataclass(frozen=True, eq=False)
class SatisfactionRequest:
    """Networks (as many as the property is about) and the inputs it is asked of."""

    prop: Property
    networks: tuple[Network, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class Satisfied:
    """An item per reference."""

    items: tuple[Item, ...]


class Satisfaction(Estimator):
    """Constraint satisfaction (Casadio et al. 2022)."""

    name: ClassVar[str] = "satisfaction"
    Request: ClassVar[type] = SatisfactionRequest

    def run(self, request: SatisfactionRequest, oracle: OracleLike, progress: Progress = silent) -> Satisfied:
        items = [Item(k, r.label) for k, r in enumerate(request.references)]
        networks, references = request.networks, request.references
        return Satisfied(tuple(satisfaction(oracle, request.prop, networks, references, items, progress)))

    @classmethod
    def about_labels(
        cls, networks: Sequence[Network], reference: Reference, seconds: float
    ) -> tuple[Self, SatisfactionRequest] | None:
        if len(networks) != 1:
            return None
        return cls(), SatisfactionRequest(choose_property("classification"), tuple(networks), (reference,))

    def claims(self, request: SatisfactionRequest, result: Satisfied) -> tuple[Claim, ...]:
        pairs = zip(request.references, result.items, strict=True)
        return tuple(Claim(r.epsilon, (Fraction(1),)) for r, i in pairs if i.csat == PropertyStatus.PROVED)
