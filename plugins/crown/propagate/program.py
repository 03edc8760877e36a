"""A graph compiled for bound propagation: sound linear bounds, backward (CROWN; Zhang et al. 2018), in batches.

Soundness in floating point. Replacing rows A over a node's output by fl(A W) over its input is exact up to
|A| times (gamma_n (|W| |x| + |b|)) (Higham 2002, section 3.5): a vector per node that does not depend on A.
`State.noise` holds it, and every row's bound is lowered by |A| noise at every weighted node it passes. This
costs one matrix-vector product per layer, and makes float32 bounds rigorous. Roundings of single entries
(slopes, sums of rows that meet at a node) are covered by the same charge, see `Program.charged`; products too
small for the type by `State.underflow`; an overflow gives NaN, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from verifolio.graph import Graph, Op, Select
from verifolio.graph.softmax import simplices
from verifolio.plugins.crown.propagate.images import Images
from verifolio.plugins.crown.propagate.layers import Layer, Space, make_layer
from verifolio.plugins.crown.propagate.region import Region, dot
from verifolio.plugins.crown.propagate.relax import Lines, Relaxation, relaxation
from verifolio.plugins.crown.propagate.relax.base import Interval
from verifolio.plugins.crown.propagate.signs import never_negative
from verifolio.plugins.crown.propagate.simplex import Simplex
from verifolio.plugins.crown.propagate.tables import Tables

Capture = Callable[[int, Tensor], None]


@dataclass
class State:
    """What is known about a batch of regions: an interval and a noise vector per node."""

    region: Region
    interval: dict[int, Interval] = field(default_factory=dict)
    noise: dict[int, Tensor] = field(default_factory=dict)
    lines: dict[int, Lines] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)
    _underflow: tuple[int, Tensor] | None = None

    def underflow(self) -> Tensor:
        """A bound (batch, 1) on what products below the normal numbers lose on the way back, whatever the rows."""
        if self._underflow is None or self._underflow[0] != len(self.interval):
            total = torch.ones_like(self.region.lower[:, :1])
            for low, high in self.interval.values():
                total = total + 1 + torch.maximum(low.abs(), high.abs()).sum(1, keepdim=True)
            self._underflow = (len(self.interval), torch.finfo(total.dtype).tiny * total)
        return self._underflow[1]

    def inputs(self, program: Program, node: int) -> list[Interval]:
        return [self.interval[p] for p in program.parents[node]]


@dataclass(frozen=True)
class BackwardRows:
    """rows . x + constant - charge lies below the rows that were over_input back; `charge` is rounding alone."""

    rows: Tensor
    constant: Tensor
    charge: Tensor


class Program:
    """The layers and relaxations of a graph in one floating type on one device."""

    def __init__(self, graph: Graph, space: Space) -> None:
        self.graph, self.space = graph, space
        self.parents = [node.parents for node in graph.nodes]
        sizes = [node.op.size for node in graph.nodes]
        self.sizes = sizes
        self.images = Images(graph)
        self.layers: list[Layer | None] = [
            make_layer(self.images.convolutions.get(i, n.op), space, [sizes[p] for p in n.parents])
            for i, n in enumerate(graph.nodes)
        ]
        self.relaxations: list[Relaxation | None] = [relaxation(n.op) for n in graph.nodes]
        self.nonlinear = graph.nonlinear
        self.before: tuple[int, ...] = tuple(sorted({p for i in self.nonlinear for p in self.parents[i]}))
        self.mixing = self._mixing_depth()
        self.charged = self._charged()
        self.copies = {
            i: first for i, n in enumerate(graph.nodes) if (first := _copies(n.op, space)) is not None
        }
        self.simplices = {i: Simplex(groups, sizes[i], space) for i, groups in simplices(graph).items()}
        self.floors = {i: torch.as_tensor(k, device=space.device) for i, k in never_negative(graph).items()}
        # roundings of single entries on the way: one per node, and a few at the ends
        self.extra = len(graph.nodes) + 8

    def _charged(self) -> frozenset[int]:
        """The nodes at which rounding is charged.

        A weighted layer always is, and so is the output, whose rows may have been rounded. Any other node is
        charged unless all it rounds is seen again, uncancelled, by a charged parent that nobody else reads:
        biases of smooth functions are not (their slopes may be nought), nor are sums of three copies or more.
        """
        readers = [0] * len(self.parents)
        for parents in self.parents:
            for p in set(parents):
                readers[p] += 1
        charged: set[int] = set()
        for i, parents in enumerate(self.parents):
            layer = self.layers[i]
            rule = self.relaxations[i]
            plain = rule.homogeneous if rule is not None else layer is None or layer.terms <= 2
            alone = all(readers[p] == 1 and (p in charged or p == 0) for p in parents)
            weighted = layer is not None and layer.weighted
            if i and (weighted or not plain or not alone or i == self.graph.output):
                charged.add(i)
        return frozenset(charged)

    def _mixing_depth(self) -> list[int]:
        """How many operators that mix coordinates or are nonlinear lie between the input and each node."""
        depth = [0] * len(self.parents)
        for i, parents in enumerate(self.parents):
            layer = self.layers[i]
            mixes = self.relaxations[i] is not None or (
                layer is not None and layer.weighted and layer.terms > 1
            )
            depth[i] = max((depth[p] for p in parents), default=0) + int(mixes)
        return depth

    def gamma(self, terms: int) -> float:
        """The error constant of a sum of `terms` products, with room for every addition around it."""
        n = terms + self.extra
        # a twentieth more than Higham's gamma: it pays for the rounding of what is computed here and with it
        return 1.05 * n * self.space.unit / (1 - n * self.space.unit)

    def enter(self, region: Region) -> State:
        """The state that knows only the input."""
        return State(region, {0: (region.lower, region.upper)})

    def forward(self, state: State, node: int) -> None:
        """Interval and noise of a node from its parents' intervals."""
        inputs = state.inputs(self, node)
        rule = self.relaxations[node]
        if rule is not None:
            state.interval[node] = rule.interval(*inputs)
            return
        layer = self.layers[node]
        if layer is None:
            return
        centres = [(low + high) / 2 for low, high in inputs]
        # the radius reaches both ends even though the centre is rounded
        radii = [
            torch.maximum(high - c, c - low) * (1 + 4 * self.space.unit)
            for (low, high), c in zip(inputs, centres, strict=True)
        ]
        magnitudes = [torch.maximum(low.abs(), high.abs()) for low, high in inputs]
        noise = self.noise_of(layer, magnitudes)
        centre, radius = layer.forward(*centres), layer.spread(*radii)
        if node in self.charged:
            state.noise[node] = noise
        low = centre - radius - noise
        if node in self.floors:
            low[:, self.floors[node]] = low[:, self.floors[node]].clamp(min=0)
        state.interval[node] = (low, centre + radius + noise)

    def noise_of(self, layer: Layer, magnitudes: list[Tensor]) -> Tensor:
        size = layer.spread(*magnitudes)
        noise = self.gamma(layer.terms) * size + torch.finfo(self.space.dtype).tiny
        constant = layer.constant()
        if constant is not None:
            noise = noise + (self.gamma(layer.terms) + long_sum(layer.size)) * constant
        if layer.weighted and self.space.least:  # weights too small for the type times values that are large
            noise = noise + self.space.least * sum(m.sum(1, keepdim=True) for m in magnitudes)
        slack = layer.slack(magnitudes[0]) if magnitudes else layer.slack(size)
        # a hundredth more pays for the rounding of the slack's own sum
        return noise if slack is None else noise + 1.01 * slack

    def relax(self, state: State, node: int, parameter: Tensor | None = None) -> None:
        """The lines of a nonlinear node and, where it is charged, its noise; from its inputs' intervals."""
        rule = self.relaxations[node]
        if rule is None:
            return
        self.enclose(state, node, rule.lines(parameter, *state.inputs(self, node)))

    def enclose(self, state: State, node: int, lines: Lines) -> None:
        """Take these lines for a nonlinear node; its noise is theirs."""
        state.lines[node] = lines
        if node in self.charged:
            factor = self.gamma(0) + long_sum(self.sizes[node])
            size = _size(lines, state.inputs(self, node))
            state.noise[node] = factor * size + torch.finfo(self.space.dtype).tiny

    def lower(
        self,
        state: State,
        node: int,
        rows: Tensor,
        extra_rows: Mapping[int, Tensor] | None = None,
        capture: Capture | None = None,
    ) -> Tensor:
        """Lower bounds (batch, rows) of `rows` applied to the value of `node`, over each region."""
        over_input = self.backward(state, node, rows, extra_rows, capture)
        bound = state.region.minimise(over_input.rows, self.extra) + (over_input.constant - over_input.charge)
        return torch.where(bound == torch.inf, torch.full_like(bound, torch.nan), bound)

    def backward(
        self,
        state: State,
        node: int,
        rows: Tensor,
        extra_rows: Mapping[int, Tensor] | None = None,
        capture: Capture | None = None,
    ) -> BackwardRows:
        """Rows over a node's value as rows over the input that lie below them.

        `extra_rows[i]` is added to the rows that arrive at node i (split multipliers); `capture(i, rows)` sees
        the rows over every nonlinear node's output and, last, over the input (node 0).
        """
        flow: dict[int, Tensor] = {node: rows}
        constant, charge = rows.new_zeros(1, 1), rows.new_zeros(1, 1)
        for i in range(node, -1, -1):
            if extra_rows is not None and i in extra_rows:
                flow[i] = flow[i] + extra_rows[i] if i in flow else extra_rows[i]
            current = flow.pop(i, None)
            if i == 0:
                break
            if current is None:
                continue
            layer = self.layers[i]
            if i in self.simplices:
                current, level, lost = self.simplices[i].level(current, state.interval[i])
                constant, charge = constant + level, charge + lost
            if layer is None:
                if capture is not None:
                    capture(i, current)
                parts, added = relax_rows(current, state.lines[i])
            else:
                parts, added = layer.backward(current)
            if added is not None:
                constant = constant + added
            if i in self.charged:
                charge = charge + dot(current.abs(), state.noise[i])
            for parent, part in zip(self.parents[i], parts, strict=True):
                flow[parent] = flow[parent] + part if parent in flow else part
        first = rows.new_zeros(*rows.shape[:2], self.sizes[0]) if current is None else current
        if capture is not None:
            capture(0, first)
        return BackwardRows(first, constant, charge + state.underflow())


