"""Steps with bounds: their arguments become what single precision computes, over the inputs of one box.

Where single precision may compute an argument that lies on the other side of a breakpoint, the step has both values.
The graph says so with an error on the argument (`Scale.bias_error`), which everything that bounds a graph respects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from verifolio.graph.graph import Graph, GraphBuilder, Node
from verifolio.graph.ops import Array, Scale, Step, Whole
from verifolio.graph.single import Span, spans

MOST_LEVELS = 4096  # of one step within a box; wider ones stay as they are, without bounds
# Any argument may be taken for the nearest double on its side of a breakpoint
TO_DOUBLE = 2.0**-51


@dataclass(frozen=True, eq=False)
class Argument:
    """What a step reads over all boxes: exact values in [low, high], single precision within `drift` of them."""

    low: Array
    high: Array
    drift: Array
    unit: Array

    @classmethod
    def of(cls, span: Span) -> Argument:
        return cls(span.low.min(0), span.high.max(0), span.drift.max(0), span.unit)

    def join(self, other: Argument) -> Argument:
        return Argument(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.maximum(self.drift, other.drift),
            np.minimum(self.unit, other.unit),
        )

    @property
    def grid(self) -> float:
        """Of what every argument is a multiple, where single precision is exact; else 0. Zeros are multiples of 1."""
        least = float(self.unit.min(initial=np.inf))
        return 0.0 if bool(self.drift.any()) else 1.0 if np.isinf(least) else least


def settle(graph: Graph, lower: Array, upper: Array) -> Graph:
    """The graph with settled steps for inputs of one box; the same graph if it has none or the box is endless."""
    if not graph.steps or not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        return graph
    return _settled(graph, lower.tobytes(), upper.tobytes())


@lru_cache(maxsize=8)
def _settled(graph: Graph, lower: bytes, upper: bytes) -> Graph:
    box = np.frombuffer(lower)[None], np.frombuffer(upper)[None]
    return rewrite(graph, arguments(graph, *box))


def arguments(graph: Graph, lower: Array, upper: Array) -> dict[int, Argument]:
    """What every step reads on some of the boxes (batch, inputs)."""
    known = list(spans(graph, lower, upper))
    return {i: Argument.of(known[graph.nodes[i].parents[0]]) for i in graph.steps}


def rewrite(graph: Graph, found: dict[int, Argument]) -> Graph:
    """The graph with an argument node before every step whose argument is known."""
    builder, place = GraphBuilder(graph.input_size), {0: 0}
    for i, node in enumerate(graph.nodes[1:], start=1):
        parents = tuple(place[p] for p in node.parents)
        op = node.op
        table = tabulate(op, found[i]) if isinstance(op, Step | Whole) else None
        if table is None:
            place[i] = builder.add(op, *parents, name=node.name)
            continue
        earlier = _compose(builder.nodes, parents[0], table, found[i])
        if earlier is not None:
            place[i] = builder.add(earlier[0], earlier[1], name=node.name)
            continue
        place[i] = builder.add(table, builder.add(_argument(found[i], table), *parents), name=node.name)
    return builder.finish(place[graph.output])


def unsettle(graph: Graph) -> Graph:
    """The graph without what `settle` added; steps keep the levels that can be reached."""
    builder, place = GraphBuilder(graph.input_size), {0: 0}
    for i, node in enumerate(graph.nodes[1:], start=1):
        parents = tuple(place[p] for p in node.parents)
        if isinstance(node.op, Step) and node.op.settled:
            before = graph.nodes[node.parents[0]]
            # a composed step has the argument node of the first one
            place[i] = builder.add(replace(node.op, settled=False), place[before.parents[0]], name=node.name)
        else:
            place[i] = builder.add(node.op, *parents, name=node.name)
    return builder.finish(place[graph.output])


def _argument(found: Argument, table: Step) -> Scale:
    size = np.maximum(np.abs(found.low), np.abs(found.high)) + found.drift
    reach = float(np.abs(table.breakpoints).max(initial=0.0))
    error = (found.drift + TO_DOUBLE * np.maximum(size, reach)) * (1 + TO_DOUBLE) + 1e-300
    ones, none = np.ones(len(error)), np.zeros(len(error))
    return Scale(len(error), bias=none, weight=ones, bias_error=error)


def tabulate(op: Step | Whole, found: Argument) -> Step | None:
    """The levels that the arguments can reach, without those that make no difference; None: too many, or endless."""
    low, high = float((found.low - found.drift).min()), float((found.high + found.drift).max())
    if not (np.isfinite(low) and np.isfinite(high)):
        return None
    if isinstance(op, Whole):
        if low < op.limits[0] or high > op.limits[1] or high - low > MOST_LEVELS:
            return None
        op = _whole_table(op.rule, op.size, int(np.floor(low)) - 1, int(np.ceil(high)) + 1)
    near = (op.breakpoints >= low) & (op.breakpoints <= high)
    first = int(np.searchsorted(op.breakpoints, low))
    kept = replace(
        op, breakpoints=op.breakpoints[near], at=op.at[near], levels=op.levels[first : first + near.sum() + 1]
    )
    if found.grid > 0:
        kept = _between(kept, found.grid)
    return replace(kept, settled=True)


def _whole_table(rule: str, size: int, low: int, high: int) -> Step:
    """Roundings of numbers in [low, high]."""
    if rule == "round":
        levels = np.arange(low, high + 1, dtype=np.float64)
        breakpoints = levels[:-1] + 0.5
        return Step(size, breakpoints, levels, np.round(breakpoints))
    breakpoints = np.arange(low, high + 1, dtype=np.float64)
    if rule == "trunc":
        breakpoints = breakpoints[breakpoints != 0]
        levels = np.concatenate([breakpoints[breakpoints < 0], [0.0], breakpoints[breakpoints > 0]])
        return Step(size, breakpoints, levels, breakpoints.copy())
    return Step(size, breakpoints, np.concatenate([[low - 1.0], breakpoints]), breakpoints.copy())


def _between(op: Step, unit: float) -> Step:
    """The same on multiples of `unit`, with breakpoints halfway between them: no side of a jump matters any more."""
    breakpoints: list[float] = []
    levels = [float(op.levels[0])]
    for b, at, level in zip(op.breakpoints, op.at, op.levels[1:], strict=True):
        on_grid = b == unit * np.round(b / unit)
        places = ((b - unit / 2, at), (b + unit / 2, level)) if on_grid else ((b, level),)
        for place, value in places:
            if value != levels[-1]:
                breakpoints.append(float(place))
                levels.append(float(value))
    # a breakpoint is never met; its value only has to lie beside it
    return replace(op, breakpoints=np.array(breakpoints), levels=np.array(levels), at=np.array(levels[:-1]))


def _compose(nodes: list[Node], at: int, outer: Step, found: Argument) -> tuple[Step, int] | None:
    """One step for a step of a shifted step, where every level of the first decides the second."""
    shift = nodes[at]
    if (
        not isinstance(shift.op, Scale)
        or shift.op.bias_error is not None
        or shift.op.weight_error is not None
    ):
        return None
    inner = nodes[shift.parents[0]]
    scale, bias = shift.op.weight, shift.op.bias
    if not isinstance(inner.op, Step) or not inner.op.settled:
        return None
    if bool((scale != scale[0]).any()) or bool((bias != bias[0]).any()):
        return None
    levels, at_values = (scale[0] * v + bias[0] for v in (inner.op.levels, inner.op.at))
    reach = float(found.drift.max()) + TO_DOUBLE * (1 + float(np.abs(levels).max()))
    values = np.concatenate([levels, at_values])
    if len(outer.breakpoints) and float(np.abs(values[:, None] - outer.breakpoints).min()) <= 2 * reach:
        return None
    through = [outer.levels[np.searchsorted(outer.breakpoints, v)] for v in (levels, at_values)]
    return _merged(replace(inner.op, levels=through[0], at=through[1])), inner.parents[0]


def _merged(op: Step) -> Step:
    """The same function without breakpoints at which nothing jumps."""
    jumps = (op.levels[1:] != op.levels[:-1]) | (op.at != op.levels[1:])
    levels = np.concatenate([op.levels[:1], op.levels[1:][jumps]])
    return replace(op, breakpoints=op.breakpoints[jumps], at=op.at[jumps], levels=levels)
