"""The property interface: a definition that turns an input into queries, a loss, and a yes or no."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.model.answer import Answer
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.options import NoOptions
from verifolio.vnnlib import Rows, box_case, specification_from_cases

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
Array = NDArray[np.float64]
Asking = Generator[Query, Answer, T]
NORMS = (1.0, 2.0, math.inf)  # those whose balls we can encode


class Geometry(Protocol):
    """Which inputs lie within a radius, where that is not simply x - radius to x + radius."""

    def box(self, radius: float) -> tuple[Array, Array]: ...

    def ball(self, radius: float) -> Ball | None: ...


class Growth(StrEnum):
    """How a property's query changes with the radius. Searches over radii depend on it.

    FIXED: every radius has the same output condition, on the part of one region that lies in the ball.
    MONOTONE: the condition may differ, but a property that holds at a radius holds at every smaller one.
    OTHER: neither is known, so no search over radii may be made.
    """

    FIXED = "fixed"
    MONOTONE = "monotone"
    OTHER = "other"


@dataclass(frozen=True, eq=False)
class Reference:
    """The input a property is about: its values (flat), its label, the radius and norm, the legal range.

    `outputs` are the networks' outputs at x, concatenated, and `sizes` says how many belong to each network; a
    property that needs them computes them where they are missing (see `with_outputs`). All values are those
    that the network reads; `geometry` says what the radius means where they are normalised data. `origin` says where
    the input comes from (`data`, `index`, `shape` as 1x28x28), for people: it becomes a part of the query's labels.
    """

    x: Array
    label: int
    epsilon: float
    norm: float = math.inf
    lower: Array | float = 0.0
    upper: Array | float = 1.0
    outputs: Array | None = field(default=None)
    sizes: tuple[int, ...] = ()
    geometry: Geometry | None = None
    origin: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InputError("epsilon", "a finite number, not negative", repr(self.epsilon))
        if self.norm not in NORMS:
            raise InputError("norm", "1, 2 or inf", repr(self.norm))
        if not bool(np.all(np.asarray(self.lower) <= np.asarray(self.upper))):
            got = "a lowest value above the highest, or nan"
            raise InputError("legal range", "LOW,HIGH with LOW <= HIGH", got, "swap them")

    @property
    def box(self) -> tuple[Array, Array]:
        """x - epsilon and x + epsilon, clipped to the legal range; x itself is never clipped away."""
        x = np.asarray(self.x, np.float64).ravel()
        near, far = (
            (x - self.epsilon, x + self.epsilon) if self.geometry is None else self.geometry.box(self.epsilon)
        )
        lower = np.minimum(np.maximum(near, self.lower), x)
        return lower, np.maximum(np.minimum(far, self.upper), x)

    @property
    def ball(self) -> Ball | None:
        """The ball that narrows the box further; None for the maximum norm."""
        if self.geometry is not None:
            return self.geometry.ball(self.epsilon)
        x = np.asarray(self.x, np.float64).ravel()
        return None if math.isinf(self.norm) else Ball(x, self.epsilon, self.norm)

    def with_outputs(self, networks: Sequence[Network]) -> Reference:
        """The same with outputs, computed where the networks are (see `Network.compute`)."""
        if self.outputs is not None:
            return self
        from verifolio.onnx_import.values_at import double_outputs

        x = np.asarray(self.x, np.float64).ravel()
        parts = networks[0].compute(double_outputs, tuple(networks), x)
        return replace(self, outputs=np.concatenate(parts), sizes=tuple(len(p) for p in parts))

    def within(self, distance: float) -> Reference:
        """The same, with inputs that are at most this far from x in the maximum norm, rounded outward."""
        x = np.asarray(self.x, np.float64).ravel()
        lower = np.maximum(self.lower, np.nextafter(x - distance, -np.inf))
        upper = np.minimum(self.upper, np.nextafter(x + distance, np.inf))
        return replace(self, lower=lower, upper=upper)


@dataclass(frozen=True, eq=False)
class Points:
    """A batch of points: inputs (B, n) and outputs (B, m), each with its reference's inputs, outputs, label.

    Anything that the loss should be differentiated by carries gradients: `y` and `y0` in training, `x` in an
    attack. `sizes` says how many outputs each network has, where there are several.
    """

    x: Tensor
    y: Tensor
    x0: Tensor
    y0: Tensor
    labels: Tensor
    epsilon: float
    sizes: tuple[int, ...] = ()

    @classmethod
    def at(cls, reference: Reference, x: NDArray[Any], y: NDArray[Any]) -> Points:
        """Points (B, n) around one reference, in double precision; missing outputs of it are NaN."""
        import torch

        x, y = np.atleast_2d(np.asarray(x, np.float64)), np.atleast_2d(np.asarray(y, np.float64))
        x0 = np.broadcast_to(np.asarray(reference.x, np.float64).ravel(), x.shape).copy()
        outputs = math.nan if reference.outputs is None else reference.outputs
        y0 = np.broadcast_to(np.asarray(outputs, np.float64), y.shape).copy()
        tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in (x, y, x0, y0)]
        labels = torch.full((len(x),), reference.label, dtype=torch.int64)
        return cls(tensors[0], tensors[1], tensors[2], tensors[3], labels, reference.epsilon, reference.sizes)


class Property(ABC):
    """A property around an input. SAT on its query means: violated."""

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    networks: int = 1  # how many networks it is about; options may say so
    needs_outputs: ClassVar[bool] = False  # whether it mentions the reference's outputs
    by_order: ClassVar[bool] = False  # whether it depends on nothing but the order of the outputs
    growth: Growth = Growth.OTHER  # how its query changes with the radius
    growth_reason: ClassVar[str] = "it does not say that it is monotone in the radius"
    source: ClassVar[str] = ""  # a hash of the file that defines it

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @property
    def key(self) -> str:
        """Everything that decides what the property means: its definition and its options."""
        cls = type(self)
        return f"{cls.__module__}.{cls.__qualname__} {cls.source} {self.options!r}"

    def region(self, reference: Reference) -> tuple[Array, Array]:
        """The box that points come from."""
        return reference.box

    def ball(self, reference: Reference) -> Ball | None:
        """The ball that narrows the region further."""
        return reference.ball

    @abstractmethod
    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        """The query that proves the property where it is UNSAT; its counterexamples are the violations."""

    def refutation(self, networks: Sequence[Network], reference: Reference) -> Query | None:
        """Where `query` only asks for something stronger: a query all of whose counterexamples violate."""
        return None

    def candidates(self, networks: Sequence[Network], reference: Reference) -> list[Array]:
        """Points that the definition itself suggests as violations; they are replayed before any search."""
        return []

    def candidate_query(self, networks: Sequence[Network], reference: Reference, x: Array) -> Query:
        """What a candidate is judged by: every counterexample violates the property; it may be smaller."""
        return self.refutation(networks, reference) or self.query(networks, reference)

    def settle(self, networks: Sequence[Network], reference: Reference) -> Asking[Answer | None]:
        """SAT or UNSAT by simpler queries than `query`, where there are any; None leaves it to that.

        A generator: it yields a query, is sent the answer, and returns what follows from all of them.
        """
        yield from ()
        return None

    @abstractmethod
    def satisfied(self, points: Points) -> Tensor:
        """Whether the property holds at each point, (B,) booleans."""

    @abstractmethod
    def loss(self, points: Points) -> Tensor:
        """A differentiable loss per point (B,), 0 exactly where the property holds (the DL2 translation)."""

    def violation(self, points: Points) -> Tensor:
        """What an attack makes small: the loss of the property's negation, minus its own."""
        return -self.loss(points)

    def holds(self, outputs: NDArray[Any], reference: Reference, x: NDArray[Any]) -> bool:
        """Whether the property holds at the concrete point x with these outputs."""
        if self.needs_outputs and reference.outputs is None:
            remedy = "call `reference.with_outputs(networks)`"
            raise InputError(f"property {self.name}", "a reference with outputs", "none", remedy)
        return bool(self.satisfied(Points.at(reference, x, outputs)).all())


