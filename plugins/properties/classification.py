"""Classification robustness: the label keeps the highest score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import (
    Growth,
    Points,
    Property,
    Reference,
    build_query,
    check_label,
    check_labels,
)
from verifolio.vnnlib import make_rows

if TYPE_CHECKING:
    from torch import Tensor


class Classification(Property):
    """The label's score is above every other one; a tie is a violation (CR of Casadio et al. 2022)."""

    name: ClassVar[str] = "classification"
    by_order: ClassVar[bool] = True
    growth = Growth.FIXED

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        inputs, outputs = len(reference.x), sum(n.output_size for n in networks)
        check_label(self, reference.label, outputs)
        winner = inputs + reference.label
        others = [inputs + i for i in range(outputs) if i != reference.label]
        # Y_l >= Y_label as Y_label - Y_l <= 0
        return build_query(
            self, networks, reference, [make_rows([({winner: 1.0, o: -1.0}, 0.0)]) for o in others]
        )

    def satisfied(self, points: Points) -> Tensor:
        return (gaps(points) < 0).all(dim=1)

    def loss(self, points: Points) -> Tensor:
        gap = gaps(points)
        return (gap.clamp_min(0) + (gap == 0)).sum(dim=1)

    def violation(self, points: Points) -> Tensor:
        """Any class that comes closest will do, so the smallest gap stands for the product of all."""
        return -gaps(points).amax(dim=1)


def gaps(points: Points) -> Tensor:
    """Every other class's score minus the label's, (B, K); -inf at the label itself."""
    import torch

    check_labels(points.labels, points.y.shape[1])
    label = points.labels[:, None]
    difference = points.y - points.y.gather(1, label)
    return difference.scatter(1, label, -torch.inf)