def _copies(op: Op, space: Space) -> Tensor | None:
    """For every entry of a selection the first one that has the same source; None: all sources differ."""
    if not isinstance(op, Select):
        return None
    _, first, back = np.unique(op.index, return_index=True, return_inverse=True)
    return None if len(first) == op.size else torch.as_tensor(first[back], device=space.device)


def long_sum(terms: int) -> float:
    """The relative error of a sum in float64, which is where constants are added up."""
    return 1.05 * terms * 2.0**-53


def relax_rows(rows: Tensor, lines: Lines) -> tuple[list[Tensor], Tensor | None]:
    """Rows over a nonlinear output as rows over its inputs: positive entries take the lower line, others the upper.

    At a coefficient of zero exactly one line may count, or gradients with respect to coefficients are wrong.
    """
    low_side = rows > 0
    parts = [
        rows * torch.where(low_side, _per_row(low), _per_row(high))
        for low, high in zip(lines.lower_slope, lines.upper_slope, strict=True)
    ]
    constant: Tensor | None = None
    for wanted, bias in ((low_side, lines.lower_bias), (~low_side, lines.upper_bias)):
        if bias is not None:
            share = torch.where(wanted, rows, torch.zeros_like(rows))
            if (
                lines.lower_bias is not None
            ):  # biases of both signs; a ReLU's lifts allow for their sum's rounding
                share, bias = share.double(), bias.double()
            picked = dot(share, bias) if bias.dim() == 2 else (share * bias).sum(-1)
            picked = picked.to(rows.dtype)
            constant = picked if constant is None else constant + picked
    return parts, constant


def _per_row(slope: Tensor) -> Tensor:
    return slope if slope.dim() == 3 else slope[:, None]


def _size(lines: Lines, inputs: list[Interval]) -> Tensor:
    """The largest value the terms of a line can take, for rounding."""
    total = torch.zeros_like(inputs[0][0])
    for low, high, (left, right) in zip(lines.lower_slope, lines.upper_slope, inputs, strict=True):
        slope = torch.maximum(_over_rows(low.detach().abs()), _over_rows(high.detach().abs()))
        total = total + slope * torch.maximum(left.abs(), right.abs())
    for bias in (lines.lower_bias, lines.upper_bias):
        if bias is not None:
            total = total + _over_rows(bias.detach().abs())
    return total


def _over_rows(value: Tensor) -> Tensor:
    return value.amax(1) if value.dim() == 3 else value
