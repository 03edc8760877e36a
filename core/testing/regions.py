"""The linear regions of a small graph, one by one: ground truth that shares no code with backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from verifolio.errors import VerifolioError
from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset
from verifolio.model.problem import Problem, dense_rows
from verifolio.vnnlib import Rows

Array = NDArray[np.float64]
FLAT = 1e-9  # a linear program's tolerance
SAMPLES = 4000  # to find cells quickly; the linear programs find those that samples miss


class TooManyRegions(VerifolioError):
    """The network is not small enough to be enumerated."""


@dataclass(frozen=True, eq=False)
class Affine:
    """x -> matrix @ x + constant."""

    matrix: Array
    constant: Array


@dataclass(frozen=True, eq=False)
class Region:
    """Where sides @ x <= limits (within the box), the network is `output`."""

    sides: Array
    limits: Array
    output: Affine


def linear_regions(problem: Problem, limit: int = 4000) -> list[Region]:
    """Every region that meets the domain (a box and linear rows)."""
    domain, graph = problem.domain, problem.graph
    if domain.ball is not None or not graph.piecewise_linear:
        raise TooManyRegions("only boxes with linear rows and piecewise-linear networks are enumerated")
    sides, limits = np.zeros((0, domain.size)), np.zeros(0)
    if domain.rows is not None and domain.rows.count:
        sides, _, limits = dense_rows(domain.rows, domain.size, 0)
    start = Affine(np.eye(domain.size), np.zeros(domain.size))
    found = []
    walker = _Walker(graph, np.stack([domain.lower, domain.upper], axis=1))
    samples = np.random.default_rng(0).uniform(domain.lower, domain.upper, (SAMPLES, domain.size))
    cell = _Cell(sides, limits, samples[(samples @ sides.T <= limits).all(axis=1)])
    for region in walker.walk(1, [start], cell):
        found.append(region)
        if len(found) > limit:
            raise TooManyRegions(f"more than {limit} linear regions; enumerate smaller networks")
    return found


@dataclass(frozen=True, eq=False)
class _Cell:
    """sides @ x <= limits, and some points inside that spare us linear programs."""

    sides: Array
    limits: Array
    points: Array

    def cut(self, a: Array, b: float) -> _Cell:
        """The part where a @ x <= b."""
        inside = self.points[self.points @ a <= b]
        return _Cell(np.vstack([self.sides, a]), np.append(self.limits, b), inside)


class _Walker:
    def __init__(self, graph: Graph, box: Array) -> None:
        self.graph, self.box = graph, box

    def walk(self, i: int, values: list[Affine], cell: _Cell) -> Iterator[Region]:
        """Extend the values of nodes 0 .. i-1, splitting the region at every ReLU that is undecided."""
        if i == len(self.graph.nodes):
            yield Region(cell.sides, cell.limits, values[self.graph.output])
            return
        node = self.graph.nodes[i]
        parents = [values[p] for p in node.parents]
        if isinstance(node.op, Relu):
            for phases, inner in self._phases(parents[0], 0, [], cell):
                on = np.array(phases, np.float64)
                value = Affine(on[:, None] * parents[0].matrix, on * parents[0].constant)
                yield from self.walk(i + 1, [*values, value], inner)
            return
        if isinstance(node.op, Constant):
            value = Affine(np.zeros((node.op.size, len(self.box))), node.op.value)
        else:
            matrices = linear_part(node.op, tuple(len(p.constant) for p in parents))
            matrix = sum((m @ p.matrix for m, p in zip(matrices, parents, strict=True)), np.zeros(1))
            shift = sum((m @ p.constant for m, p in zip(matrices, parents, strict=True)), offset(node.op))
            value = Affine(np.asarray(matrix), np.asarray(shift))
        yield from self.walk(i + 1, [*values, value], cell)

    def _phases(
        self, pre: Affine, k: int, chosen: list[int], cell: _Cell
    ) -> Iterator[tuple[list[int], _Cell]]:
        if k == len(pre.constant):
            yield chosen, cell
            return
        a, b = pre.matrix[k], float(pre.constant[k])
        low, high = self._least(a, b, cell), -self._least(-a, -b, cell)
        # a cell thinner than FLAT goes to one side only; it differs from its neighbour by as little
        if high > FLAT or low >= 0:
            inner = cell if low >= 0 else cell.cut(-a, b)
            yield from self._phases(pre, k + 1, [*chosen, 1], inner)
        if low < -FLAT or high <= 0 or (high <= FLAT and low < 0):
            inner = cell if high <= 0 else cell.cut(a, -b)
            yield from self._phases(pre, k + 1, [*chosen, 0], inner)

    def _least(self, a: Array, b: float, cell: _Cell) -> float:
        """The least value of a @ x + b on the cell, or any clearly negative one."""
        corner = float(np.where(a > 0, self.box[:, 0], self.box[:, 1]) @ a) + b
        if len(cell.limits) == 0 or corner >= 0:
            return corner
        seen = float((cell.points @ a).min(initial=np.inf)) + b
        if seen < -FLAT:
            return seen
        bounds = [(float(low), float(high)) for low, high in self.box]
        answer = linprog(a, A_ub=cell.sides, b_ub=cell.limits, bounds=bounds, method="highs")
        return float(answer.fun) + b if answer.fun is not None and answer.status == 0 else 0.0


def least_margin(regions: Sequence[Region], problem: Problem, rows: Rows) -> tuple[float, Array | None]:
    """min over the domain of max over the rows of (row - rhs), and a point that attains it."""
    domain, graph = problem.domain, problem.graph
    over_x, over_y, rhs = dense_rows(rows, graph.input_size, graph.output_size)
    best: tuple[float, Array | None] = (np.inf, None)
    bounds = [*zip(domain.lower, domain.upper, strict=True), (None, None)]
    cost = np.append(np.zeros(domain.size), 1.0)
    for region in regions:
        matrix = over_x + over_y @ region.output.matrix
        shift = over_y @ region.output.constant - rhs
        upper = np.block(
            [[matrix, -np.ones((len(rhs), 1))], [region.sides, np.zeros((len(region.limits), 1))]]
        )
        limits = np.concatenate([-shift, region.limits])
        answer = linprog(cost, A_ub=upper, b_ub=limits, bounds=bounds, method="highs")
        if answer.status != 0 or answer.fun is None or answer.x is None:
            continue
        if answer.fun < best[0]:
            best = (float(answer.fun), np.asarray(answer.x[:-1]))
    return best


def true_margin(problem: Problem, limit: int = 4000) -> tuple[float, Array | None]:
    """The least margin over all disjuncts: the problem is SAT where it is <= 0 (up to 1e-8 of rounding)."""
    regions = linear_regions(problem, limit)
    found = [least_margin(regions, problem, rows) for rows in problem.disjuncts]
    return min(found, key=lambda pair: pair[0], default=(np.inf, None))
