"""A large network whose inputs are fixed but for a few: all that is constant to many digits, and what changes.

Interval arithmetic multiplies what rounding leaves by the sum of the absolute weights of every layer: after ten
layers of convolutions it says nothing even of neurons that no varying input reaches. So every node's value is split:

    z = base + sum_i a_i t_i + sum_k b_k h_k  +-  error

with t the varying inputs minus their middle and h the unstable neurons so far. The base has as many digits as it
takes (`propagate.limbs`), so that the error may grow through all layers; the coefficients are nought outside windows
(`propagate.changes`). Unstable neurons are bounded by the rows that they are (`reduce.kept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from verifolio.graph import Conv, Dense, Graph, Op, Relu, Select, Sum
from verifolio.graph.enclosure import TINY, UNIT, gamma
from verifolio.plugins.crown.propagate.changes import Changes, joined
from verifolio.plugins.crown.propagate.images import Images, Shape
from verifolio.plugins.crown.propagate.limbs import MOST_PRODUCTS, Limbs, added, of_fractions, split
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce.kept import Forms, KeptNeurons
from verifolio.plugins.crown.reduce.limb_layers import (
    DENSE_LIMBS,
    LIMB_SUM,
    ROWS,
    Convolution,
    bias_errors,
    dense_base,
    differences,
    over_windows,
    per_pixel,
)
from verifolio.run.budget import Budget

# Limbs of bases: 144 bits, some 90 of which are lost through the 16 layers of VGG16 and up to 18 at the front
BASE_LIMBS = 8
CHANGE_LIMBS = (
    7  # of coefficients while limbs pay; with 5 of them errors outgrow what the inputs change in VGG16
)
# Coefficients are plain doubles once what they round stays below what they are at the output, see `_growth`.
RELATIVE = 1.0
ROOM = 1 + 1e-9  # for the rounding of sums of non-negative numbers, of at most a million terms


@dataclass(frozen=True)
class Part:
    """A node: its base (limbs, size), the error (size,), and the changes, by windows or flat (variables, size)."""

    base: Limbs
    error: Tensor
    changes: list[Changes] = field(default_factory=list)
    flat: Tensor | None = None


@dataclass(frozen=True)
class Ends:
    """Bounds (size,) of a node's values; the sum of the sizes of what changes; the base as doubles."""

    low: Tensor
    high: Tensor
    size: Tensor
    base: Tensor


