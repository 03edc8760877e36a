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
from verifolio.model.neighbourhood import Neighbourhood
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values_at import classes_at
from verifolio.plugin.property import Asking, Growth, Property, Reference
from verifolio.properties.verdict import Finding, Inquiry, PropertyStatus, inquire
from verifolio.vnnlib import Rows, make_rows

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Family:
    """All inputs within a radius of `x` (in `norm`, inside the range), asked whether one violates `prop`.

    `x`, `low`, `high` and every radius are in the units of the data. A network that expects normalised
    inputs gets (x - mean) / std; both are flat and as long as x, and the property speaks of what the network
    gets. Without a property, the label must stay on top. Radii need no exact boxes: boxes are rounded outward,
    so that a proof covers the true ball, and witnesses are measured.

    Workers get what the property said, `around`. That is the whole property only if it is `fixed`, so they get no
    others.
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
    known_class: int | None = None  # the class of x, where it was computed already

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
    def ground(self) -> Neighbourhood:
        """The geometry, without a condition."""
        place = (self.networks, self.x, self.norm, self.low, self.high, self.mean, self.std)
        return Neighbourhood(*place, name=self.name)

    @cached_property
    def around(self) -> Neighbourhood:
        """What a worker gets of a fixed family: a condition in place of the property, which may be a file's."""
        told = replace(self.ground, condition=self.disjuncts, refuting=self.refuting_disjuncts)
        return told if self.prop is None else replace(told, limits=self.prop.region(self.at(self.largest)))

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
            return None
        query = self.prop.refutation(self.networks, self.at(self.largest))
        return None if query is None else _disjuncts(query)

    @property
    def largest(self) -> float:
        """A radius whose ball covers the whole range."""
        return self.ground.largest

    def box(self, radius: float) -> tuple[Array, Array]:
        """The bounding box of the region, in the network's units, rounded outward."""
        return self.ground.box(radius)

    def ball(self, radius: float) -> Ball | None:
        """The ball in the network's units, where the region is no box."""
        return self.ground.ball(radius)

    def network_ball(self, radius: float) -> Ball | None:
        """The ball in the network's units, for any norm; None where normalisation makes it no ball."""
        return self.ground.network_ball(radius)

    @cached_property
    def _origin(self) -> Reference:
        low, high = np.full_like(self.x, self.low), np.full_like(self.x, self.high)
        lower, upper = self.ground.to_network(low, -1.0), self.ground.to_network(high, 1.0)
        found = Reference(self.clean, self.label, 0.0, self.norm, lower, upper, geometry=self)
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
            inquiry.answer((yield replace(inquiry.query, name=self.ground.called(radius))))
        if inquiry.result is None:
            raise TypeError("an inquiry that ends with nothing")
        return inquiry.result

    def query(self, radius: float) -> Query:
        """Is there a counterexample within `radius`? UNSAT proves the property there."""
        if self.prop is not None:
            return replace(self.prop.query(self.networks, self.at(radius)), name=self.ground.called(radius))
        return self.around.query(radius)

    def refutation(self, radius: float) -> Query:
        """The query within `radius` all of whose counterexamples violate the property."""
        if self.prop is not None:
            found = self.prop.refutation(self.networks, self.at(radius))
            return self.query(radius) if found is None else replace(found, name=self.ground.called(radius))
        return self.around.refutation(radius)

    def candidate_query(self, point: NDArray[np.floating]) -> Query:
        """What a known violation is judged by."""
        if self.prop is None:
            return self.refutation(self.largest)
        return self.prop.candidate_query(self.networks, self.at(self.largest), np.asarray(point, np.float64))

    def to_data(self, point: NDArray[np.floating]) -> Array:
        """A network input in the units of the data."""
        return self.ground.to_data(point)

    def distance(self, point: NDArray[np.floating]) -> float:
        """How far a network input is from x, in the units of the data."""
        return self.ground.distance(point)

    @property
    def clean(self) -> Array:
        """x as the network reads it."""
        return self.ground.to_network(self.x, 0.0)

    @cached_property
    def predicted(self) -> int:
        """The class that ONNX Runtime gives x."""
        return self.class_of(self.clean) if self.known_class is None else self.known_class

    def class_of(self, point: NDArray[np.floating]) -> int:
        """The class that ONNX Runtime gives a network input."""
        (found,) = self.network.compute(classes_at, self.network, [point])
        return found


def asked(query: Query) -> Asking[Finding]:
    """One query that both proves and refutes."""
    answer = yield query
    if answer.verdict.decided:
        status = PropertyStatus.PROVED if answer.verdict is Verdict.UNSAT else PropertyStatus.REFUTED
        return Finding(status, answer, answers=(answer,))
    return Finding(PropertyStatus.OPEN, answer, answer.reason, (answer,))


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
