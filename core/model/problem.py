"""Problem: the normal form a verifier receives, one input set and one output condition on one graph."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.vnnlib import Case, Rows
from verifolio.vnnlib.exact import ExactNumbers, exact_numbers

Array = NDArray[np.float64]
NARROW = 2.0**-22  # relative width below which float32 inputs cannot be told apart


@dataclass(frozen=True, eq=False)
class Ball:
    """All x with ||x - centre||_norm <= radius; norm is 1, 2 or infinity."""

    centre: Array
    radius: float
    norm: float

    def distance(self, x: Array) -> float:
        """||x - centre||, scaled so that squares neither overflow nor vanish."""
        gaps = np.asarray(x, np.float64) - self.centre
        largest = float(np.abs(gaps).max(initial=0.0))
        if largest == 0.0 or not math.isfinite(largest):
            return largest
        return largest * float(np.linalg.norm(gaps / largest, ord=self.norm))

    def within(self, other: Ball) -> bool:
        """Whether this ball certainly lies inside another one of the same norm."""
        if self.norm != other.norm:
            return False
        if np.array_equal(self.centre, other.centre):
            return self.radius <= other.radius
        # n terms added in any order err by at most n roundings, and each term by a few of its own (Higham,
        # Accuracy and Stability of Numerical Algorithms, section 4.2)
        slack = 1 + (len(self.centre) + 8) * 2.0**-52
        return (other.distance(self.centre) + self.radius) * slack <= other.radius


@dataclass(frozen=True, eq=False)
class Domain:
    """An input box, intersected with linear rows over the inputs and perhaps with a ball.

    The box is that of its doubles: whatever is said about a domain (a bound, a refuted set) is said about all of
    it. The rows are their exact ones. A domain made from a case is the smallest such box around the written
    bounds, so it says nothing about which decimals were written; see `Region` for that. `written` are these decimals
    where they are known: a search may prove a problem for them alone, but then it says nothing else about the domain.
    """

    lower: Array
    upper: Array
    rows: Rows | None = None
    ball: Ball | None = None
    written: tuple[Sequence[Fraction], Sequence[Fraction]] | None = None

    @property
    def size(self) -> int:
        return len(self.lower)

    @property
    def empty(self) -> bool:
        """Whether the box alone shows that there is no point."""
        return bool((self.lower > self.upper).any())

    @property
    def is_box(self) -> bool:
        return self.ball is None and (self.rows is None or self.rows.count == 0)

    def within(self, other: Domain) -> bool:
        """Whether this set is certainly a subset of `other` (False also when it cannot tell)."""
        if self.size != other.size:
            return False
        if bool((self.lower < other.lower).any()) or bool((self.upper > other.upper).any()):
            return False
        if other.rows is not None and other.rows.count and rows_key(other.rows) != rows_key(self.rows):
            return False
        return other.ball is None or (self.ball is not None and self.ball.within(other.ball))

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256(self.lower.tobytes() + self.upper.tobytes() + rows_key(self.rows))
        if self.ball is not None:
            digest.update(self.ball.centre.tobytes() + repr((self.ball.radius, self.ball.norm)).encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Problem:
    """Is there an x in `domain` such that all rows of one disjunct hold for (x, graph(x))?

    Doubles are rounded outward: whatever satisfies the exact problem satisfies this one, so a proof that
    this one has no solution proves the exact one has none.
    """

    graph: Graph
    domain: Domain
    disjuncts: tuple[Rows, ...]

    @cached_property
    def condition_sha256(self) -> str:
        """A hash of the output condition alone, in the numbers as written."""
        return condition_key(self.disjuncts)

    @cached_property
    def sha256(self) -> str:
        parts = (self.graph.sha256, self.domain.sha256, self.condition_sha256)
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def with_domain(self, domain: Domain) -> Problem:
        return replace(self, domain=domain)

    @cached_property
    def mixes_inputs(self) -> bool:
        """Whether some output row also mentions inputs."""
        n = self.graph.input_size
        return any(bool((rows.column < n).any()) for rows in self.disjuncts)

    @property
    def row_count(self) -> int:
        return sum(rows.count for rows in self.disjuncts)


@dataclass(frozen=True, eq=False)
class Region:
    """An input set in the numbers as written: exact bounds, exact rows, and perhaps a ball.

    A proof for a query is a proof about its regions and no more: a verifier that reads the text proves nothing
    about the doubles around it.
    """

    lower: ExactNumbers
    upper: ExactNumbers
    rows: Rows
    ball: Ball | None = None

    @classmethod
    def of(cls, case: Case, ball: Ball | None = None) -> Region:
        return cls(exact_numbers(case.exact_lower), exact_numbers(case.exact_upper), case.input_rows, ball)

    def within(self, other: Region) -> bool:
        """Whether this set is certainly a subset of `other` (False also when it cannot tell)."""
        if len(self.lower) != len(other.lower):
            return False
        if other.rows.count and rows_key(other.rows) != rows_key(self.rows):
            return False
        if other.ball is not None and (self.ball is None or not self.ball.within(other.ball)):
            return False
        return other.lower.at_most(self.lower) and self.upper.at_most(other.upper)


def condition_key(disjuncts: Sequence[Rows]) -> str:
    """A hash of a disjunction of conjunctions; no disjunct (false) and an empty one (true) are different."""
    digest = hashlib.sha256(f"{len(disjuncts)}".encode())
    for rows in disjuncts:
        part = rows_key(rows)
        digest.update(f"|{len(part)}|".encode() + part)
    return digest.hexdigest()


def rows_key(rows: Rows | None) -> bytes:
    """The exact content of rows as bytes: right-hand sides as written, not as rounded to doubles."""
    if rows is None or rows.count == 0:
        return b""
    known = _KEYS.get(rows)
    if known is None:
        known = _KEYS[rows] = _content(rows)
    return known


# what is known and what is asked is compared by these keys, several times per query
_KEYS: WeakKeyDictionary[Rows, bytes] = WeakKeyDictionary()


def _content(rows: Rows) -> bytes:
    arrays = (rows.row, rows.column, rows.coefficient, rows.strict)
    sizes = f"{rows.count},{len(rows.row)}|"
    sides = "|" + ",".join(map(str, rows.exact_rhs))
    return sizes.encode() + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays) + sides.encode()


def dense_rows(rows: Rows, inputs: int, outputs: int) -> tuple[Array, Array, Array]:
    """Rows as dense matrices: (input part, output part, right-hand side)."""
    matrix = np.zeros((rows.count, inputs + outputs))
    matrix[rows.row, rows.column] = rows.coefficient
    return matrix[:, :inputs], matrix[:, inputs:], rows.rhs


def free_inputs(lower: Array, upper: Array) -> int:
    """How many inputs vary by more than float32 can tell: bounds of one decimal, rounded outward, do not."""
    return int((upper - lower > NARROW * np.maximum(np.abs(lower), np.abs(upper))).sum())


def finite(domain: Domain) -> bool:
    """Whether every input has two finite bounds (a ball bounds every coordinate too)."""
    if domain.ball is not None and math.isfinite(domain.ball.radius):
        return True
    return bool(np.isfinite(domain.lower).all() and np.isfinite(domain.upper).all())
