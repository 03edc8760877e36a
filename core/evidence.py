"""Evidence: what is known about a problem and may be shared between verifiers.

A bound is only offered where it holds: for the same graph, on a domain that contains the new one, and under
assumptions that the new problem makes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.problem import Domain, Problem

Array = NDArray[np.float64]
MAX_CANDIDATES = 64


@dataclass(frozen=True)
class Assumptions:
    """What a bound took for granted besides its domain.

    `condition`: hash of an output condition assumed to hold ("" = none), see `Problem.condition_sha256`.
    `splits`: (node, neuron, sign) triples; sign +1 assumes the neuron's input >= 0, -1 assumes <= 0.
    """

    condition: str = ""
    splits: frozenset[tuple[int, int, int]] = frozenset()

    def implied_by(self, problem: Problem, splits: frozenset[tuple[int, int, int]] = frozenset()) -> bool:
        return self.condition in ("", problem.condition_sha256) and self.splits <= splits


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds on the value of graph nodes that hold for every input of `domain`.

    `lower[i]`, `upper[i]` bound the value of node i (any node may be missing; backends mostly want the
    inputs of nonlinear nodes). `margins[d]` are lower bounds of (row - rhs) for the rows of disjunct d:
    a disjunct with a positive one is impossible.
    """

    graph: str
    domain: Domain
    lower: Mapping[int, Array]
    upper: Mapping[int, Array]
    margins: tuple[Array, ...] = ()
    assumptions: Assumptions = Assumptions()
    source: str = ""

    def applies_to(self, problem: Problem) -> bool:
        return (
            self.graph == problem.graph.sha256
            and self.assumptions.implied_by(problem)
            and problem.domain.within(self.domain)
        )

    def intersect(self, other: Bounds) -> Bounds:
        """The tighter of two bounds, valid where both hold; margins are kept from self.

        The result takes for granted what either does. Two different output conditions cannot both be assumed,
        so then self is kept as it is.
        """
        conditions = {self.assumptions.condition, other.assumptions.condition} - {""}
        if len(conditions) > 1:
            return self
        nodes = self.lower.keys() | other.lower.keys()
        lower = {i: _best(np.maximum, self.lower, other.lower, i) for i in nodes}
        upper = {i: _best(np.minimum, self.upper, other.upper, i) for i in nodes}
        assumed = Assumptions("".join(conditions), self.assumptions.splits | other.assumptions.splits)
        source = self.source if other.source in self.source else f"{self.source}+{other.source}"
        return replace(self, lower=lower, upper=upper, assumptions=assumed, source=source)


def _best(pick: np.ufunc, a: Mapping[int, Array], b: Mapping[int, Array], i: int) -> Array:
    if i in a and i in b:
        return np.asarray(pick(a[i], b[i]))
    return a[i] if i in a else b[i]


@dataclass
class Evidence:
    """A bag of bounds, candidate inputs and refuted input sets; grows while members work.

    `attacked`: attacks on the whole input set have found nothing, so another one like them is a waste.
    """

    bounds: list[Bounds] = field(default_factory=list)
    candidates: list[Array] = field(default_factory=list)
    refuted: list[tuple[str, str, Domain]] = field(default_factory=list)
    attacked: bool = False

    def copy(self) -> Evidence:
        """The same, unmoved by what is added to this one later."""
        return Evidence(list(self.bounds), list(self.candidates), list(self.refuted), self.attacked)

    def add_bounds(self, bounds: Bounds) -> None:
        """Keep bounds, dropping older ones on exactly the same domain and assumptions after merging."""
        for k, old in enumerate(self.bounds):
            same = old.graph == bounds.graph and old.domain.sha256 == bounds.domain.sha256
            if same and old.assumptions == bounds.assumptions:
                self.bounds[k] = bounds.intersect(old)
                return
        self.bounds.append(bounds)

    def add_candidate(self, x: Array) -> None:
        """A point worth trying; the newest are kept."""
        self.candidates = [*self.candidates[-(MAX_CANDIDATES - 1) :], np.asarray(x, np.float64)]

    def add_refuted(self, problem: Problem, domain: Domain) -> None:
        """The condition of `problem` is proved unreachable from `domain`."""
        self.refuted.append((problem.graph.sha256, problem.condition_sha256, domain))

    def bounds_for(self, problem: Problem) -> Bounds | None:
        """Everything known that holds on the whole of the problem's domain, intersected."""
        known = [b for b in self.bounds if b.applies_to(problem)]
        if not known:
            return None
        merged = known[0]
        for bounds in known[1:]:
            merged = merged.intersect(bounds)
        exact = [b.margins for b in known if b.margins and b.domain.sha256 == problem.domain.sha256]
        return replace(merged, domain=problem.domain, margins=exact[0] if exact else ())

    def refutes(self, problem: Problem) -> bool:
        """Whether one refuted set covers the whole domain."""
        key = (problem.graph.sha256, problem.condition_sha256)
        return any((g, c) == key and problem.domain.within(d) for g, c, d in self.refuted)

    def merge(self, other: Evidence) -> None:
        for bounds in other.bounds:
            self.add_bounds(bounds)
        for x in other.candidates:
            self.add_candidate(x)
        self.refuted.extend(r for r in other.refuted if r not in self.refuted)
