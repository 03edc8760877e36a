"""A property around one input, at any radius: the queries, regions and distances that searches need."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Asking, Growth, Property, Reference
from verifolio.properties.verdict import Finding, Inquiry, Status, inquire
from verifolio.vnnlib import Rows, box_case, make_rows, specification_from_cases

Array = NDArray[np.float64]
UNIT = 2.0**-52


@dataclass(frozen=True, eq=False)
class Family:
    """All inputs within a radius of `x` (in `norm`, inside the range), asked whether one violates `prop`.

    `x`, `low`, `high` and every radius are in the units of the data. A network that expects normalised
    inputs gets (x - mean) / std; both are flat and as long as x, and the property speaks of what the network
    gets. Without a property, the label must stay on top. Radii need no exact boxes: boxes are rounded outward,
    so that a proof covers the true ball, and witnesses are measured.

    A worker gets a family without its property, which may come from a file, but with what the property said:
    the `condition` to disprove, the one that `refuting` points satisfy, and the `limits` of its region. That is
    the whole property only if it is `fixed`, so workers get no others.
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
    prop: Property | None = None
    partners: tuple[Network, ...] = ()  # further networks on the same input
    refuting: tuple[Rows, ...] | None = None
    limits: tuple[Array, Array] | None = None

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

    def __getstate__(self) -> dict[str, object]:
        fields = {k: v for k, v in self.__dict__.items() if k in self.__dataclass_fields__}
        if self.prop is None:
            return fields
        limits = self.prop.region(self.at(self.largest))
        told = {"condition": self.disjuncts, "refuting": self.refuting_disjuncts, "limits": limits}
        return fields | told | {"prop": None}

    @property
    def networks(self) -> tuple[Network, ...]:
        return (self.network, *self.partners)

    @cached_property
    def key(self) -> str:
        """A hash of everything that decides the critical radius."""
        hashes = " ".join(n.sha256 for n in self.networks)
        digest = hashlib.sha256(f"{hashes}|{self.label}|{self.norm}".encode())
        digest.update(np.ascontiguousarray(self.x).tobytes())
        digest.update(np.array([self.low, self.high]).tobytes())
        for part in (self.mean, self.std):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        digest.update(b"-" if self.prop is None else self.prop.key.encode())
        for rows in self.disjuncts if self.fixed else ():
            digest.update(repr(rows.linear_rows()).encode())
        return digest.hexdigest()

    @property
    def fixed(self) -> bool:
        """Whether every radius has the same output condition, so that bounds and attacks may use one for all."""
        return self.prop is None or self.prop.growth is Growth.FIXED

    @property
    def exact(self) -> bool:
        """Whether one condition both proves and refutes, at every radius."""
        return self.fixed and self.refuting_disjuncts is None

    @cached_property
    def disjuncts(self) -> tuple[Rows, ...]:
        """What a proof shows to be impossible. By default one row per other class: y_label <= y_other."""
        if self.condition is not None:
            return self.condition
        if self.prop is not None:
            return _disjuncts(self.query(self.largest))
        n, m = self.x.size, self.network.output_size
        if not 0 <= self.label < m:
            raise InputError("label", f"a class below {m}", str(self.label), "is this the right data set?")
        return tuple(
            make_rows([({n + self.label: 1.0, n + other: -1.0}, 0.0)])
            for other in range(m)
            if other != self.label
        )

    @cached_property
    def refuting_disjuncts(self) -> tuple[Rows, ...] | None:
        """What refutes the property, where that is not all that a proof shows to be impossible."""
        if self.prop is None:
            return self.refuting
        query = self.prop.refutation(self.networks, self.at(self.largest))
        return None if query is None else _disjuncts(query)

    @property
    def largest(self) -> float:
        """A radius whose ball covers the whole range."""
        farthest = np.maximum(np.abs(self.x - self.low), np.abs(self.high - self.x))
        return float(np.linalg.norm(farthest, ord=self.norm)) * (1 + 4 * UNIT)

    def box(self, radius: float) -> tuple[Array, Array]:
        """The bounding box of the region, in the network's units, rounded outward."""
        lower = np.maximum(self.low, np.nextafter(self.x - radius, -np.inf))
        upper = np.minimum(self.high, np.nextafter(self.x + radius, np.inf))
        lower, upper = self._to_network(lower, -1.0), self._to_network(upper, 1.0)
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
        return Ball(self._to_network(self.x, 0.0), (radius + rounding) / scale * (1 + 2 * UNIT), self.norm)

    @cached_property
    def _origin(self) -> Reference:
        low, high = np.full_like(self.x, self.low), np.full_like(self.x, self.high)
        lower, upper = self._to_network(low, -1.0), self._to_network(high, 1.0)
        x = self._to_network(self.x, 0.0)
        found = Reference(x, self.label, 0.0, self.norm, lower, upper, geometry=self)
        needed = self.prop is not None and (self.prop.needs_outputs or self.partners)
        return found.with_outputs(self.networks) if needed else found

    def at(self, radius: float) -> Reference:
        """The reference of this radius."""
        return replace(self._origin, epsilon=radius)

    def inquiry(self, radius: float) -> Asking[Finding]:
        """Does the property hold within `radius`? Yields queries, is sent answers, returns a finding."""
        asking = asked(self.query(radius)) if self.prop is None else self._inquire(radius)
        return (yield from asking)

    def _inquire(self, radius: float) -> Asking[Finding]:
        """The property's own inquiry, with our names on its queries."""
        if self.prop is None:
            raise TypeError("a family without a property")
        inquiry = Inquiry(inquire(self.prop, self.networks, self.at(radius)))
        while inquiry.query is not None:
            inquiry.answer((yield replace(inquiry.query, name=self._name(radius))))
        if inquiry.result is None:
            raise TypeError("an inquiry that ends with nothing")
        return inquiry.result

    def query(self, radius: float) -> Query:
        """Is there a counterexample within `radius`? UNSAT proves the property there."""
        if self.prop is not None:
            return replace(self.prop.query(self.networks, self.at(radius)), name=self._name(radius))
        return self._query(radius, self.disjuncts)

    def refutation(self, radius: float) -> Query:
        """The query within `radius` all of whose counterexamples violate the property."""
        if self.prop is not None:
            found = self.prop.refutation(self.networks, self.at(radius))
            return self.query(radius) if found is None else replace(found, name=self._name(radius))
        return self._query(radius, self.disjuncts if self.refuting is None else self.refuting)

    def candidate_query(self, point: NDArray[np.floating]) -> Query:
        """What a known violation is judged by."""
        if self.prop is None:
            return self.refutation(self.largest)
        return self.prop.candidate_query(self.networks, self.at(self.largest), np.asarray(point, np.float64))

    def _query(self, radius: float, disjuncts: Sequence[Rows]) -> Query:
        case = box_case(*self.box(radius), disjuncts)
        size = sum(n.output_size for n in self.networks)
        specification = specification_from_cases([case], output_size=size)
        shared = len(self.networks) > 1
        return Query(self.networks, specification, self.ball(radius), shared, self._name(radius))

    def _name(self, radius: float) -> str:
        return f"{self.name}@{radius:.9g}"

    def problem(self, radius: float, template: Problem) -> Problem:
        """The same question as `template`, which is any problem of a fixed family, at another radius."""
        lower, upper = self.box(radius)
        return replace(template, domain=Domain(lower, upper, None, self.ball(radius)))

    def holds(self, x: Array) -> bool:
        """Whether the property holds at an input in the units of the data, as ONNX Runtime computes it."""
        inside = self._to_network(x, 0.0)
        outputs = np.concatenate([n.replay(inside) for n in self.networks]).astype(np.float64)
        if self.prop is None:
            return bool(np.delete(outputs, self.label).max(initial=-math.inf) < outputs[self.label])
        return self.prop.holds(outputs, self.at(self.largest), inside)

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


def asked(query: Query) -> Asking[Finding]:
    """One query that both proves and refutes."""
    answer = yield query
    if answer.verdict.decided:
        status = Status.PROVED if answer.verdict is Verdict.UNSAT else Status.REFUTED
        return Finding(status, answer, answers=(answer,))
    return Finding(Status.OPEN, answer, answer.reason, (answer,))


def _disjuncts(query: Query) -> tuple[Rows, ...]:
    cases = query.specification.cases
    if len(cases) != 1:
        raise InputError(query.name, "one input region", str(len(cases)), "choose another property")
    return cases[0].disjuncts


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
