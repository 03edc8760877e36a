"""A family of queries around one input: the same condition on regions that grow with a radius."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.network import Network
from verifolio.problem import Ball, Domain, Problem
from verifolio.query import Query
from verifolio.vnnlib import Rows, box_case, make_rows, specification_from_cases

Array = NDArray[np.float64]
UNIT = 2.0**-52


@dataclass(frozen=True, eq=False)
class Family:
    """All inputs within a radius of `x` (in `norm`, inside the range), asked whether one is not `label`.

    `x`, `low`, `high` and every radius are in the units of the data. A network that expects normalised
    inputs gets (x - mean) / std; both are flat and as long as x. The condition is "some other output is at
    least as large as the label's", or `condition`. Radii need no exact boxes: boxes are rounded outward, so
    that a proof covers the true ball, and witnesses are measured.
    """

    network: Network
    x: Array
    label: int
    norm: float = math.inf
    low: float = 0.0
    high: float = 1.0
    mean: Array | None = None
    std: Array | None = None
    condition: tuple[Rows, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.norm not in (1, 2, math.inf):
            raise InputError("norm", "1, 2 or inf", repr(self.norm))
        if not math.isinf(self.norm) and self.std is not None and np.ptp(self.std) > 0:
            raise InputError(
                "normalisation", "one std for all channels", "several", "only linf balls stay boxes; use them"
            )
        if self.x.size != self.network.input_size:
            raise InputError(
                str(self.network.path),
                f"data with {self.network.input_size} values per input",
                f"{self.x.size} values",
                "choose the data this network was made for",
            )

    @cached_property
    def key(self) -> str:
        """A hash of everything that decides the critical radius."""
        digest = hashlib.sha256(f"{self.network.sha256}|{self.label}|{self.norm}".encode())
        digest.update(np.ascontiguousarray(self.x).tobytes())
        digest.update(np.array([self.low, self.high]).tobytes())
        for part in (self.mean, self.std):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        for rows in self.disjuncts:
            digest.update(repr(rows.linear_rows()).encode())
        return digest.hexdigest()

    @cached_property
    def disjuncts(self) -> tuple[Rows, ...]:
        """One per other class: y_label <= y_other. Ties count."""
        if self.condition is not None:
            return self.condition
        n, m = self.x.size, self.network.output_size
        if not 0 <= self.label < m:
            raise InputError("label", f"a class below {m}", str(self.label), "is this the right data set?")
        return tuple(
            make_rows([({n + self.label: 1.0, n + other: -1.0}, 0.0)])
            for other in range(m)
            if other != self.label
        )

    @property
    def largest(self) -> float:
        """A radius whose ball covers the whole range."""
        farthest = np.maximum(np.abs(self.x - self.low), np.abs(self.high - self.x))
        return float(np.linalg.norm(farthest, ord=self.norm)) * (1 + 4 * UNIT)

    def box(self, radius: float) -> tuple[Array, Array]:
        """The bounding box of the region, in the network's units, rounded outward."""
        lower = np.maximum(self.low, np.nextafter(self.x - radius, -np.inf))
        upper = np.minimum(self.high, np.nextafter(self.x + radius, np.inf))
        return self._to_network(lower, -1.0), self._to_network(upper, 1.0)

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
        return Ball(self._to_network(self.x, 0.0), (radius + rounding) / scale * (1 + 2 * UNIT), self.norm)

    def query(self, radius: float) -> Query:
        """Is there a counterexample within `radius`?"""
        case = box_case(*self.box(radius), self.disjuncts)
        specification = specification_from_cases([case], output_size=self.network.output_size)
        name = f"{self.name}@{radius:.9g}"
        return Query((self.network,), specification, self.ball(radius), name=name)

    def problem(self, radius: float, template: Problem) -> Problem:
        """The same question as `query`, without its text; `template` is any problem of the family."""
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

    def predict(self, x: Array | None = None) -> tuple[int, Array]:
        """The class ONNX Runtime gives an input in the units of the data, and all outputs."""
        outputs = self.network.replay(self._to_network(self.x if x is None else x, 0.0))
        return int(np.argmax(outputs)), outputs.astype(np.float64)

    def _to_network(self, values: Array, direction: float) -> Array:
        """Normalised values, rounded towards `direction` (0: to nearest)."""
        if self.mean is None and self.std is None:
            return values
        mean = np.zeros_like(values) if self.mean is None else self.mean
        std = np.ones_like(values) if self.std is None else self.std
        moved = (values - mean) / std
        return np.asarray(moved + direction * 4 * UNIT * (np.abs(values) + np.abs(mean)) / std)


def per_input(values: Sequence[float], shape: tuple[int, ...], what: str) -> Array | None:
    """One number for all inputs, or one per channel (the first axis), as a flat array."""
    if not values:
        return None
    size, channels = int(np.prod(shape)), shape[0]
    if len(values) not in (1, channels):
        raise InputError(
            f"--{what}", f"1 or {channels} numbers", str(len(values)), f"the data has shape {shape}"
        )
    if what == "std" and min(values) <= 0:
        raise InputError("--std", "positive numbers", str(min(values)))
    return np.repeat(np.asarray(values, np.float64), size // len(values))
