"""Evidence: what is known about a problem and may be shared between verifiers.

A bound is only offered where it holds: for the same graph, on a domain that contains the new one, and under
assumptions that the new problem makes too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Domain, Problem

Array = NDArray[np.float64]
MAX_CANDIDATES = 64  # the latest; every member that attacks evaluates all of them first


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
class Margins:
    """Lower bounds of (row - rhs), one array per disjunct, and the condition whose rows these are.

    `condition` is `Problem.condition_sha256`. Read them through `Bounds.margins_of` or `Bounds.least_margin`,
    which ask for the problem: the numbers say nothing about another condition.
    """

    condition: str
    values: tuple[Array, ...]

    @classmethod
    def of(cls, problem: Problem, values: Sequence[Array]) -> Margins:
        return cls(problem.condition_sha256, tuple(values))

    def merge(self, other: Margins | None) -> Margins:
        """The tighter of both where they are about one condition; otherwise self."""
        if other is None or other.condition != self.condition:
            return self
        both = zip(self.values, other.values, strict=True)
        return Margins(self.condition, tuple(np.fmax(a, b) for a, b in both))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds on the value of graph nodes that hold for every input of `domain`.

    `lower[i]`, `upper[i]` bound the value of node i (any node may be missing; backends mostly want the
    inputs of nonlinear nodes). A bound that is not a number is taken for none at all. `foreign`: another tool
    computed them, or some that they rest on; whoever named that tool may use them, the evidence does not take them.
    """

    graph: str
    domain: Domain
    lower: Mapping[int, Array]
    upper: Mapping[int, Array]
    margins: Margins | None = None
    assumptions: Assumptions = Assumptions()
    source: str = ""
    foreign: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", {i: _number(v, -np.inf) for i, v in self.lower.items()})
        object.__setattr__(self, "upper", {i: _number(v, np.inf) for i, v in self.upper.items()})

    def applies_to(self, problem: Problem) -> bool:
        return (
            self.graph == problem.graph.sha256
            and self.assumptions.implied_by(problem)
            and problem.domain.within(self.domain)
        )

    def margins_of(self, problem: Problem) -> tuple[Array, ...]:
        """Lower bounds of (row - rhs) for the rows of the problem's disjuncts; -inf where nothing is known."""
        known, counts = self.margins, [rows.count for rows in problem.disjuncts]
        mine = known is not None and known.condition == problem.condition_sha256
        if known is None or not mine or counts != [len(v) for v in known.values]:
            return tuple(np.full(count, -np.inf) for count in counts)
        if not self.applies_to(problem):
            return tuple(np.full(count, -np.inf) for count in counts)
        return tuple(_number(v, -np.inf) for v in known.values)

    def least_margin(self, problem: Problem) -> float:
        """How far the disjunct closest to holding is from it; positive: the condition is unreachable.

        A disjunct is impossible as soon as one of its rows is, so each counts by its best row.
        """
        best = [float(m.max(initial=-np.inf)) for m in self.margins_of(problem)]
        return min(best, default=np.inf)

    def intersect(self, other: Bounds) -> Bounds:
        """Self, tightened by what the other knows about the same graph on a domain that contains self's.

        The result takes for granted what either does. Two different output conditions cannot both be assumed,
        so then self is kept as it is.
        """
        conditions = {self.assumptions.condition, other.assumptions.condition} - {""}
        if len(conditions) > 1 or self.graph != other.graph or not self.domain.within(other.domain):
            return self
        assumed = Assumptions("".join(conditions), self.assumptions.splits | other.assumptions.splits)
        return replace(
            self,
            lower=_tighter(np.maximum, self.lower, other.lower),
            upper=_tighter(np.minimum, self.upper, other.upper),
            margins=other.margins if self.margins is None else self.margins.merge(other.margins),
            assumptions=assumed,
            foreign=self.foreign or other.foreign,
            source=self.source if other.source in self.source else f"{self.source}+{other.source}",
        )

    def about(self, problem: Problem) -> Bounds:
        """The same on the problem's domain, without margins of another condition."""
        mine = self.margins is not None and self.margins.condition == problem.condition_sha256
        return replace(self, domain=problem.domain, margins=self.margins if mine else None)


def _number(values: Array, unknown: float) -> Array:
    """The values with `unknown` in place of what is not a number."""
    nan = np.isnan(values)
    return np.where(nan, unknown, values) if nan.any() else values


def _tighter(pick: np.ufunc, a: Mapping[int, Array], b: Mapping[int, Array]) -> dict[int, Array]:
    merged = {**b, **a}
    return merged | {i: np.asarray(pick(a[i], b[i])) for i in a.keys() & b.keys()}


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
        """Keep bounds, dropping older ones on exactly the same domain and assumptions after merging.

        Not those of other tools: a proof that rests on them would be one of theirs, under the name of ours.
        """
        if bounds.foreign:
            return
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
        merged = known[0].about(problem)
        for bounds in known[1:]:
            merged = merged.intersect(bounds.about(problem))
        return merged

    def refutes(self, problem: Problem) -> bool:
        """Whether one refuted set covers the whole domain."""
        if not self.refuted:  # most often; the hash is not worth it then
            return False
        key = (problem.graph.sha256, problem.condition_sha256)
        return any((g, c) == key and problem.domain.within(d) for g, c, d in self.refuted)

    def merge(self, other: Evidence) -> None:
        for bounds in other.bounds:
            self.add_bounds(bounds)
        for x in other.candidates:
            self.add_candidate(x)
        self.refuted.extend(r for r in other.refuted if r not in self.refuted)
