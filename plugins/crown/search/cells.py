"""Branch and bound on the levels of steps that read single inputs: positions, switches, quantised inputs.

Between two jumps such a step is a constant. On a cell, a range of levels for each of them, the rest of the network is
bounded by intervals, and single precision is followed once more (`verifolio.graph.single`). Where every other input
is fixed, all float32 inputs of a cell of single levels give one output: exact arithmetic is bounded by itself, and
what single precision computes is found by running ONNX Runtime, optimised and not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph, GraphBuilder, Op, Scale, Select, Sparse, Step
from verifolio.graph.graph import is_exact
from verifolio.graph.settle import unsettle
from verifolio.graph.single import spans
from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem, dense_rows
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.search.frontier import Frontier
from verifolio.plugins.crown.search.violation import Violation
from verifolio.trust.referee import fails_everywhere

Array = NDArray[np.float64]
BATCH = 32  # cells bounded together; a choice: more of them wait for the slowest
MOST_SWITCHES = 64  # steps on inputs; with more of them cells are too many


@dataclass(frozen=True, eq=False)
class Switch:
    """An entry of a step that reads one input: its levels, and the inputs that lead to each (ends in order)."""

    node: int
    entry: int
    column: int
    levels: Array
    ends: Array
    exact: bool


@dataclass
class Cells:
    """Ranges of levels, first and last (count, switches)."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, index: NDArray[np.intp] | slice) -> Cells:
        return Cells(self.first[index], self.last[index])

    @classmethod
    def join(cls, parts: list[Cells]) -> Cells:
        return Cells(np.concatenate([p.first for p in parts]), np.concatenate([p.last for p in parts]))


def switches(problem: Problem) -> list[Switch]:
    """The steps that read one input each and can jump on the domain; empty: none, or too many."""
    graph, found = problem.graph, []
    for i in graph.steps:
        op, parent = graph.nodes[i].op, graph.nodes[i].parents[0]
        if not isinstance(op, Step) or not op.settled or not len(op.breakpoints):
            continue
        source = _source(graph, graph.nodes[parent].parents[0])
        if source is None:
            continue
        columns, weight, bias, stored = source
        for entry in range(op.size):
            made = _switch(problem, i, entry, op, int(columns[entry]), weight[entry], bias[entry])
            found.append(made if stored else replace(made, exact=False))
            if len(found) > MOST_SWITCHES:
                return []
    return found


def _source(graph: Graph, node: int) -> tuple[NDArray[np.int64], Array, Array, bool] | None:
    """The inputs that a node scales and shifts, with weights and shifts, and whether single precision has the same.

    None: it does more.
    """
    stored = True
    size = graph.nodes[node].op.size
    index, weight, bias = np.arange(size), np.ones(size), np.zeros(size)
    while node:
        op = graph.nodes[node].op
        if isinstance(op, Select) and bool((op.index[index] >= 0).all()):
            index = op.index[index]
        elif isinstance(op, Scale):
            bias = bias + weight * op.bias[index]
            weight = weight * op.weight[index]
            stored = stored and not op.folded and op.bias_single is None and is_exact(op)
        else:
            return None
        node = graph.nodes[node].parents[0]
    return index, weight, bias, stored


def _switch(
    problem: Problem, node: int, entry: int, op: Step, column: int, weight: float, bias: float
) -> Switch:
    """Levels in the order of the argument; values at a breakpoint are levels of their own."""
    levels, ends = [float(op.levels[0])], [-np.inf]
    for b, at, level in zip(op.breakpoints, op.at, op.levels[1:], strict=True):
        if at not in (levels[-1], level):
            levels.append(float(at))
            ends.append(float(b))
        levels.append(float(level))
        ends.append(float(b))
    cuts = np.array([*ends, np.inf])
    low, high = problem.domain.lower[column], problem.domain.upper[column]
    argument = problem.graph.nodes[problem.graph.nodes[node].parents[0]].op
    slack = (
        float(argument.bias_error[entry])
        if isinstance(argument, Scale) and argument.bias_error is not None
        else np.inf
    )
    reach = sorted((weight * low + bias, weight * high + bias))
    slack += 4 * 2.0**-52 * (abs(reach[0]) + abs(reach[1]) + abs(bias))
    # a node's entries share one table: levels that this one cannot reach are left out
    met = np.flatnonzero((cuts[:-1] <= reach[1] + slack) & (cuts[1:] >= reach[0] - slack))
    cuts = np.clip(cuts[met[0] : met[-1] + 2], *reach)
    places = (cuts - bias) / weight if weight else np.full(len(cuts), low)
    exact = weight == 1 and bias == 0 and bool((op.at == op.levels[1:]).all())
    return Switch(node, entry, column, np.array(levels)[met], places, exact)