def build_query(
    prop: Property,
    networks: Sequence[Network],
    reference: Reference,
    disjuncts: Sequence[Rows],
) -> Query:
    """The query whose counterexamples lie in the property's region and ball and satisfy one disjunct.

    Columns of the rows: the inputs, then the outputs. Several networks read one shared input.
    """
    check_networks(prop, networks)
    lower, upper = prop.region(reference)
    size = sum(n.output_size for n in networks)
    if any(n.input_size != len(lower) for n in networks):
        got = " and ".join(str(n.input_size) for n in networks)
        raise InputError(
            f"property {prop.name}", f"networks with {len(lower)} inputs, as the data has", got, "match them"
        )
    specification = specification_from_cases([box_case(lower, upper, disjuncts)], output_size=size)
    labels = {"property": prop.name, "epsilon": repr(float(reference.epsilon)), "label": str(reference.label)}
    labels |= {k: v for k, v in reference.origin.items() if k in ("data", "index", "shape")}
    return Query(tuple(networks), specification, prop.ball(reference), len(networks) > 1, prop.name, labels)


def check_networks(prop: Property, networks: Sequence[Network]) -> None:
    """Refuse the wrong number of networks."""
    if len(networks) != prop.networks:
        raise InputError(f"property {prop.name}", f"{prop.networks} network(s)", str(len(networks)))


def _check_outputs(outputs: int) -> None:
    """A class wins against others: of one output nothing could go wrong, and everything would be proved."""
    if outputs < 2:
        remedy = (
            "a single logit z stands for the two outputs 0 and z; for a number use the property output-range"
        )
        raise InputError("network", "at least 2 outputs, one for each class", str(outputs), remedy)


def check_labels(labels: Tensor, outputs: int) -> None:
    """Refuse labels that no output stands for, where a property is evaluated."""
    _check_outputs(outputs)
    wrong = labels[(labels < 0) | (labels >= outputs)]
    if len(wrong):
        remedy = "classes count from 0; does the data belong to the network, and does it have labels?"
        raise InputError("label", f"a class from 0 to {outputs - 1}", str(int(wrong[0])), remedy)


def check_label(prop: Property, label: int, outputs: int) -> None:
    """Refuse labels that no output stands for."""
    _check_outputs(outputs)
    if not 0 <= label < outputs:
        raise InputError(
            f"property {prop.name}",
            f"a label from 0 to {outputs - 1}",
            str(label),
            "does the data belong to the network?",
        )
