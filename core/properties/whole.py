"""Properties of inputs some of whose features only have whole values: branch and bound on these features.

A proof for all real values covers the whole ones. A counterexample with a fraction is none: the box is split there,
and both halves are asked (Land and Doig 1960).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.model.answer import Answer, Verdict
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Array, Asking, Growth, Points, Property, Reference
from verifolio.vnnlib import box_case, specification_from_cases

if TYPE_CHECKING:
    from torch import Tensor

MOST_BOXES = 256  # that one input is split into; each is a query of its own


class Whole(Property):
    """`inner` for inputs whose features at `positions` are whole numbers."""

    growth = Growth.OTHER
    growth_reason = "whole features: where they must change by 1, smaller radii say nothing"

    def __init__(self, inner: Property, positions: Sequence[int]) -> None:
        super().__init__(inner.options)
        self.inner, self.positions = inner, np.asarray(positions, np.int64)
        self.name, self.networks = inner.name, inner.networks  # type: ignore[misc]
        self.needs_outputs = inner.needs_outputs  # type: ignore[misc]

    @property
    def key(self) -> str:
        return f"{self.inner.key} whole {self.positions.tolist()}"

    def region(self, reference: Reference) -> tuple[Array, Array]:
        """The inner region, its whole features rounded inward."""
        lower, upper = (side.copy() for side in self.inner.region(reference))
        k = self.positions
        wrong = k[np.asarray(reference.x)[k] != np.round(np.asarray(reference.x)[k])]
        if len(wrong):
            got = f"{reference.x[wrong[0]]:g} at position {wrong[0]}"
            raise InputError("whole features", "inputs whose whole features are whole", got, "leave it out")
        lower[k], upper[k] = np.ceil(lower[k]), np.floor(upper[k])
        return lower, upper

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        return self._within(networks, reference, *self.region(reference))

    def refutation(self, networks: Sequence[Network], reference: Reference) -> Query | None:
        """The features as they are at the input: what is found there has no fractions."""
        lower, upper = self.region(reference)
        x, k = np.asarray(reference.x, np.float64), self.positions
        lower[k], upper[k] = x[k], x[k]
        inner = self.inner.refutation(networks, reference)
        return _boxed(inner or self.inner.query(networks, reference), lower, upper)

    def settle(self, networks: Sequence[Network], reference: Reference) -> Asking[Answer | None]:
        """Branch and bound; None where it cannot decide."""
        if self.inner.refutation(networks, reference) is not None:
            return None
        waiting, asked, proof = [self.region(reference)], 0, None
        while waiting:
            lower, upper = waiting.pop()
            if asked >= MOST_BOXES:
                return None
            asked += 1
            answer = yield self._within(networks, reference, lower, upper)
            if answer.verdict is Verdict.UNSAT:
                proof = answer
                continue
            if answer.witness is None:
                return None
            at = answer.witness.x[self.positions].astype(np.float64)
            if bool((at == np.round(at)).all()):
                return answer
            low, high = lower.copy(), upper.copy()
            low[self.positions] = high[self.positions] = np.round(at)
            near = yield self._within(networks, reference, low, high)
            if near.verdict is Verdict.SAT:
                return near
            waiting += self._halves(lower, upper, at)
        return proof

    def _halves(self, lower: Array, upper: Array, at: Array) -> list[tuple[Array, Array]]:
        """The box below and above the most fractional value."""
        worst = int(np.argmax(np.abs(at - np.round(at))))
        k, value = self.positions[worst], at[worst]
        below, above = upper.copy(), lower.copy()
        below[k], above[k] = np.floor(value), np.ceil(value)
        return [(lower, below), (above, upper)]

    def _within(self, networks: Sequence[Network], reference: Reference, lower: Array, upper: Array) -> Query:
        return _boxed(self.inner.query(networks, reference), lower, upper)

    def satisfied(self, points: Points) -> Tensor:
        """Points with fractions are none, so nothing is violated there."""
        part = points.x[:, self.positions]
        return self.inner.satisfied(points) | (part != part.round()).any(dim=1)

    def loss(self, points: Points) -> Tensor:
        return self.inner.loss(points)


def _boxed(query: Query, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> Query:
    """The same condition on another box."""
    (case,) = query.specification.cases
    size = sum(n.output_size for n in query.networks)
    specification = specification_from_cases([box_case(lower, upper, case.disjuncts)], output_size=size)
    return replace(query, specification=specification)
