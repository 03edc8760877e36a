"""Monotonic outputs, ranges of outputs, and two networks that agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from verifolio.errors import InputError
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.options import described
from verifolio.plugin.property import Array, Growth, Points, Reference, build_query, check_networks
from verifolio.properties.formula import Y0, Y1, Y2, Formula, FormulaProperty, Term, Y, norm, term
from verifolio.properties.formula.terms import And

if TYPE_CHECKING:
    from torch import Tensor

LABEL = -1  # no index of an output
ALL = -1  # no index of an output


@dataclass(frozen=True)
class MonotonicOptions:
    """Options of `monotonic`."""

    features: tuple[int, ...] = described((), "The inputs that are raised; none named: all.")
    output: int = described(LABEL, "The output that must not go the wrong way; -1 is the label's.")
    direction: Literal["up", "down"] = described("up", "Where it must go.")
    tolerance: float = described(
        1e-3, "How far it may go the wrong way; at the reference nothing changes, so 0 could not be decided."
    )

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise InputError("option tolerance", "a positive number", repr(self.tolerance))


class Monotonic(FormulaProperty):
    """Raising features by up to epsilon, all others as they are, never moves an output the wrong way."""

    name: ClassVar[str] = "monotonic"
    Options: ClassVar[type] = MonotonicOptions
    needs_outputs: ClassVar[bool] = True

    def region(self, reference: Reference) -> tuple[Array, Array]:
        x = np.asarray(reference.x, np.float64).ravel()
        chosen = np.asarray(self.options.features or range(len(x)), np.int64)
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(x)):
            raise InputError("option features", f"positions from 0 to {len(x) - 1}", str(chosen.tolist()))
        upper = x.copy()
        upper[chosen] = reference.box[1][chosen]
        return x, upper

    def formula(self) -> Formula:
        move = Y - Y0
        change = move["label"] if self.options.output == LABEL else move[self.options.output]
        return (change if self.options.direction == "up" else -change) >= term(-self.options.tolerance)


@dataclass(frozen=True)
class RangeOptions:
    """Options of `output-range`."""

    lower: float = described(-math.inf, "The least legal value.")
    upper: float = described(math.inf, "The largest legal value.")
    output: int = described(ALL, "The output that is bounded; -1 is every output.")


class OutputRange(FormulaProperty):
    """Outputs stay within a range."""

    name: ClassVar[str] = "output-range"
    Options: ClassVar[type] = RangeOptions

    def formula(self) -> Formula:
        low, high = self.options.lower, self.options.upper
        if not low <= high or not (math.isfinite(low) or math.isfinite(high)):
            got = f"{low} to {high}"
            raise InputError("options lower, upper", "a range with at least one finite end", got)
        chosen = Y if self.options.output == ALL else Y[self.options.output]
        above = [chosen >= term(low)] if math.isfinite(low) else []
        below = [chosen <= term(high)] if math.isfinite(high) else []
        return And((*above, *below))


@dataclass(frozen=True)
class EquivalenceOptions:
    """Options of `equivalence`."""

    mode: Literal["outputs", "class"] = described(
        "outputs", "Outputs differ by at most delta, or the same class wins."
    )
    delta: float = described(0.1, "How far outputs may differ.")

    def __post_init__(self) -> None:
        if not self.delta >= 0:
            raise InputError("option delta", "a number, not negative", repr(self.delta))


class Equivalence(FormulaProperty):
    """Two networks on one shared input agree; in the mode `class` a tie for the first place is none."""

    name: ClassVar[str] = "equivalence"
    Options: ClassVar[type] = EquivalenceOptions
    networks: int = 2
    growth = Growth.FIXED

    def formula(self) -> Formula:
        if self.options.mode == "class":
            raise TypeError("which class wins depends on how many there are")
        return norm(Y1 - Y2) <= term(self.options.delta)

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        check_networks(self, networks)
        sizes = [n.output_size for n in networks]
        if sizes[0] != sizes[1]:
            raise InputError("property equivalence", "networks with as many outputs", f"{sizes}")
        if self.options.mode == "outputs":
            return super().query(networks, reference)
        disjuncts = [
            self.rows(networks, reference, And((_wins(Y1, i, sizes[0]), _wins(Y2, k, sizes[0]))))
            for i, k in permutations(range(sizes[0]), 2)
        ]
        return build_query(self, networks, reference, [rows for d in disjuncts for rows in d])

    def satisfied(self, points: Points) -> Tensor:
        if self.options.mode == "outputs":
            return super().satisfied(_halved(points))
        return self._apart(points) < 0

    def loss(self, points: Points) -> Tensor:
        if self.options.mode == "outputs":
            return super().loss(_halved(points))
        gap = self._apart(points)
        return gap.clamp_min(0) + (gap == 0)

    def violation(self, points: Points) -> Tensor:
        if self.options.mode == "outputs":
            return super().violation(_halved(points))
        return -self._apart(points)

    def _apart(self, points: Points) -> Tensor:
        """The least over classes of how much one network still prefers another class; below 0: they agree."""
        import torch

        found = []
        for scores in points.y.chunk(2, dim=1):
            top = scores.topk(2, dim=1)
            others = top.values[:, :1].expand_as(scores).scatter(1, top.indices[:, :1], top.values[:, 1:])
            found.append(others - scores)
        return torch.maximum(found[0], found[1]).amin(dim=1)


def _halved(points: Points) -> Points:
    """Both networks have as many outputs."""
    half = points.y.shape[1] // 2
    return replace(points, sizes=(half, half))


def _wins(scores: Term, i: int, classes: int) -> Formula:
    """No other class is above class i."""
    return scores[tuple(k for k in range(classes) if k != i)] <= scores[i]