def lift(graph: Graph, found: list[Switch]) -> Graph:
    """The graph whose switched steps are further inputs, in the order of the switches."""
    builder = GraphBuilder(graph.input_size + len(found))
    start = builder.add(Select(graph.input_size, np.arange(graph.input_size)), 0)
    place, count = {0: start}, 0
    nodes = {s.node for s in found}
    for i, node in enumerate(graph.nodes[1:], start=1):
        if i in nodes:
            index = graph.input_size + count + np.arange(node.op.size)
            count += node.op.size
            place[i] = builder.add(Select(node.op.size, index), 0)
        else:
            place[i] = builder.add(node.op, *(place[p] for p in node.parents), name=node.name)
    return unsettle(builder.finish(place[graph.output]))


def fixed(problem: Problem, found: list[Switch], graph: Graph) -> bool:
    """Whether all float32 inputs of a cell of single levels are one point to the rest of the network.

    Every switch must read its input as it is, nothing else may read it, and no other input may have two float32
    values.
    """
    lower, upper = problem.domain.lower, problem.domain.upper
    columns = np.array([s.column for s in found])
    plain = all(s.exact for s in found)
    first = lower.astype(np.float32)
    first = np.where(first < lower, np.nextafter(first, np.float32(np.inf)), first)
    several = np.nextafter(first, np.float32(np.inf)).astype(np.float64) <= upper
    several[columns] = False
    read = np.zeros(len(lower), bool)
    for node in graph.nodes[2:]:
        if 1 in node.parents:  # node 1 is the inputs without the levels, see `lift`
            read[_columns(node.op)] = True
    return plain and not several.any() and not read[columns].any() and problem.domain.is_box


def _columns(op: Op) -> NDArray[np.int64] | slice:
    """The entries that an operator reads of its parent, as far as that is easy to see."""
    if isinstance(op, Select):
        return op.index[op.index >= 0]
    return op.weight.indices.astype(np.int64) if isinstance(op, Sparse) else slice(None)


