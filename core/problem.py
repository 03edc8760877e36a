"""Problem: the normal form a verifier receives, one input set and one output condition on one graph."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.vnnlib import Rows

Array = NDArray[np.float64]
NARROW = 2.0**-22  # relative width below which float32 inputs cannot be told apart


@dataclass(frozen=True, eq=False)
class Ball:
    """All x with ||x - centre||_norm <= radius; norm is 1, 2 or infinity."""

    centre: Array
    radius: float
    norm: float

    def distance(self, x: Array) -> float:
        return float(np.linalg.norm(np.asarray(x, np.float64) - self.centre, ord=self.norm))

    def within(self, other: Ball) -> bool:
        """Whether this ball certainly lies inside another one of the same norm."""
        if self.norm != other.norm:
            return False
        apart = float(np.linalg.norm(self.centre - other.centre, ord=self.norm))
        return (apart + self.radius) * (1 + (1e-12 if apart else 0.0)) <= other.radius


@dataclass(frozen=True, eq=False)
class Domain:
    """An input box, intersected with linear rows over the inputs and perhaps with a ball."""

    lower: Array
    upper: Array
    rows: Rows | None = None
    ball: Ball | None = None

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
        """A hash of the output condition alone."""
        return hashlib.sha256(b"|".join(rows_key(r) for r in self.disjuncts)).hexdigest()

    @cached_property
    def sha256(self) -> str:
        parts = (self.graph.sha256, self.domain.sha256, self.condition_sha256)
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def with_domain(self, domain: Domain) -> Problem:
        return replace(self, domain=domain)

    @property
    def mixes_inputs(self) -> bool:
        """Whether some output row also mentions inputs."""
        n = self.graph.input_size
        return any(bool((rows.column < n).any()) for rows in self.disjuncts)

    @property
    def row_count(self) -> int:
        return sum(rows.count for rows in self.disjuncts)


def rows_key(rows: Rows | None) -> bytes:
    """The content of rows as bytes, for hashing and comparing."""
    if rows is None or rows.count == 0:
        return b""
    arrays = (rows.row, rows.column, rows.coefficient, rows.rhs, rows.strict)
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)


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
