"""Strong classification robustness: the label's probability (or score) stays above a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from verifolio.errors import InputError
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.options import described
from verifolio.plugin.property import Growth, Points, Reference, check_label, check_labels
from verifolio.properties.formula import Formula, FormulaProperty, Y, term

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StrongOptions:
    """Options of `strong-classification`."""

    eta: float = described(0.52, "The least that the label must have.")
    scale: Literal["softmax", "outputs"] = described(
        "softmax", "Of the softmax of the outputs, or of the outputs as they are."
    )

    def __post_init__(self) -> None:
        if self.scale == "softmax" and not 0 < self.eta < 1:
            raise InputError("option eta", "a probability between 0 and 1", repr(self.eta))


class StrongClassification(FormulaProperty):
    """The label's probability is at least eta (SCR of Casadio et al. 2022).

    Softmax is no linear condition, so two queries enclose it. With K classes, all differences
    Y_l - Y_label <= ln((1 - eta) / (eta (K - 1))) suffice for the property, and a single difference above
    ln((1 - eta) / eta) breaks it. For two classes both are the same and the answer is exact; in between the
    property is left open.
    """

    name: ClassVar[str] = "strong-classification"
    Options: ClassVar[type] = StrongOptions
    growth = Growth.FIXED

    def formula(self) -> Formula:
        if self.options.scale == "outputs":
            return Y["label"] >= term(self.options.eta)
        raise TypeError("the softmax is no formula; ask `satisfied` or `query`")

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        classes = sum(n.output_size for n in networks)
        check_label(self, reference.label, classes)
        if self.options.scale == "outputs":
            return super().query(networks, reference)
        if classes < 2:
            raise InputError(f"property {self.name}", "at least 2 outputs", str(classes), "use scale=outputs")
        limit = self._limit(classes - 1, -1)
        return self.query_for(networks, reference, Y["others"] - Y["label"] <= limit)

    def refutation(self, networks: Sequence[Network], reference: Reference) -> Query | None:
        classes = sum(n.output_size for n in networks)
        if self.options.scale == "outputs" or classes == 2:
            return None
        limit = self._limit(1, 1)
        return self.query_for(networks, reference, Y["others"] - Y["label"] <= limit)

    def _limit(self, others: int, side: int) -> float:
        """ln((1 - eta) / (eta * others)), rounded down (side -1) or up (side 1)."""
        eta = self.options.eta
        odds, rest = math.log((1 - eta) / eta), math.log(others)
        # 1 - eta, the quotient, two logarithms and their difference round once or twice each
        return odds - rest + side * 2.0**-49 * (1 + abs(odds) + rest)

    def satisfied(self, points: Points) -> Tensor:
        return super().satisfied(points) if self.options.scale == "outputs" else self._missing(points) <= 0

    def loss(self, points: Points) -> Tensor:
        if self.options.scale == "outputs":
            return super().loss(points)
        return self._missing(points).clamp_min(0)

    def violation(self, points: Points) -> Tensor:
        return super().violation(points) if self.options.scale == "outputs" else -self._missing(points)

    def _missing(self, points: Points) -> Tensor:
        """ln eta - ln softmax(y)[label]: how much of the logarithm is missing."""
        import torch

        check_labels(points.labels, points.y.shape[1])
        chosen = torch.log_softmax(points.y, dim=1).gather(1, points.labels[:, None])[:, 0]
        return math.log(self.options.eta) - chosen
