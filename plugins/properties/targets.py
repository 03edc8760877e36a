"""Targeted and top-k robustness: weaker demands than keeping the label on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, ClassVar

from verifolio.errors import InputError
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.options import described
from verifolio.plugin.property import (
    Growth,
    Points,
    Property,
    Reference,
    build_query,
    check_label,
    check_labels,
    check_networks,
)
from verifolio.plugins.properties.classification import gaps
from verifolio.vnnlib import make_rows

if TYPE_CHECKING:
    from torch import Tensor

RUNNER_UP = -1  # no index of a class
MAX_DISJUNCTS = 5000  # sets of k classes; a verifier works on each


@dataclass(frozen=True)
class TargetOptions:
    """Options of `targeted`."""

    target: int = described(
        RUNNER_UP, "The class that nobody should reach; -1 is the runner-up at the reference."
    )


class Targeted(Property):
    """No point is classified as the target: some other score is above it. Vacuous if it is the label."""

    name: ClassVar[str] = "targeted"
    Options: ClassVar[type] = TargetOptions
    needs_outputs: ClassVar[bool] = True
    growth = Growth.FIXED

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        check_networks(self, networks)
        outputs, start = networks[0].output_size, len(reference.x)
        check_label(self, reference.label, outputs)
        if outputs < 2:
            raise InputError("property targeted", "at least 2 outputs", str(outputs), "use output-range")
        self._check_target(outputs)
        target = self.options.target
        if target == RUNNER_UP:
            found = reference.with_outputs(networks).outputs
            scores = {i: v for i, v in enumerate(() if found is None else found) if i != reference.label}
            target = max(scores, key=scores.__getitem__)
        if target == reference.label:
            return build_query(self, networks, reference, [])
        beaten = [({start + i: 1.0, start + target: -1.0}, 0.0) for i in range(outputs) if i != target]
        return build_query(self, networks, reference, [make_rows(beaten)])

    def satisfied(self, points: Points) -> Tensor:
        lead, vacuous = self._lead(points)
        return (lead < 0).any(dim=1) | vacuous

    def loss(self, points: Points) -> Tensor:
        from verifolio.properties.formula.evaluate import alternatives

        lead, vacuous = self._lead(points)
        return alternatives(lead.clamp_min(0) + (lead == 0)).masked_fill(vacuous, 0.0)

    def violation(self, points: Points) -> Tensor:
        return -self._lead(points)[0].amin(dim=1)

    def _lead(self, points: Points) -> tuple[Tensor, Tensor]:
        """The target's score minus every other one, (B, K - 1), and whether the label is the target."""
        import torch

        self._check_target(points.y.shape[1])
        check_labels(points.labels, points.y.shape[1])
        if self.options.target == RUNNER_UP:
            target = points.y0.scatter(1, points.labels[:, None], -torch.inf).argmax(dim=1)
        else:
            target = torch.full_like(points.labels, self.options.target)
        others = torch.arange(points.y.shape[1] - 1, device=points.y.device)[None]
        others = others + (others >= target[:, None])
        return points.y.gather(1, target[:, None]) - points.y.gather(1, others), target == points.labels

    def _check_target(self, outputs: int) -> None:
        if not RUNNER_UP <= self.options.target < outputs:
            raise InputError("option target", f"-1 to {outputs - 1}", str(self.options.target))


@dataclass(frozen=True)
class TopKOptions:
    """Options of `top-k`."""

    k: int = described(2, "How many classes are on top.")


class TopK(Property):
    """The label is among the k highest scores: fewer than k others reach it; a tie counts against it."""

    name: ClassVar[str] = "top-k"
    by_order: ClassVar[bool] = True
    Options: ClassVar[type] = TopKOptions
    growth = Growth.FIXED

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        check_networks(self, networks)
        outputs, start, k = networks[0].output_size, len(reference.x), self.options.k
        check_label(self, reference.label, outputs)
        self._check_k(outputs)
        if comb(outputs - 1, k) > MAX_DISJUNCTS:
            got = f"{comb(outputs - 1, k)} sets of {k} classes"
            raise InputError("option k", f"at most {MAX_DISJUNCTS} sets", got, "choose a smaller k")
        others = [start + i for i in range(outputs) if i != reference.label]
        label = start + reference.label
        disjuncts = [make_rows([({label: 1.0, o: -1.0}, 0.0) for o in s]) for s in combinations(others, k)]
        return build_query(self, networks, reference, disjuncts)

    def satisfied(self, points: Points) -> Tensor:
        return self._kth(points) < 0

    def loss(self, points: Points) -> Tensor:
        gap = self._kth(points)
        return gap.clamp_min(0) + (gap == 0)

    def violation(self, points: Points) -> Tensor:
        return -self._kth(points)

    def _kth(self, points: Points) -> Tensor:
        """The k-th largest of the other scores minus the label's."""
        self._check_k(points.y.shape[1])
        return gaps(points).topk(self.options.k, dim=1).values[:, -1]

    def _check_k(self, outputs: int) -> None:
        if not 1 <= self.options.k < outputs:
            raise InputError("option k", f"a number from 1 to {outputs - 1}", str(self.options.k))