class CellSplit:
    """Cells in batches: bound them, try a point of each open one, halve the longest range."""

    def __init__(self, problem: Problem, context: Context, found: list[Switch]) -> None:
        self.problem, self.context, self.found = problem, context, found
        self.graph = lift(problem.graph, found)
        self.violation = Violation(problem, context.device)
        n, m = problem.graph.input_size, problem.graph.output_size
        self.rows = [(*dense_rows(rows, n, m), rows.strict) for rows in problem.disjuncts]
        self.stack: Frontier[Cells] = Frontier()
        last = np.array([[len(s.levels) - 1 for s in found]], np.int64)
        self.stack.add(Cells(np.zeros_like(last), last))
        self.count = self.stuck = 0
        self.fixed = context.query is not None and fixed(problem, found, self.graph)

    def run(self) -> Outcome:
        while not self.context.budget.expired():
            cells = self.stack.take(BATCH)
            if cells is None:
                break
            self.count += len(cells)
            closed = self._evaluated(cells) if self.fixed else self._closed(cells)
            still = cells.pick(np.flatnonzero(~closed))
            if len(still):
                point = self._try(still)
                if point is not None:
                    return Outcome.found(point, stats={"domains": self.count})
                self._split(still)
            if self.stuck:
                break
        return self._conclude()

    def _conclude(self) -> Outcome:
        stats: dict[str, float | int | str] = {"domains": self.count}
        if not len(self.stack) and not self.stuck:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
            return Outcome.proved(stats=stats)
        why = "out of time" if not self.stuck else f"{self.stuck} cells of one level each are open"
        return Outcome.unknown(f"{why} after {self.count} cells", stats=stats)

    def _box(self, cells: Cells) -> tuple[Array, Array]:
        """The inputs and the levels of each cell; levels need not be in order."""
        count, n = len(cells), self.problem.graph.input_size
        lower, upper = np.empty((count, n + len(self.found))), np.empty((count, n + len(self.found)))
        lower[:, :n], upper[:, :n] = self.problem.domain.lower, self.problem.domain.upper
        for k, switch in enumerate(self.found):
            for c in range(count):
                part = switch.levels[cells.first[c, k] : cells.last[c, k] + 1]
                lower[c, n + k], upper[c, n + k] = part.min(), part.max()
        return lower, upper

    def _evaluated(self, cells: Cells) -> NDArray[np.bool_]:
        """Cells of one output each, without a counterexample in exact arithmetic and in ONNX Runtime."""
        closed = self._closed(cells, exact=True)
        if closed.any():
            closed[closed] = self._single(cells.pick(np.flatnonzero(closed)))
        query = self.context.query
        for i in np.flatnonzero(closed):
            point = self._points(cells.pick(slice(int(i), int(i) + 1)))[0]
            closed[i] = query is not None and fails_everywhere(query, point)
        return closed

    def _single(self, cells: Cells) -> NDArray[np.bool_]:
        """Cells on which single precision computes one output: what depends on levels does so by constants alone."""
        lower, upper = self._box(cells)
        n = self.problem.graph.input_size
        levels = (lower[:, n:] == upper[:, n:]).all(1)
        same: list[NDArray[np.bool_]] = []
        for i, (node, span) in enumerate(zip(self.graph.nodes, spans(self.graph, lower, upper), strict=True)):
            constant = ((span.low == span.high) & (span.drift == 0)).all(1)
            if i == 0:
                same.append(levels)
            elif i == 1:
                same.append(np.ones(len(cells), bool))  # the fixed inputs, see `fixed`
            else:
                same.append(
                    np.logical_and.reduce([np.ones(len(cells), bool), *(same[p] for p in node.parents)])
                    | constant
                )
        return np.broadcast_to(same[self.graph.output], (len(cells),)).copy()

    def _closed(self, cells: Cells, exact: bool = False) -> NDArray[np.bool_]:
        """Cells on which every disjunct has a row that cannot hold."""
        if not len(cells):
            return np.zeros(0, bool)
        lower, upper = self._box(cells)
        span = list(spans(self.graph, lower, upper, exact))[-1]
        n = self.problem.graph.input_size
        low, high = (np.concatenate([x[:, :n], y], 1) for x, y in ((lower, span.low), (upper, span.high)))
        closed = np.ones(len(cells), bool)
        with np.errstate(all="ignore"):
            for on_inputs, on_outputs, rhs, strict in self.rows:
                matrix = np.concatenate([on_inputs, on_outputs], 1)
                least = low @ np.maximum(matrix, 0).T + high @ np.minimum(matrix, 0).T
                size = np.maximum(np.abs(low), np.abs(high)) @ np.abs(matrix).T + np.abs(rhs)
                gap = least - rhs - (matrix.shape[1] + 8) * 2.0**-52 * size
                closed &= (np.isfinite(gap) & np.where(strict, gap >= 0, gap > 0)).any(1)
        return closed

    def _try(self, cells: Cells) -> Array | None:
        """A point of each cell; whatever seems to satisfy the condition is replayed."""
        points = self._points(cells)
        value = self.violation(points)
        for i in np.flatnonzero(value <= 0):
            if self.context.check(points[i]):
                return np.asarray(points[i])
        return None

    def _points(self, cells: Cells) -> Array:
        """A point in the middle of each cell: of what all switches that read an input leave of it."""
        domain = self.problem.domain
        low, high = (np.tile(end, (len(cells), 1)) for end in (domain.lower, domain.upper))
        for k, switch in enumerate(self.found):
            middle = (cells.first[:, k] + cells.last[:, k]) // 2
            ends = np.sort([switch.ends[middle], switch.ends[middle + 1]], axis=0)
            low[:, switch.column] = np.maximum(low[:, switch.column], ends[0])
            high[:, switch.column] = np.minimum(high[:, switch.column], ends[1])
        return np.clip(low / 2 + high / 2, domain.lower, domain.upper)

    def _split(self, cells: Cells) -> None:
        width = cells.last - cells.first
        column, place = width.argmax(1), np.arange(len(cells))
        single = width[place, column] == 0
        self.stuck += int(single.sum())
        rest = cells.pick(np.flatnonzero(~single))
        column, place = column[~single], np.arange(len(rest))
        middle = (rest.first[place, column] + rest.last[place, column]) // 2
        below, above = rest.last.copy(), rest.first.copy()
        below[place, column], above[place, column] = middle, middle + 1
        if len(rest):
            self.stack.add(Cells.join([Cells(rest.first, below), Cells(above, rest.last)]))
