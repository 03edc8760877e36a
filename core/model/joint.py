"""Joint: is there one input that solves several problems at once? One problem is the plain case."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product

from verifolio.graph import Graph
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import product_graph
from verifolio.vnnlib import Rows
from verifolio.vnnlib.rows import LinearRow, pack_rows, scaled_to_doubles

MOST_DISJUNCTS = 100  # of a product: more are as many bounds for one question


@dataclass(frozen=True, eq=False)
class Joint:
    """Problems on one domain that one input has to solve all together."""

    parts: tuple[Problem, ...]

    @property
    def domain(self) -> Domain:
        return self.parts[0].domain

    @property
    def disjuncts(self) -> int:
        """How many disjuncts the product has: a choice of one for every part."""
        return math.prod(len(p.disjuncts) for p in self.parts)

    @cached_property
    def problem(self) -> Problem | None:
        """The same as one problem, on the product of the graphs; None where it has too many disjuncts."""
        if len(self.parts) == 1:
            return self.parts[0]
        if self.disjuncts > MOST_DISJUNCTS:
            return None
        graphs = tuple(p.graph for p in self.parts)
        conditions = tuple(p.disjuncts for p in self.parts)
        return Problem(shared_product(graphs), self.domain, joined(conditions, *_sizes(graphs)))


def _sizes(graphs: Sequence[Graph]) -> tuple[int, tuple[int, ...]]:
    return graphs[0].input_size, tuple(g.output_size for g in graphs)


@lru_cache(maxsize=64)
def shared_product(graphs: tuple[Graph, ...]) -> Graph:
    """Graphs side by side on one input; kept, because bounds are kept by graph."""
    return product_graph(list(graphs), shared_input=True)


@lru_cache(maxsize=256)
def joined(
    conditions: tuple[tuple[Rows, ...], ...], inputs: int, outputs: tuple[int, ...]
) -> tuple[Rows, ...]:
    """One disjunct per choice of a disjunct of every condition, over all outputs one after the other.

    Each has the sum of its rows as one more: it is implied, but bounds prove it far more often.
    """
    firsts = [sum(outputs[:k]) for k in range(len(outputs))]
    moved = [[list(_moved(d, inputs, f)) for d in c] for c, f in zip(conditions, firsts, strict=True)]
    return tuple(_conjunction([row for part in choice for row in part]) for choice in product(*moved))


def _moved(rows: Rows, inputs: int, first: int) -> Iterator[LinearRow]:
    """The rows of one network with its outputs behind those of others."""
    for row in rows.linear_rows():
        terms = tuple((column + (first if column >= inputs else 0), value) for column, value in row.terms)
        yield LinearRow(terms, row.rhs, row.strict)


def _conjunction(rows: Sequence[LinearRow]) -> Rows:
    if len(rows) < 2:
        return pack_rows(list(rows))
    total: dict[int, Fraction] = defaultdict(Fraction)
    for row in rows:
        for column, value in row.terms:
            total[column] += value
    terms = tuple(sorted((column, value) for column, value in total.items() if value))
    added = scaled_to_doubles(LinearRow(terms, sum((row.rhs for row in rows), Fraction(0)), False))
    return pack_rows([*rows, *([added] if added is not None else [])])
