"""The joint query: one input in a ball that every network of a set gives a wrong label, ties included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal

from verifolio.errors import InputError
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.options import described
from verifolio.plugin.property import Points, Property, Reference
from verifolio.vnnlib import Rows, box_case, make_rows, specification_from_cases

if TYPE_CHECKING:
    from torch import Tensor

JointForm = Literal["auto", "dnf", "margin"]
Gap = tuple[int, int | None]  # columns (right label, wrong label): right - wrong <= 0; None: -margin <= 0


@dataclass(frozen=True)
class JointOptions:
    """How the condition "for every network, some wrong label" is written."""

    form: JointForm = described(
        "auto",
        "`dnf` has (L-1)^n conjunctions of n rows; `margin` gives every network one output, the largest "
        "of Y_l - Y_y over wrong labels, in a file of its own, and has one conjunction of n rows; `auto` "
        "takes `dnf` up to `limit` conjunctions.",
    )
    limit: int = described(1000, "The most conjunctions that `auto` writes as `dnf`.")
    folder: str = described("", "Where the files of `margin` go; a temporary folder by default.")
    members: int = described(
        2, "How many networks the property is about where it is not told by being given them."
    )

    def __post_init__(self) -> None:
        if self.members < 1:
            raise InputError("option members", "at least one network", str(self.members))


class SimultaneousMisclassification(Property):
    """Holds where at least one network gives the right label, strictly. Any number of networks, one input."""

    name = "simultaneous-misclassification"
    Options: ClassVar[type] = JointOptions
    options: JointOptions

    def __init__(self, options: JointOptions | None = None) -> None:
        super().__init__(options)
        self.networks = self.options.members

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        sizes = class_counts(networks, reference)
        start = len(reference.x)
        if self._writes_margins(sizes):
            from .compose import headed

            networks = [headed(n, reference.label, self.options.folder) for n in networks]
            disjuncts: tuple[Rows, ...] = (joint_rows([(start + k, None) for k in range(len(networks))]),)
        else:
            disjuncts = dnf(tuple(sizes), reference.label, start)
        return joint_query(networks, reference, disjuncts, self.name)

    def _writes_margins(self, sizes: Sequence[int]) -> bool:
        if self.options.form != "auto":
            return self.options.form == "margin"
        return math.prod(s - 1 for s in sizes) > self.options.limit

    def satisfied(self, points: Points) -> Tensor:
        return (self._gaps(points).amax(2) < 0).any(1)

    def loss(self, points: Points) -> Tensor:
        """DL2: per network the sum of max(Y_l - Y_y, 0), plus 1 where there is a tie; their product."""
        gaps = self._gaps(points)
        return (gaps.clamp_min(0).sum(2) + (gaps == 0).any(2).to(gaps.dtype)).prod(1)

    def _gaps(self, points: Points) -> Tensor:
        """Y_l - Y_y over wrong labels l, (B, members, classes - 1)."""
        import torch

        blocks = points.y.reshape(len(points.y), self.options.members, -1)
        own = points.labels[:, None, None].expand(-1, blocks.shape[1], 1)
        others = torch.ones_like(blocks, dtype=torch.bool).scatter(2, own, False)
        gaps = blocks - blocks.gather(2, own)
        return gaps[others].reshape(*blocks.shape[:2], -1)


def class_counts(networks: Sequence[Network], reference: Reference) -> list[int]:
    """The classes of every network; input sizes and the label are checked too."""
    where = SimultaneousMisclassification.name
    if not networks:
        raise InputError(where, "at least one network", "none")
    for network in networks:
        if network.input_size != len(reference.x):
            got = f"{network.path.name} with {network.input_size}"
            raise InputError(where, f"networks with {len(reference.x)} inputs, as the data has", got)
        if not 0 <= reference.label < network.output_size or network.output_size < 2:
            got = f"label {reference.label} and {network.output_size} outputs of {network.path.name}"
            raise InputError(where, "a label that every network knows", got, "do data and networks match?")
    return [n.output_size for n in networks]


@lru_cache(maxsize=64)
def dnf(sizes: tuple[int, ...], label: int, start: int) -> tuple[Rows, ...]:
    """One conjunction per choice of a wrong label for every network; outputs begin at column `start`."""
    firsts = [start + sum(sizes[:k]) for k in range(len(sizes))]
    wrong = [[first + w for w in range(s) if w != label] for first, s in zip(firsts, sizes, strict=True)]
    choices = product(*wrong)
    return tuple(joint_rows([(f + label, w) for f, w in zip(firsts, c, strict=True)]) for c in choices)


def joint_rows(gaps: Sequence[Gap]) -> Rows:
    """All gaps at once, and (implied, but bounds prove it far more often) their sum."""
    rows = [{right: -1.0} if wrong is None else {right: 1.0, wrong: -1.0} for right, wrong in gaps]
    if len(rows) > 1:
        rows.append({column: value for row in rows for column, value in row.items()})
    return make_rows([(row, 0.0) for row in rows])


def joint_query(
    networks: Sequence[Network], reference: Reference, disjuncts: Sequence[Rows], name: str
) -> Query:
    """The query over the product of the networks, which read one shared input."""
    lower, upper = reference.box
    size = sum(n.output_size for n in networks)
    specification = specification_from_cases([box_case(lower, upper, disjuncts)], output_size=size)
    labels = {"property": name, "epsilon": repr(float(reference.epsilon)), "label": str(reference.label)}
    labels["networks"] = " ".join(n.path.name for n in networks)
    return Query(tuple(networks), specification, reference.ball, True, name, labels)


def average_query(networks: Sequence[Network], reference: Reference) -> Query:
    """Is there an input that the averaged outputs give a wrong label?"""
    name = "averaged-misclassification"
    return joint_query(networks, reference, average_condition(networks, reference), name)


def average_condition(networks: Sequence[Network], reference: Reference) -> tuple[Rows, ...]:
    """One disjunct per wrong label. Averages compare as sums do."""
    sizes = class_counts(networks, reference)
    if len(set(sizes)) != 1:
        raise InputError("ensemble", "networks with one number of classes", str(sorted(set(sizes))))
    firsts = [len(reference.x) + k * sizes[0] for k in range(len(sizes))]
    label = reference.label
    disjuncts = []
    for wrong in (w for w in range(sizes[0]) if w != label):
        terms = {f + label: 1.0 for f in firsts} | {f + wrong: -1.0 for f in firsts}
        disjuncts.append(make_rows([(terms, 0.0)]))
    return tuple(disjuncts)
