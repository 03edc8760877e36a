"""Formulas to disjunctions of clauses, refusing expansions that would not fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verifolio.vnnlib.linear import Bound, Clause, Constraint, Linearizer
from verifolio.vnnlib.rows import LinearRow
from verifolio.vnnlib.source import Source
from verifolio.vnnlib.tree import Apply

EXTRA_ATOMS = 1_000_000


class Expander:
    """Expands the formulas of one document; the limit allows everything a text spells out, and a bit more."""

    def __init__(self, source: Source, linearizer: Linearizer, input_size: int) -> None:
        self._source = source
        self._linearizer = linearizer
        self._input_size = input_size
        self._limit = EXTRA_ATOMS + len(source.text)
        self._spent = 0

    def clauses(self, node: Apply) -> list[Clause]:
        """The clauses of a formula; none means false, an empty clause means true."""
        if node.operator == "or":
            return [
                clause for part in node.arguments if isinstance(part, Apply) for clause in self.clauses(part)
            ]
        if node.operator == "and":
            return self.product(
                node.offset, [self.clauses(part) for part in node.arguments if isinstance(part, Apply)]
            )
        return self._linearizer.comparison(node)

    def product(self, offset: int, parts: Sequence[list[Clause]]) -> list[Clause]:
        """All ways to take one clause of each part."""
        common: list[Constraint] = []
        choices = []
        for part in parts:
            if len(part) == 1:
                common.extend(part[0])
            else:
                choices.append(part)
        result: list[Clause] = [tuple(common)]
        for part in choices:
            self._spend(offset, result, part)
            result = [left + right for left in result for right in part]
        return result

    def is_region(self, clauses: list[Clause]) -> bool:
        """Whether the clauses speak about inputs only."""
        return all(is_input(atom, self._input_size) for clause in clauses for atom in clause)

    def _spend(self, offset: int, left: list[Clause], right: list[Clause]) -> None:
        """Count what a product will hold before it is made; the limit is for all products together."""
        atoms = sum(map(len, left)) * len(right) + sum(map(len, right)) * len(left)
        self._spent += max(atoms, len(left) * len(right))
        if self._spent > self._limit:
            raise self._source.error(
                offset,
                expected=f"a disjunctive form of at most {self._limit} comparisons",
                got=f"{self._spent}",
                remedy="write fewer nested disjunctions or split the property",
            )


def is_input(atom: Constraint, input_size: int) -> bool:
    """Whether a constraint mentions no output; terms are sorted, so the last column tells."""
    return isinstance(atom, Bound) or atom.terms[-1][0] < input_size


def contradictory(rows: Sequence[LinearRow]) -> bool:
    """Whether two rows about one and the same column exclude each other."""
    limits: dict[tuple[int, bool], tuple[Fraction, bool]] = {}
    for row in rows:
        if len(row.terms) != 1:
            continue
        ((column, value),) = row.terms
        upper, limit = value > 0, row.rhs / value
        sign = 1 if upper else -1
        known = limits.get((column, upper))
        if known is None or (sign * limit, not row.strict) < (sign * known[0], not known[1]):
            limits[column, upper] = limit, row.strict
        if (column, not upper) in limits:
            other, strict = limits[column, not upper]
            closest, open_side = limits[column, upper]
            gap = sign * (closest - other)
            if gap < 0 or (gap == 0 and (strict or open_side)):
                return True
    return False
