"""Batch: many questions about a few networks, in the compact form in which they travel to a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Witness
from verifolio.model.joint import Joint, joined, shared_product
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.vnnlib import Case, Rows, Specification, box_case, specification_from_cases
from verifolio.vnnlib.symbols import flat_network

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Atom:
    """Networks on one input, a domain, and a condition over their inputs and outputs, all by their positions."""

    networks: tuple[int, ...]
    domain: int
    condition: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Questions `entries`: is there one input that satisfies all of these atoms, which share a domain?

    Domains are boxes, perhaps with a ball; their doubles are the exact bounds. No text is made of a question
    unless somebody asks for its `query`.
    """

    networks: tuple[Network, ...]
    domains: tuple[Domain, ...]
    conditions: tuple[tuple[Rows, ...], ...]
    atoms: tuple[Atom, ...]
    entries: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.entries)

    def take(self, places: Sequence[int]) -> Batch:
        """The questions at these places."""
        return replace(self, entries=tuple(self.entries[k] for k in places))

    def domain(self, entry: int) -> Domain:
        return self.domains[self.atoms[self.entries[entry][0]].domain]

    def problem(self, atom: int) -> Problem:
        """An atom as a problem of its own."""
        a = self.atoms[atom]
        graphs = tuple(self.networks[n].graph for n in a.networks)
        return Problem(shared_product(graphs), self.domains[a.domain], self.conditions[a.condition])

    def joint(self, entry: int) -> Joint:
        return Joint(tuple(self.problem(a) for a in self.entries[entry]))

    def _sizes(self, atoms: Sequence[Atom]) -> tuple[int, ...]:
        """How many outputs the networks of each atom have."""
        return tuple(sum(self.networks[n].output_size for n in a.networks) for a in atoms)

    @cached_property
    def _cases(self) -> dict[int, Case]:
        return {}

    def region(self, domain: int) -> Case:
        """The exact box of a domain, made once, without a condition."""
        if domain not in self._cases:
            box = self.domains[domain]
            self._cases[domain] = box_case(box.lower, box.upper, ())
        return self._cases[domain]

    def case(self, atom: int) -> Case:
        """The input region and the condition of an atom."""
        a = self.atoms[atom]
        return replace(self.region(a.domain), disjuncts=self.conditions[a.condition])

    def question(self, atom: int) -> Query:
        """An atom as the referee judges points by it: without text, so without a hash; it goes nowhere else."""
        a, case = self.atoms[atom], self.case(atom)
        networks, domain = tuple(self.networks[n] for n in a.networks), self.domains[a.domain]
        sizes = len(case.lower), sum(n.output_size for n in networks)
        told = Specification("1.0", *sizes, (case,), (flat_network(*sizes),), "")
        return Query(networks, told, domain.ball, True)

    def query(self, entry: int) -> Query:
        """A whole question as a query over the product of its networks."""
        atoms = [self.atoms[a] for a in self.entries[entry]]
        networks = tuple(self.networks[n] for a in atoms for n in a.networks)
        domain, sizes = self.domain(entry), self._sizes(atoms)
        conditions = tuple(self.conditions[a.condition] for a in atoms)
        disjuncts = conditions[0] if len(atoms) == 1 else joined(conditions, domain.size, sizes)
        case = box_case(domain.lower, domain.upper, disjuncts)
        told = specification_from_cases([case], output_size=sum(sizes))
        return Query(networks, told, domain.ball, len(networks) > 1, "batch")


def plain_batch(network: Network, domains: Sequence[Domain], condition: tuple[Rows, ...]) -> Batch:
    """One condition of one network on many domains."""
    atoms = tuple(Atom((0,), k, 0) for k in range(len(domains)))
    return Batch((network,), tuple(domains), (condition,), atoms, tuple((k,) for k in range(len(domains))))


@dataclass(frozen=True, eq=False)
class Sighting:
    """A point of a domain as it was replayed, and the atoms there that it satisfies, each with its witness.

    Without a point there is no float32 near it in the domain.
    """

    point: Float32 | None
    witnesses: Mapping[int, Witness] = field(default_factory=dict)
