"""Narrower intervals of neurons under the assumption that a point violates the goal (INVPROP; Kotha et al. 2023).

What no counterexample needs is cut away without branching, layer by layer from the last one back, and again while
the goal's bound gains by it. An interval that becomes empty is a proof. Such intervals are true of one goal only:
the roots that hold them say so (`Root.violated`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.assumed import AssumedVariables, ascend_assumed
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.relax.base import Interval
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.root import Root, shrink
from verifolio.plugins.crown.worker_threads import WorkerThreads
from verifolio.run.budget import Budget

GOAL_STEPS = 30  # on the goal's own slopes, before every round; a search makes 50 once
STEPS = 20  # of every bound's slopes and weights: as many as smooth's, where a step costs more
# Of a layer's width that its sample must lose, and of the goal's bound that a round must gain. Both are low: a few
# percent in each of ten rounds close goals that branching does not. Choices.
WORTHWHILE, GAIN = 0.01, 0.01
SAMPLE = 16  # neurons with the largest triangles that are tried first: enough for an average
# Bounds of one pass: as many as keep a layer's rows within ELEMENTS numbers (2 MB in float32, the caches), but no
# fewer than 16 and no more than 256, as a batch of the search.
ELEMENTS, LEAST, MOST = 1 << 19, 16, 256


def goal_root(root: Root, goal: int) -> Root:
    """The root of one of its goals, without the neurons that this goal does not feel."""
    return _shrunk(root, {}, slice(goal, goal + 1), root.violated)


@dataclass(frozen=True)
class Assumed:
    """The root of one goal with narrower intervals, where the goal is violated, and the goal's bound on it.

    `gained`: whether the bound is better for it.
    """

    root: Root
    bound: float
    gained: bool


def assume_violation(root: Root, budget: Budget) -> Assumed | None:
    """Narrower intervals for the root of one goal, as long as they pay; None: the goal is violated nowhere."""
    before, first = -np.inf, np.inf
    while True:
        net = root.condensed
        if net is None or not net.kept:
            return Assumed(root, before, True)
        bounding = SubproblemBounds(root, net, budget)
        done = bounding.bound(bounding.first(), GOAL_STEPS)
        bound = float(done.margin)
        if bound > 0:
            return None
        first = min(first, bound)
        if budget.expired() or not bound > before + GAIN * abs(bound):
            return Assumed(root, bound, bound > first + GAIN * abs(first))
        before = bound
        work = _Round(bounding.exact, net, done.found.best.alpha[0].to(net.bias.dtype), -bound, budget)
        if work.run():
            return None
        if not work.changed:
            return Assumed(root, bound, bound > first + GAIN * abs(first))
        root = _shrunk(root, work.intervals(root.program.space), slice(0, 1), True)


@torch.no_grad()
def _shrunk(root: Root, ends: dict[int, Interval], goals: slice, violated: bool) -> Root:
    """Some goals of a root on the graph without the neurons that are stable by now."""
    known = {p: root.state.interval[p] for p in root.program.before} | ends
    small = shrink(root.program.graph, root.state.region, known, root.goal.rows[goals].double())
    return replace(small, disjuncts=root.disjuncts[goals], violated=violated)


class _Round:
    """One pass over the layers of a goal's network; `changed` says whether any interval is narrower now."""

    def __init__(self, exact: Root, net: Condensed, alpha: Tensor, missing: float, budget: Budget) -> None:
        if not exact.goal.mixable or bool(exact.goal.rhs.any()) or len(exact.goal.rhs) != 1:
            raise ValueError("the rows of one goal must be the network's outputs, to be compared with nought")
        self.exact, self.net, self.budget = exact, net, budget
        self.alpha, self.missing = alpha, missing
        self.nodes = [exact.program.parents[i][0] for i in exact.program.graph.relus]
        self.low, self.high = (torch.cat([exact.state.interval[p][k][0] for p in self.nodes]) for k in (0, 1))
        self.changed = False

    def run(self) -> bool:
        """Whether some interval came out empty: then nothing violates the goal."""
        # the first neurons are affine in the inputs: without a relaxation before them there is little to gain
        for cut in self.net.cuts[:0:-1]:
            if self.budget.expired():
                break
            if self._layer(cut):
                return True
        return False

    def intervals(self, space: Space) -> dict[int, Interval]:
        """The intervals by node, cast outward."""
        low, high = space.down(self.low.cpu().numpy())[None], space.up(self.high.cpu().numpy())[None]
        return {p: (low[:, cut], high[:, cut]) for p, cut in zip(self.nodes, self.net.cuts, strict=True)}

    def _layer(self, cut: slice) -> bool:
        """Narrow a layer's intervals, if a sample of them gains; whether one came out empty."""
        low, high = self.low[cut], self.high[cut]
        height = torch.where((low < 0) & (high > 0), -low * high / (high - low), 0.0)
        wanted = cut.start + height.argsort(descending=True)[: int((height > 0).sum())]
        sample, rest = wanted[:SAMPLE], wanted[SAMPLE:]
        before = self._width(sample)
        self._share(sample)
        if self._width(sample) <= (1 - WORTHWHILE) * before and not bool((self.low > self.high).any()):
            self._share(rest)
        if self._width(sample) < before:
            self.changed = True
            self._take()
        return bool((self.low > self.high).any())

    def _take(self) -> None:
        """Let the layers that follow in this round know."""
        ends = {
            p: (self.low[c][None], self.high[c][None]) for p, c in zip(self.nodes, self.net.cuts, strict=True)
        }
        state = replace(self.exact.state, interval=self.exact.state.interval | ends)
        self.exact = replace(self.exact, state=state, violated=True)
        kind = self.net.bias.dtype
        self.net = self.net.narrowed(self.low.to(kind), self.high.to(kind))

    def _width(self, neurons: Tensor) -> float:
        return float((self.high - self.low)[neurons].sum())

    def _share(self, neurons: Tensor) -> None:
        if not len(neurons):
            return
        widest = max(self.exact.program.sizes)
        room = int(np.clip(ELEMENTS // widest, LEAST, MOST)) // 2
        among = max(1, min(self.budget.cores, len(neurons) // LEAST))  # a few are not worth sharing
        waiting = list(neurons.split(min(room, -(-len(neurons) // among))))
        WorkerThreads(self.budget.cores, lambda: waiting.pop() if waiting else None, self._work).run()

    @torch.no_grad()
    def _work(self, neurons: Tensor) -> bool:
        count = len(neurons)
        rows = torch.nn.functional.one_hot(neurons, self.net.kept).to(self.net.bias.dtype)
        rows = torch.cat([rows, -rows])
        found = ascend_assumed(self.net, rows, self.alpha, self.missing, STEPS, self.budget)
        bound = prove_assumed(self.exact, rows, found)
        self.low[neurons] = torch.fmax(self.low[neurons], bound[:count])
        self.high[neurons] = torch.fmin(self.high[neurons], -bound[count:])
        return self.budget.expired()


def prove_assumed(exact: Root, rows: Tensor, found: AssumedVariables) -> Tensor:
    """What variables prove of `rows` (count, kept) over the neurons' inputs at points that violate the goal."""
    program = exact.program
    relus, kind = program.graph.relus, program.space.dtype
    nodes = [program.parents[i][0] for i in relus]
    sizes = [program.sizes[p] for p in nodes]
    state = replace(exact.state, lines=dict(exact.state.lines), noise=dict(exact.state.noise))
    # slopes outside [0, 1] are no lines below a ReLU, negative weights assume the opposite
    slopes, weight = found.alpha.to(kind).clamp(0, 1), found.weight.to(kind).clamp(min=0)
    for i, alpha in zip(relus, slopes.split(sizes, 1), strict=True):
        program.relax(state, i, alpha[None])
    extra = {p: part[None] for p, part in zip(nodes, rows.to(kind).split(sizes, 1), strict=True)}
    return program.lower(state, program.graph.output, weight[None], extra)[0]
