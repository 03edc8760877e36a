"""Neighbourhood: one question around one input, at any radius, in the compact form that travels to a worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Ball, Domain, Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.vnnlib import Rows, box_case, specification_from_cases

Array = NDArray[np.float64]
UNIT = 2.0**-52  # twice the unit roundoff of float64


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """All inputs within a radius of `x` (in `norm`, inside the range): does one satisfy the `condition`?

    `x`, `low`, `high` and every radius are in the units of the data. A network that expects normalised
    inputs gets (x - mean) / std; both are flat and as long as x. Boxes are rounded outward, so that a proof
    covers the true ball, and witnesses are measured. Where not every solution of the condition is a violation,
    those of the `refuting` one are. `limits` narrow the box further, in the network's units.
    """

    networks: tuple[Network, ...]
    x: Array
    norm: float = math.inf
    low: float = 0.0
    high: float = 1.0
    mean: Array | None = None
    std: Array | None = None
    condition: tuple[Rows, ...] = ()
    refuting: tuple[Rows, ...] | None = None
    limits: tuple[Array, Array] | None = None
    name: str = ""

    @property
    def affinity(self) -> str:
        return "".join(n.sha256 for n in self.networks)

    @property
    def largest(self) -> float:
        """A radius whose ball covers the whole range."""
        farthest = np.maximum(np.abs(self.x - self.low), np.abs(self.high - self.x))
        return float(np.linalg.norm(farthest, ord=self.norm)) * (1 + 4 * UNIT)

    @property
    def centre(self) -> Array:
        """The input as the network gets it, moved into the box."""
        low, high = self.box(0.0)
        return (low + high) / 2

    def box(self, radius: float) -> tuple[Array, Array]:
        """The bounding box of the region, in the network's units, rounded outward."""
        lower = np.maximum(self.low, np.nextafter(self.x - radius, -np.inf))
        upper = np.minimum(self.high, np.nextafter(self.x + radius, np.inf))
        lower, upper = self.to_network(lower, -1.0), self.to_network(upper, 1.0)
        if self.limits is None:
            return lower, upper
        return np.maximum(lower, self.limits[0]), np.minimum(upper, self.limits[1])

    def ball(self, radius: float) -> Ball | None:
        """The ball in the network's units, where the region is no box."""
        if math.isinf(self.norm):
            return None
        return self.network_ball(radius)

    def network_ball(self, radius: float) -> Ball | None:
        """The ball in the network's units, for any norm; None where normalisation makes it no ball."""
        scale = 1.0
        if self.std is not None:
            if np.ptp(self.std) > 0:
                return None
            scale = float(self.std[0])
        rounding = 4 * UNIT * radius
        if self.mean is not None or self.std is not None:
            # The centre fl((x - mean) / std) is off by at most 2 roundings of (|x_i| + |mean_i|) / std in each
            # coordinate, that is UNIT times it, and the ball has to grow by the norm of all these errors: up to n
            # times the largest for L1. Doubled for the norm's own rounding, which is far below 1 for any n in use.
            mean = 0.0 if self.mean is None else np.abs(self.mean)
            rounding += 2 * UNIT * float(np.linalg.norm(np.abs(self.x) + mean, ord=self.norm))
        # the last sum and the quotient are rounded once each
        return Ball(self.to_network(self.x, 0.0), (radius + rounding) / scale * (1 + 2 * UNIT), self.norm)

    def query(self, radius: float) -> Query:
        """Is there a counterexample within `radius`? UNSAT proves that there is none."""
        return self._query(radius, self.condition)

    def refutation(self, radius: float) -> Query:
        """The query within `radius` all of whose counterexamples are violations."""
        return self._query(radius, self.condition if self.refuting is None else self.refuting)

    def _query(self, radius: float, disjuncts: Sequence[Rows]) -> Query:
        case = box_case(*self.box(radius), disjuncts)
        size = sum(n.output_size for n in self.networks)
        specification = specification_from_cases([case], output_size=size)
        shared = len(self.networks) > 1
        return Query(self.networks, specification, self.ball(radius), shared, self.called(radius))

    def called(self, radius: float) -> str:
        """The name of the query of a radius."""
        return f"{self.name}@{radius:.9g}"

    def problem(self, radius: float, template: Problem) -> Problem:
        """The same question as `template`, which is any problem of this neighbourhood, at another radius."""
        lower, upper = self.box(radius)
        return replace(template, domain=Domain(lower, upper, None, self.ball(radius)))

    def to_data(self, point: NDArray[np.floating]) -> Array:
        """A network input in the units of the data."""
        values = np.asarray(point, np.float64).ravel()
        if self.std is not None:
            values = values * self.std
        return values if self.mean is None else values + self.mean

    def distance(self, point: NDArray[np.floating]) -> float:
        """How far a network input is from x, in the units of the data."""
        return float(np.linalg.norm(self.to_data(point) - self.x, ord=self.norm))

    def to_network(self, values: Array, direction: float) -> Array:
        """Normalised values, rounded towards `direction` (0: to nearest)."""
        if self.mean is None and self.std is None:
            return values
        mean = np.zeros_like(values) if self.mean is None else self.mean
        std = np.ones_like(values) if self.std is None else self.std
        moved = (values - mean) / std
        return np.asarray(moved + direction * 4 * UNIT * (np.abs(values) + np.abs(mean)) / std)