class FixedWalk:
    """Node by node. `vary`: the inputs that do; `middle`, `region`: their middles, and boxes around these."""

    def __init__(
        self, graph: Graph, budget: Budget, lower: Sequence[Fraction], upper: Sequence[Fraction]
    ) -> None:
        self.graph, self.budget = graph, budget
        self.images = Images(graph)
        self.vary = np.array(
            [i for i, (a, b) in enumerate(zip(lower, upper, strict=True)) if a != b], np.int64
        )
        ends = [(Fraction(lower[i]), Fraction(upper[i])) for i in self.vary]
        self.middle = np.array([float((a + b) / 2) for a, b in ends])
        low = [
            np.nextafter(float(a - Fraction(m)), -np.inf) for (a, _), m in zip(ends, self.middle, strict=True)
        ]
        high = [
            np.nextafter(float(b - Fraction(m)), np.inf) for (_, b), m in zip(ends, self.middle, strict=True)
        ]
        self.region = Region(
            torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)
        )
        self.kept = KeptNeurons(self.region, budget.cores)
        self.open: list[tuple[int, Tensor]] = []  # the nodes and neurons that are kept, layer by layer
        self.parts = {0: self._input(lower)}
        self.growth = self._growth()

    def _input(self, lower: Sequence[Fraction]) -> Part:
        place = {int(i): k for k, i in enumerate(self.vary)}
        values = [Fraction(self.middle[place[i]]) if i in place else Fraction(v) for i, v in enumerate(lower)]
        base, lost = of_fractions(values, BASE_LIMBS)
        error = torch.full((len(values),), lost, dtype=torch.float64)
        shape = self.images.shape[0]
        if shape is None:
            flat = torch.zeros(len(place), len(values), dtype=torch.float64)
            flat[torch.arange(len(place)), torch.as_tensor(self.vary)] = 1.0
            return Part(base, error, flat=flat)
        return Part(base, error, [_units(0, torch.as_tensor(self.vary), shape)])

    def _growth(self) -> list[float]:
        """By how much errors of a node grow until the output, roughly: half of all neurons pass them on."""
        growth = [0.0] * len(self.graph.nodes)
        growth[self.graph.output] = 1.0
        for i in range(self.graph.output, 0, -1):
            node = self.graph.nodes[i]
            for p in node.parents:
                growth[p] += growth[i] * self._gain(i, node.op)
        return growth

    def _gain(self, node: int, op: Op) -> float:
        op = self.images.convolutions.get(node, op)
        if isinstance(op, Conv | Dense) and differences(op) is None:
            return float(np.abs(op.weight).sum() / len(op.weight)) / 2
        return 2.0 if isinstance(op, Conv) else 1.0

    @torch.no_grad()
    def run(self) -> Forms | None:
        """The forms of the output; None: an operator has no such form, or there is no time."""
        last = {p: i for i, node in enumerate(self.graph.nodes) for p in node.parents}
        for i in range(1, self.graph.output + 1):
            made = None if self.budget.expired() else self._part(i)
            if made is None:
                return None
            self.parts[i] = made
            self.parts = {p: part for p, part in self.parts.items() if last.get(p, i + 1) > i}
        part = self.parts[self.graph.output]
        every = torch.arange(len(part.error))
        return self._forms(self.graph.output, every, self._ends(self.graph.output))

    def _part(self, node: int) -> Part | None:
        op, parents = self.graph.nodes[node].op, self.graph.nodes[node].parents
        op = self.images.convolutions.get(node, op)
        before = [self.parts[p] for p in parents]
        windowed = all(p.flat is None for p in before)
        if isinstance(op, Relu):
            return self._relu(parents[0])
        if isinstance(op, Sum) and (windowed or all(p.flat is not None for p in before)):
            return self._sum(node, op, before)
        if isinstance(op, Dense):
            return self._dense(op, before[0], self.images.shape[parents[0]])
        if not windowed or self.images.window[node] is None:
            return None
        if isinstance(op, Select):
            return self._select(node, op, before[0])
        return self._conv(node, op, before[0]) if isinstance(op, Conv) else None

    def _sum(self, node: int, op: Sum, before: list[Part]) -> Part | None:
        base, lost = added([(a, p.base) for a, p in zip(op.coefficients, before, strict=True)], BASE_LIMBS)
        error = sum((abs(a) * p.error for a, p in zip(op.coefficients, before, strict=True)), torch.zeros(1))
        if before[0].flat is not None:
            flat, size = self._flat_sum(op, before)
            return Part(base, ROOM * (error + gamma(len(before)) * size + lost), flat=flat)
        shape = self.images.shape[node]
        if shape is None:  # the parents are images of different shapes
            return None
        found: dict[int, list[tuple[float, Changes]]] = {}
        for a, p in zip(op.coefficients, before, strict=True):
            for changes in p.changes:
                found.setdefault(changes.first, []).append((a, changes))
        made = []
        for first in sorted(found):
            changes, cut = joined(found[first], CHANGE_LIMBS)
            reach = self._reach(len(changes.corner), first)
            if changes.level is None:  # the terms may cancel: what they round is not a part of the sum
                for a, term in found[first]:
                    size = abs(a) * term.spread(shape, -reach, reach)[2].flatten()
                    error = error + gamma(len(before) + LIMB_SUM) * size
            made.append(changes)
            lost += cut * float(reach.sum())
        return Part(base, ROOM * (error + lost), made)

    def _flat_sum(self, op: Sum, before: list[Part]) -> tuple[Tensor, Tensor]:
        """The sum, and the sizes of its terms, which may cancel."""
        wide = [(a, p.flat) for a, p in zip(op.coefficients, before, strict=True) if p.flat is not None]
        most = max(len(f) for _, f in wide)
        flat, size = (torch.zeros(rows, len(before[0].error), dtype=torch.float64) for rows in (most, 1))
        for a, f in wide:
            flat[: len(f)] += a * f
            size += abs(a) * (self._reach(len(f)) @ f.abs())
        return flat, size[0]

    def _reach(self, count: int, first: int = 0) -> Tensor:
        return self.kept.reach[first : first + count]

    def _select(self, node: int, op: Select, before: Part) -> Part:
        index = torch.as_tensor(np.maximum(op.index, 0))
        hole = torch.as_tensor(op.index < 0)
        base = Limbs(before.base.parts[:, index].masked_fill(hole, 0.0), before.base.level)
        window, shape = self.images.window[node], self.images.shape[node]
        if window is None or shape is None:
            raise TypeError(f"node {node} is no image")
        (down, across), pads = window.stride, (-window.start[0], -window.start[1])
        changes = [
            c.seen(shape, (1, 1), window.stride, pads, lambda f: f[..., ::down, ::across])
            for c in before.changes
        ]
        return Part(base, before.error[index].masked_fill(hole, 0.0), changes)

    def _conv(self, node: int, op: Conv, before: Part) -> Part | None:
        _shape, steps = op.output_shape, differences(op)
        terms = int(np.prod(op.weight.shape[1:]))
        if (op.pads[0], op.pads[1]) != (op.pads[2], op.pads[3]) or op.dilation != (1, 1) or op.transposed:
            return None
        if terms * BASE_LIMBS > MOST_PRODUCTS:
            return None
        weight = torch.as_tensor(op.weight)
        limbs, left = split(weight)
        whole = Convolution(op, weight, limbs, steps, terms, self.budget.cores)
        # differences of pixels round little; what the next convolution rounds decides
        rounds = gamma(whole.additions) * self._gain(node, op)
        plain = steps is None and rounds * self.growth[node] <= RELATIVE
        base, lost = whole.on_base(before.base, BASE_LIMBS)
        lost += 1.01 * left * terms * sum(before.base.largest())
        rounded, absolute = torch.zeros_like(before.error), weight.abs()
        made = []
        for changes in before.changes:
            reach = self._reach(len(changes.corner), changes.first)
            changes = changes.plain() if plain else changes
            if changes.level is None:
                rounded += changes.spread(op.input_shape, -reach, reach)[2].flatten()
            found, cut = whole.on_changes(changes, CHANGE_LIMBS)
            lost += (cut + 1.01 * left * terms * sum(changes.limbs.largest())) * float(reach.sum())
            made.append(found)
        error = over_windows(op, absolute, before.error + gamma(whole.additions) * rounded)
        if op.weight_error is not None:
            size = self._sizes(before, op.input_shape)
            error = error + over_windows(op, torch.as_tensor(op.weight_error), size)
        return self._shifted(base, ROOM * (error + lost), per_pixel(op, op.bias), bias_errors(op), made)

    def _shifted(
        self, base: Limbs, error: Tensor, bias: Tensor, bias_error: Tensor, changes: list[Changes]
    ) -> Part:
        """With the operator's bias."""
        constant, left = split(bias)
        total, cut = added([(1.0, base), (1.0, constant)], BASE_LIMBS)
        return Part(total, ROOM * (error + (left + cut) + bias_error) + TINY, changes)

    def _sizes(self, before: Part, shape: Shape | None) -> Tensor:
        """How large the values of a node can be."""
        size = before.base.value.abs() * (1 + 8 * UNIT) + before.error
        if before.flat is not None:
            return ROOM * (size + self._reach(len(before.flat)) @ before.flat.abs())
        for changes in before.changes:
            reach = self._reach(len(changes.corner), changes.first)
            size = size + changes.spread(_known(shape), -reach, reach)[2].flatten()
        return ROOM * size

    def _dense(self, op: Dense, before: Part, shape: Shape | None) -> Part | None:
        inputs = len(before.error)
        if inputs * DENSE_LIMBS > MOST_PRODUCTS:
            return None
        flat = _flattened(before, shape) if before.flat is None else before.flat
        size = self._reach(len(flat)) @ flat.abs()
        base, lost = dense_base(op, before.base, BASE_LIMBS)
        made, errors = [], []
        for start in range(0, op.size, ROWS):
            weight = torch.as_tensor(op.weight[start : start + ROWS])
            made.append(flat @ weight.T)
            own = weight.abs() @ (before.error + gamma(inputs + LIMB_SUM) * size)
            if op.weight_error is not None:
                own = own + torch.as_tensor(op.weight_error[start : start + ROWS]) @ self._sizes(
                    before, shape
                )
            errors.append(own)
        part = self._shifted(
            base, ROOM * (torch.cat(errors) + lost), torch.as_tensor(op.bias), bias_errors(op), []
        )
        return replace(part, flat=torch.cat(made, 1))

    def _ends(self, node: int) -> Ends:
        part, base = self.parts[node], self.parts[node].base.value
        below, above, size = (torch.zeros_like(base) for _ in range(3))
        n = self.kept.inputs
        high = self.kept.reach.clone()
        low = torch.cat([-high[:n], torch.zeros_like(high[n:])])
        if part.flat is not None:
            m = len(part.flat)
            positive, negative = part.flat.clamp(min=0), part.flat.clamp(max=0)
            below, above = low[:m] @ positive + high[:m] @ negative, high[:m] @ positive + low[:m] @ negative
            size = high[:m] @ part.flat.abs()
        for changes in part.changes:
            span = slice(changes.first, changes.first + len(changes.corner))
            found = changes.spread(_known(self.images.shape[node]), low[span], high[span])
            below, above, size = (a + b.flatten() for a, b in zip((below, above, size), found, strict=True))
        rounded = gamma(len(high) + LIMB_SUM) * (size + base.abs()) + TINY
        reserve = ROOM * (part.error + rounded)
        return Ends(base + below - reserve, base + above + reserve, size, base)

    def _forms(self, node: int, neurons: Tensor, ends: Ends) -> Forms:
        part, columns = self.parts[node], len(self.kept.reach)
        rows = torch.zeros(len(neurons), columns, dtype=torch.float64)
        if part.flat is not None:
            rows[:, : len(part.flat)] = part.flat[:, neurons].T
        for changes in part.changes:
            span = slice(changes.first, changes.first + len(changes.corner))
            rows[:, span] = changes.at(neurons, _known(self.images.shape[node]))
        rounded = gamma(LIMB_SUM) * (ends.size + ends.base.abs()) + TINY
        return Forms(rows, ends.base[neurons], ROOM * (part.error + rounded)[neurons])

    def _relu(self, parent: int) -> Part:
        part, ends, shape = self.parts[parent], self._ends(parent), self.images.shape[parent]
        low, high = ends.low.clone(), ends.high.clone()
        doubtful = _doubtful(low, high)
        moved = (doubtful & (ends.size != 0)).nonzero()[:, 0]
        if len(moved) and self.kept.layers:
            below, above = self.kept.ends(self._forms(parent, moved, ends))
            low[moved], high[moved] = torch.fmax(low[moved], below), torch.fmin(high[moved], above)
        unstable = moved[_doubtful(low, high)[moved]]
        first = len(self.kept.reach)
        if len(unstable):
            self.kept.add(self._forms(parent, unstable, ends), low[unstable], high[unstable])
            self.open.append((parent, unstable))
        passed = ~(high <= 0)
        passed[unstable] = False
        # a constant that may have either sign differs from its own ReLU by no more than it is off
        error = torch.where(
            doubtful & (ends.size == 0), torch.maximum(part.error, torch.maximum(-low, high)), part.error
        )
        base = Limbs(part.base.parts * passed, part.base.level)
        error = error * passed
        if part.flat is not None:
            unit = torch.zeros(len(unstable), len(error), dtype=torch.float64)
            unit[torch.arange(len(unstable)), unstable] = 1.0
            flat = functional.pad(part.flat * passed, (0, 0, 0, first - len(part.flat)))
            return Part(base, error, flat=torch.cat([flat, unit]))
        mask = passed.reshape(_known(shape))
        changes = [c.masked(mask) for c in part.changes]
        return Part(
            base, error, changes + ([_units(first, unstable, _known(shape))] if len(unstable) else [])
        )


def _doubtful(low: Tensor, high: Tensor) -> Tensor:
    """Which neurons may be on both sides; of those whose bounds are no numbers nothing is known."""
    return ~((low >= 0) | (high <= 0))


def _known(shape: Shape | None) -> Shape:
    if shape is None:
        raise TypeError("the node is no image")
    return shape


def _flattened(part: Part, shape: Shape | None) -> Tensor:
    """The changes of an image (variables, size): noughts for variables of other branches, which it does not see."""
    count = max((c.first + len(c.corner) for c in part.changes), default=0)
    flat = torch.zeros(count, len(part.error), dtype=torch.float64)
    for c in part.changes:
        flat[c.first : c.first + len(c.corner)] = c.plain().whole(_known(shape)).parts[0].flatten(1)
    return flat


def _units(first: int, neurons: Tensor, shape: Shape) -> Changes:
    """Variables that are neurons of the image themselves."""
    _, height, width = shape
    corner = torch.stack([neurons // width % height, neurons % width], 1)
    one = functional.one_hot(neurons // (height * width), shape[0]).to(torch.float64)
    return Changes(first, corner, one[None, :, :, None, None], 0)
