"""Interval arithmetic, linear bounds backward (CROWN) and forward, over any graph, one input set at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from verifolio.graph import Graph, Op, Relu
from verifolio.graph.ops import NONLINEAR, Array
from verifolio.model.problem import Domain
from verifolio.testing.reference.affine import affine_map
from verifolio.testing.reference.lines import Interval, Lines, default_slopes, enclosing_lines, value_interval
from verifolio.testing.reference.sets import least_over, shrunk_box
from verifolio.testing.reference.simplex import simplex_groups

UNIT = 2.0**-53  # half the distance from 1 to the next double: the largest relative rounding error
Slopes = Callable[[Op, list[Interval]], tuple[list[Array], list[Array]]]


@dataclass(frozen=True)
class Bound:
    """Lower bounds of several rows.

    Exact arithmetic with the best intercepts would give a number between `low` and `high`. `low` is proved. `rows`
    are the coefficients over the input, `constant` is what stands beside them, before rounding is charged. `early`:
    the best that the intervals of the affine nodes on the way say of the rows over them; it holds as well.
    """

    low: Array
    high: Array
    rows: Array
    constant: Array
    early: Array


@dataclass(frozen=True)
class Bounded:
    """The interval of every node and the lines of every nonlinear one."""

    intervals: dict[int, Interval]
    lines: dict[int, Lines]


class Reference:
    """Bounds of a graph's values over input sets."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sizes = [node.op.size for node in graph.nodes]
        self.maps = {
            i: affine_map(node.op, [self.sizes[p] for p in node.parents])
            for i, node in enumerate(graph.nodes)
            if i and not isinstance(node.op, NONLINEAR)
        }
        self.simplices = simplex_groups(graph, self.maps)
        # no sum is longer, and no number passes through more operations
        self.gamma = 2 * (max(self.sizes) + 4 * len(graph.nodes) + 16) * UNIT

    def forward(self, node: int, intervals: Mapping[int, Interval], inner: bool = False) -> Interval:
        """The interval of a node from those of its parents; `inner`: one that exact arithmetic would contain."""
        parents = self.graph.nodes[node].parents
        inputs = [intervals[p] for p in parents]
        if node not in self.maps:
            return value_interval(self.graph.nodes[node].op, inputs, inner)
        m = self.maps[node]
        low, high, size, error = m.bias, m.bias, np.abs(m.bias), m.bias_error
        for matrix, matrix_error, (a, b) in zip(m.matrices, m.matrix_errors, inputs, strict=True):
            positive, negative, largest = np.maximum(matrix, 0), np.minimum(matrix, 0), magnitude((a, b))
            low = low + positive @ a + negative @ b
            high = high + positive @ b + negative @ a
            size, error = size + np.abs(matrix) @ largest, error + matrix_error @ largest
        slack = self.gamma * size + 1.01 * error + 1e-300
        return (low + slack, high - slack) if inner else (low - slack, high + slack)

    def intervals(self, domain: Domain, known: Mapping[int, Interval] | None = None) -> dict[int, Interval]:
        """Interval arithmetic through the whole graph, narrowed by what is known already."""
        found: dict[int, Interval] = {0: shrunk_box(domain)}
        for i in range(1, self.graph.output + 1):
            found[i] = self.forward(i, found)
            if known is not None and i in known:
                found[i] = np.fmax(found[i][0], known[i][0]), np.fmin(found[i][1], known[i][1])
        return found

    def lines(
        self, node: int, intervals: Mapping[int, Interval], below: list[Array], above: list[Array]
    ) -> Lines:
        """Lines of the given slopes around a nonlinear node."""
        inputs = [intervals[p] for p in self.graph.nodes[node].parents]
        return enclosing_lines(self.graph.nodes[node].op, inputs, below, above)

    def lower(
        self,
        domain: Domain,
        intervals: Mapping[int, Interval],
        lines: Mapping[int, Lines],
        rows: Mapping[int, Array],
    ) -> Bound:
        """Lower bounds of sum_i rows[i] . value_i, a sum over nodes; each rows[i] is (count, size of node i)."""
        count = len(next(iter(rows.values())))
        flow = {i: np.array(r, np.float64) for i, r in rows.items()}
        constant, size, error, doubt = (np.zeros(count) for _ in range(4))
        early = np.full(count, -np.inf)
        for i in range(max(flow), 0, -1):
            if i not in flow:
                continue
            if i in self.maps:
                there = sum(_over_box(r, intervals[p]) for p, r in flow.items())
                held = sum(np.abs(r) @ magnitude(intervals[p]) for p, r in flow.items())
                slack = self.gamma * (size + held + np.abs(constant)) + 1.01 * error
                early = np.maximum(early, constant + there - slack)
            a = flow.pop(i)
            parents = self.graph.nodes[i].parents
            if i in self.maps:
                m = self.maps[i]
                parts = [a @ matrix for matrix in m.matrices]
                constant, size = constant + a @ m.bias, size + np.abs(a) @ np.abs(m.bias)
                error = error + np.abs(a) @ m.bias_error
                for p, matrix, matrix_error in zip(parents, m.matrices, m.matrix_errors, strict=True):
                    size = size + np.abs(a) @ (np.abs(matrix) @ magnitude(intervals[p]))
                    error = error + np.abs(a) @ (matrix_error @ magnitude(intervals[p]))
            else:
                for group in self.simplices.get(i, []):  # they add up to one: their common part is a constant
                    level = np.sort(a[:, group], 1)[:, (len(group) - 1) // 2]
                    a[:, group] -= level[:, None]
                    constant, size = constant + level, size + np.abs(level) + np.abs(a[:, group]).sum(1)
                own, chosen = lines[i], a > 0
                parts = [a * np.where(chosen, s, t) for s, t in zip(own.below, own.above, strict=True)]
                bias = np.where(chosen, own.floor, own.ceiling)
                added = np.where(a == 0, 0.0, a * np.where(a == 0, 0.0, bias))
                constant, size = constant + added.sum(1), size + np.abs(added).sum(1)
                doubt = doubt + np.where(a == 0, 0.0, np.abs(a) * np.where(a == 0, 0.0, own.doubt)).sum(1)
                for p, part in zip(parents, parts, strict=True):
                    size = size + np.abs(part) @ magnitude(intervals[p])
            for p, part in zip(parents, parts, strict=True):
                flow[p] = flow[p] + part if p in flow else part
        first = flow.get(0, np.zeros((count, self.sizes[0])))
        size = size + np.abs(first) @ magnitude(shrunk_box(domain))
        value = least_over(domain, first) + constant
        slack = self.gamma * (size + np.abs(value)) + 1.01 * error + 1e-300
        return Bound(value - slack, value + slack + doubt, first, constant, early)

    def both_ends(
        self, domain: Domain, intervals: Mapping[int, Interval], lines: Mapping[int, Lines], node: int
    ) -> tuple[Bound, Bound]:
        """Backward bounds of a node's values, and of their negatives."""
        one = np.eye(self.sizes[node])
        below, above = (self.lower(domain, intervals, lines, {node: sign * one}) for sign in (1.0, -1.0))
        return below, above

    def crown(
        self, domain: Domain, slopes: Slopes = default_slopes, intersect: bool = True, early: bool = False
    ) -> Bounded:
        """Every nonlinear node's inputs are bounded backward.

        With `intersect` only where their lines leave a gap, and the narrower of these bounds and of interval
        arithmetic count; without it these bounds alone. With `early`, a neuron is nought if intervals on the way
        say so.
        """
        intervals: dict[int, Interval] = {0: shrunk_box(domain)}
        lines: dict[int, Lines] = {}
        for i in range(1, self.graph.output + 1):
            intervals[i] = self.forward(i, intervals)
            if i not in self.maps:
                inputs = [intervals[p] for p in self.graph.nodes[i].parents]
                lines[i] = self.lines(i, intervals, *slopes(self.graph.nodes[i].op, inputs))
            gap = self.loose(i, intervals[i])
            if not self.read_by_nonlinear(i) or (intersect and not gap.any()):
                continue
            below, above = self.both_ends(domain, intervals, lines, i)
            low, high = intervals[i]
            if early:
                high = np.where(above.early >= 0, np.fmin(high, -above.early), high)
            if intersect:
                low = np.where(gap, np.fmax(low, below.low), low)
                high = np.where(gap, np.fmin(high, -above.low), high)
            else:
                low, high = below.low, -above.low
            intervals[i] = low, high
        return Bounded(intervals, lines)

    def read_by_nonlinear(self, node: int) -> bool:
        return any(node in n.parents and isinstance(n.op, NONLINEAR) for n in self.graph.nodes)

    def loose(self, node: int, interval: Interval) -> Array:
        """The neurons of a node that some nonlinear node reads and cannot replace by one line."""
        low, high = interval
        gap = np.zeros(len(low), bool)
        for reader in self.graph.nodes:
            if node in reader.parents and isinstance(reader.op, NONLINEAR):
                gap |= (low < 0) & (high > 0) if isinstance(reader.op, Relu) else high > low
        return gap

    def forward_linear(self, domain: Domain, bounded: Bounded) -> dict[int, Interval]:
        """Intervals from two affine functions of x around every value, found from the inputs forward."""
        n = self.sizes[0]
        forms: dict[int, tuple[Array, Array]] = {0: (np.c_[np.eye(n), np.zeros(n)],) * 2}
        for i in range(1, self.graph.output + 1):
            parents = [forms[p] for p in self.graph.nodes[i].parents]
            if i in self.maps:
                m = self.maps[i]
                slopes, bias = (m.matrices, m.matrices), (m.bias, m.bias)
            else:
                own = bounded.lines[i]
                slopes = [np.diag(s) for s in own.below], [np.diag(s) for s in own.above]
                bias = own.floor, own.ceiling
            low, high = (np.c_[np.zeros((self.sizes[i], n)), b] for b in bias)
            for k, (below, above) in enumerate(parents):
                low = low + np.maximum(slopes[0][k], 0) @ below + np.minimum(slopes[0][k], 0) @ above
                high = high + np.maximum(slopes[1][k], 0) @ above + np.minimum(slopes[1][k], 0) @ below
            forms[i] = low, high
        least = {i: least_over(domain, f[0][:, :n]) + f[0][:, n] for i, f in forms.items()}
        most = {i: f[1][:, n] - least_over(domain, -f[1][:, :n]) for i, f in forms.items()}
        return {i: (least[i], most[i]) for i in forms}


def _over_box(rows: Array, interval: Interval) -> Array:
    return np.asarray(np.where(rows > 0, rows * interval[0], rows * interval[1]).sum(1))


def magnitude(interval: Interval) -> Array:
    return np.maximum(np.abs(interval[0]), np.abs(interval[1]))
