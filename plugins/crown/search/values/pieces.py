"""Parts of the whole domain on which the inputs of nonlinear functions lie in pieces of their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from verifolio.graph import Step
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.relax.base import Interval

SAMPLES = (0.25, 0.5, 0.75)  # where the distance of a line is measured: it touches the function near the ends


@dataclass(frozen=True)
class Pieces:
    """Each is of a `goal`, and nearest to a proof by one `row` of it; on `low` to `high` (count, columns).

    `alpha` (count, parameters) and `multiplier` (count, columns) are where bounding starts: what the parameters of
    the lines stand for, and the multipliers of the columns' ends. `branch` (count, candidates) are columns to cut
    next, best first; -1: none. The upper part begins `at`, the lower one ends `under`: the same number, but where a
    step jumps between them.
    """

    goal: Tensor
    row: Tensor
    bound: Tensor
    low: Tensor
    high: Tensor
    alpha: Tensor
    multiplier: Tensor
    branch: Tensor
    at: Tensor
    under: Tensor

    def __len__(self) -> int:
        return self.goal.shape[0]

    def pick(self, index: Tensor | slice) -> Pieces:
        return Pieces(*(getattr(self, f.name)[index] for f in fields(self)))

    def choose(self, candidate: Tensor) -> Pieces:
        """The same with one candidate alone, by its number (count, 1)."""
        branch, at, under = (t.gather(1, candidate) for t in (self.branch, self.at, self.under))
        return replace(self, branch=branch, at=at, under=under)

    def split(self) -> Pieces:
        """Both parts of every piece along its best candidate."""
        column, at, under = self.branch[:, :1], self.at[:, :1], self.under[:, :1]
        above = replace(self, low=self.low.scatter(1, column, at))
        below = replace(self, high=self.high.scatter(1, column, under))
        return self.join([above, below])

    @classmethod
    def join(cls, parts: list[Pieces]) -> Pieces:
        if len(parts) == 1:
            return parts[0]
        return Pieces(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Pieces)))


def jump_starts(op: Step, like: Tensor) -> Tensor:
    """The first double of every part between two jumps, in order; the last one of the part before precedes it."""
    ends: list[float] = []
    for b, at, below, above in zip(op.breakpoints, op.at, op.levels[:-1], op.levels[1:], strict=True):
        ends += [b] if at != below else []
        ends += [math.nextafter(b, math.inf)] if at != above else []
    return torch.tensor(sorted(set(ends)), dtype=like.dtype, device=like.device)


def nearest(starts: Tensor, low: Tensor, high: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """The end and the beginning of two parts at the start nearest to the middle; the middle if none is inside."""
    right = torch.searchsorted(starts, half.contiguous()).clamp(max=len(starts) - 1)
    left = (right - 1).clamp(min=0)
    begin = torch.where(
        (starts[right] - half).abs() <= (starts[left] - half).abs(), starts[right], starts[left]
    )
    inside = (begin > low) & (begin <= high)
    end = torch.nextafter(begin, torch.full_like(begin, -math.inf))
    return torch.where(inside, end, half), torch.where(inside, begin, half)


class SplitColumns:
    """The inputs of nonlinear functions, side by side, and the parameters of all lines likewise."""

    def __init__(self, program: Program, state: State, alpha: dict[int, Tensor]) -> None:
        self.program, self.nodes = program, program.before
        self.sizes = [program.sizes[p] for p in self.nodes]
        self.relaxed = list(alpha)
        self.widths = [a.shape[-1] for a in alpha.values()]
        relus = set(program.graph.relus)
        self.readers = {p: [i for i in alpha if p in program.parents[i]] for p in self.nodes}
        ends = [state.interval[p] for p in self.nodes]
        self.low, self.high = (torch.cat([end[k][0] for end in ends]) for k in (0, 1))
        self.defined = all(bool(end.isfinite().all()) for e in state.interval.values() for end in e)
        marks = [bool(found) and relus.issuperset(found) for found in self.readers.values()]
        self.kinked = torch.cat([torch.full_like(e[0][0], k) for e, k in zip(ends, marks, strict=True)]) > 0
        self.owner = torch.cat([torch.full((s,), p) for p, s in zip(self.nodes, self.sizes, strict=True)])
        self.owner = self.owner.to(self.low.device)
        steps = {program.parents[i][0]: program.graph.nodes[i].op for i in program.graph.steps}
        self.starts = {
            p: jump_starts(op, self.low) for p, op in steps.items() if isinstance(op, Step) and len(op.at)
        }

    def by_node(self, values: Tensor) -> dict[int, Tensor]:
        """Values of columns (..., columns) by the node that they are of."""
        return dict(zip(self.nodes, values.split(self.sizes, -1), strict=True))

    def lines(self, alpha: Tensor) -> dict[int, Tensor]:
        """Parameters (..., parameters) by the nonlinear node whose lines they choose."""
        return dict(zip(self.relaxed, alpha.split(self.widths, -1), strict=True))

    def narrowed(self, pieces: Pieces, node: int, low: Tensor, high: Tensor) -> Pieces:
        """The pieces with other intervals of one node."""
        lows, highs = self.by_node(pieces.low), self.by_node(pieces.high)
        lows[node], highs[node] = (t.expand(len(pieces), -1) for t in (low, high))
        return replace(pieces, low=torch.cat([*lows.values()], 1), high=torch.cat([*highs.values()], 1))

    def propagated(self, whole: State, pieces: Pieces) -> tuple[Pieces, Tensor]:
        """The pieces, narrower by interval arithmetic from node to node, and which of them are not empty (count,)."""
        state, full = self._forward(whole, pieces)
        found = [state.interval[p] for p in self.nodes]
        lows, highs = (torch.cat([end[k].expand(len(pieces), -1) for end in found], 1) for k in (0, 1))
        return replace(pieces, low=lows, high=highs), full

    def _forward(self, whole: State, pieces: Pieces) -> tuple[State, Tensor]:
        low, high = self.by_node(pieces.low), self.by_node(pieces.high)
        state = self.program.enter(whole.region)
        full = torch.ones(len(pieces), dtype=torch.bool, device=pieces.low.device)
        for node in range(self.program.graph.output + 1):
            if node:
                self.program.forward(state, node)
            if node in low:
                ends = state.interval[node]
                bottom, top = torch.fmax(ends[0], low[node]), torch.fmin(ends[1], high[node])
                full &= ~(bottom > top).any(1)
                state.interval[node] = torch.minimum(bottom, top), torch.maximum(bottom, top)
        return state, full

    def cut(self, pieces: Pieces) -> Tensor:
        """Which columns' ends may have a multiplier (count, columns): those that are not the whole domain's."""
        inner = (pieces.low > self.low) | (pieces.high < self.high)
        return inner & pieces.low.isfinite() & pieces.high.isfinite()

    def range(self, pieces: Pieces) -> Interval:
        """What the parameters may stand for on the pieces (count, parameters); what they stood for is in it."""
        low, high = self.by_node(pieces.low), self.by_node(pieces.high)
        least, most = [pieces.alpha[:, :0]], [pieces.alpha[:, :0]]
        for i, now in self.lines(pieces.alpha).items():
            rule, p = self.program.relaxations[i], self.program.parents[i][0]
            ends = rule.range((low[p], high[p])) if rule is not None and p in low else None
            ends = (torch.zeros_like(now), torch.ones_like(now)) if ends is None else ends
            least.append(torch.fmin(ends[0], now))
            most.append(torch.fmax(ends[1], now))
        return torch.cat(least, 1), torch.cat(most, 1)

    def shares(self, pieces: Pieces, least: Tensor, most: Tensor) -> Tensor:
        """The parameters that stand for what the pieces' lines start with; half where that was no number."""
        share = (pieces.alpha - least) / (most - least).clamp(min=1e-30)
        return share.nan_to_num(0.5).clamp(0, 1)

    def state(self, whole: State, pieces: Pieces) -> State:
        """The whole domain's state, repeated, with the pieces' intervals.

        Where a function is not defined on the whole domain, nothing after it is known there: then all is done anew.
        """
        if not self.defined:
            return self._forward(whole, pieces)[0]
        low, high = self.by_node(pieces.low), self.by_node(pieces.high)
        interval: dict[int, Interval] = dict(whole.interval)
        interval.update({p: (low[p], high[p]) for p in self.nodes})
        return State(whole.region, interval, dict(whole.noise))

    def middle(self, pieces: Pieces, column: Tensor) -> tuple[Tensor, Tensor]:
        """Where the lower part ends and the upper one begins (count, k).

        A ReLU is cut at nought, a step at the jump that is nearest to the middle, anything else in the middle.
        """
        low, high = pieces.low.gather(1, column), pieces.high.gather(1, column)
        half = low + (high - low) / 2
        half = torch.where(self.kinked[column] & (low < 0) & (high > 0), torch.zeros_like(half), half)
        under, at = half, half
        for node, starts in self.starts.items():
            here = self.owner[column] == node
            if bool(here.any()):
                ends, begins = nearest(starts, low, high, half)
                under, at = torch.where(here, ends, under), torch.where(here, begins, at)
        return under, at

    def savings(self, pieces: Pieces, rows: dict[int, Tensor]) -> Tensor:
        """How much less each column's relaxations cost after a cut in the middle (count, columns).

        The cost of a line is its distance from the function, times the coefficient (`rows`) that meets it.
        """
        count, every = len(pieces), torch.arange(len(self.low), device=self.low.device)
        under, at = (self.by_node(t) for t in self.middle(pieces, every.expand(count, -1)))
        low, high = self.by_node(pieces.low), self.by_node(pieces.high)
        whole = {p: (low[p], high[p]) for p in self.nodes}
        before = {i: self._cost(i, whole, rows[i]) for i in self.relaxed if i in rows}
        saved = []
        for p in self.nodes:
            halves = ({**whole, p: (low[p], under[p])}, {**whole, p: (at[p], high[p])})
            total = torch.zeros_like(low[p])
            for i in sorted(before.keys() & set(self.readers[p])):
                after = self._cost(i, halves[0], rows[i]) + self._cost(i, halves[1], rows[i])
                total = total + (before[i] - after / 2).nan_to_num(0.0)
            saved.append(total)
        return torch.cat(saved, 1)

    def _cost(self, node: int, ends: dict[int, Interval], rows: Tensor) -> Tensor:
        rule, parents = self.program.relaxations[node], self.program.parents[node]
        if rule is None:
            return torch.zeros_like(rows)
        inputs = [ends[p] for p in parents]
        width = self.widths[self.relaxed.index(node)]
        lines = rule.lines(inputs[0][0].new_full((len(rows), width), 0.5), *inputs)
        total = torch.zeros_like(rows)
        samples = SAMPLES if len(parents) == 1 else (0.5,)
        for share in samples:
            points = [low + share * (high - low) for low, high in inputs]
            value, _ = rule.interval(*((x, x) for x in points))
            below, above = torch.zeros_like(value), torch.zeros_like(value)
            for x, down, up in zip(points, lines.lower_slope, lines.upper_slope, strict=True):
                below, above = below + down * x, above + up * x
            below = below if lines.lower_bias is None else below + lines.lower_bias
            above = above if lines.upper_bias is None else above + lines.upper_bias
            total = total + torch.where(rows > 0, value - below, above - value)
        return rows.abs() * total / len(samples)
