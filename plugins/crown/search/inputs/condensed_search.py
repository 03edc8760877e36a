"""Branching on the inputs of a large network that has few: every box has the network of its own unstable neurons.

Halving an input of a large network makes many of its neurons stable. The parts of a box are bounded on the box's own
network (`reduce.box_network`), so that every level costs less than the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.answer import Outcome
from verifolio.model.problem import NARROW, Problem
from verifolio.plugin.evidence import Assumptions
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.ascent import Variables, ascend
from verifolio.plugins.crown.optimise.dual import Goal
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce.box_network import BoxNetwork, box_network
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.reduce.kept import Passed
from verifolio.plugins.crown.reduce.opposites import merge_opposites
from verifolio.plugins.crown.search.attack import InterleavedAttack
from verifolio.plugins.crown.search.root import as_bounds, make_goal
from verifolio.plugins.crown.search.violation import Violation

Array = NDArray[np.float64]
MOST_NUMBERS = 1 << 27  # of one matrix: 1 GB in float64
# Steps on the slopes of the goal's rows: a step costs two products with vectors, a box as many as it has neurons.
ITERATIONS = 20
# times the error of the goal's forms: a bound in float32 that exceeds this ends the ascent; a choice
RESERVE = 2.0
# Weight of what a row itself falls along an input: only one half of a box gains by that, and by relaxations both.
LINEAR = 0.1
FIRST_MIX = (
    0.7  # weight of a conjunction's best row at first; the rest is shared, so that gradients reach all rows
)


@dataclass(frozen=True)
class Box:
    """A part of the domain, to be bounded on the network of a larger part. `disjunct`: of every row of the goal."""

    network: BoxNetwork
    region: Region
    disjunct: Tensor
    depth: int = 0


class CondensedSearch:
    """Depth first, one box after the other; the threads share the rows of a box."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.violation = Violation(problem, context.device)
        self.attack = InterleavedAttack(problem, context, eager=True)
        self.waiting: list[Box] = []
        self.boxes, self.stuck, self.open_share, self.bound = 0, 0, 1.0, -np.inf

    def run(self) -> Outcome:
        goal, budget = make_goal(Space(torch.float64), self.problem), self.context.budget
        network = self._make(goal)
        if network is None:
            return Outcome.unknown("as matrices the network is too large, or making them takes too long")
        disjunct = torch.arange(len(goal.rhs)).repeat_interleave(goal.rhs.shape[1])
        point = self._look(Box(network, network.kept.region, disjunct))
        while self.waiting and point is None and not budget.expired():
            box = self.waiting.pop()
            own = box.network.narrowed(box.region, budget)
            if own is None:
                self.waiting.append(box)
                break
            point = self._look(Box(own, box.region, box.disjunct, box.depth))
        return self._conclude(point)

    def _make(self, goal: Goal) -> BoxNetwork | None:
        """The network of the whole domain; None: it takes too much time or memory."""
        merged = merge_opposites(self.problem.graph)
        region = Region.of([self.problem.domain], Space(torch.float64))
        made = box_network(merged.graph, region, goal, self.context.budget, MOST_NUMBERS)
        if made is None:
            return None
        self.context.evidence.add_bounds(as_bounds(self.problem, made[1], merged, Assumptions()))
        return made[0]

    def _points(self, inputs: Array) -> Array:
        """Inputs of the problem, by those of the boxes."""
        return inputs

    def _prove(self) -> None:
        """Everybody may know that the problem's domain is refuted."""
        self.context.evidence.add_refuted(self.problem, self.problem.domain)

    def _look(self, box: Box) -> Array | None:
        """Bound a box on its own network; halve it if it stays open. Perhaps a witness."""
        self.boxes += 1
        kept, goal = box.network.kept, box.network.goal
        passed = kept.lower(goal)
        impossible = box.disjunct[passed.bound > 0]
        left = (~torch.isin(box.disjunct, impossible)).nonzero()[:, 0]
        box = Box(box.network.pick(left), box.region, box.disjunct[left], box.depth)
        if len(left):
            box, passed = self._ascend(box, passed.pick(left))
        if not len(box.disjunct):
            self.open_share -= 0.5**box.depth
            return None
        self.bound = float(passed.bound.min())
        self._halve(box, passed)
        return self._try(box, passed)

    def _ascend(self, box: Box, passed: Passed) -> tuple[Box, Passed]:
        """What stays open with slopes of each goal's own and the best weights of its rows, sought in float32."""
        kept, goal = box.network.kept, box.network.goal
        numbers, own, height = box.disjunct.unique(return_inverse=True, return_counts=True)
        rows = own.argsort(stable=True).reshape(len(numbers), int(height[0]))
        best = torch.nn.functional.one_hot(passed.bound[rows].argmax(1), rows.shape[1])
        net = condensed(box.network)
        alpha = torch.cat([net.low[:0], *(k.lower.float() for k in kept.layers)]).expand(len(rows), -1)
        mix = (FIRST_MIX * best + (1 - FIRST_MIX) / rows.shape[1]).float()
        first = Variables(alpha, torch.zeros_like(alpha), mix)
        phase = torch.zeros(len(rows), kept.count, dtype=torch.int8)
        target = RESERVE * float(goal.error.max())
        found = ascend(net, phase, rows, first, ITERATIONS, target, self.context.budget).best.to(
            torch.float64
        )
        weights = torch.zeros(len(rows), len(goal), dtype=torch.float64)
        weights.scatter_(1, rows, found.mix.clamp(min=0))
        better = kept.lower(goal.combined(weights, kept.reach), found.alpha)
        left = (~(better.bound > 0)).nonzero()[:, 0]
        still = torch.isin(box.disjunct, numbers[left]).nonzero()[:, 0]
        return Box(box.network.pick(still), box.region, box.disjunct[still], box.depth), better.pick(left)

    def _halve(self, box: Box, passed: Passed) -> None:
        """Both parts of a box, along the input on whose width most of what relaxations lose depends."""
        low, high = box.region.lower, box.region.upper
        width = (high - low)[0]
        score = saving(box.network, passed) * width + LINEAR * (passed.inputs.abs() * width).sum(0)
        score = torch.where(width > NARROW * torch.maximum(low.abs(), high.abs())[0], score, -1.0)
        if not len(score):  # all inputs are fixed
            self.stuck += 1
            return
        at = int(score.nan_to_num(0.0).argmax())
        middle = (low[0, at] + high[0, at]) / 2
        if not bool(score[at] >= 0):
            self.stuck += 1
            return
        left, right = high.clone(), low.clone()
        left[0, at], right[0, at] = middle, middle
        for region in (Region(low, left), Region(right, high)):
            self.waiting.append(Box(box.network, region, box.disjunct, box.depth + 1))

    def _try(self, box: Box, passed: Passed) -> Array | None:
        """The corners at which the open rows are least, and now and then an attack from there."""
        points = self._points(box.region.corner(passed.inputs[None])[0].numpy())
        value = self.violation(points)
        best = points[int(value.argmin())]
        if value.min() <= 0 and self.context.check(best):
            return np.asarray(best)
        self.context.evidence.add_candidate(best)
        return self.attack.run([best]) if self.attack.due() else None

    def _conclude(self, point: Array | None) -> Outcome:
        stats: dict[str, float | int | str] = {"domains": self.boxes}
        if point is not None:
            return Outcome.found(point, stats=stats)
        if not self.waiting and not self.stuck:
            self._prove()
            return Outcome.proved(stats={**stats, "by": "search" if self.boxes > 1 else "optimised bounds"})
        stats["open_domains"] = len(self.waiting) + self.stuck
        reason = f"out of time after {self.boxes} boxes; {self.open_share:.2%} of the input set is open"
        if self.stuck:
            reason = f"{self.stuck} boxes are too small to halve and stay open"
        return Outcome.unknown(f"{reason}, the last bound is {self.bound:.4g}", bound=self.bound, stats=stats)


def condensed(network: BoxNetwork) -> Condensed:
    """The network in float32, for the ascent."""
    kept, goal = network.kept, network.goal
    n, count = kept.inputs, kept.count
    forms = [*(k.forms for k in kept.layers), goal]
    rows = torch.zeros(count + len(goal), n + count)
    start = 0
    for part in forms:
        rows[start : start + len(part), : part.rows.shape[1]] = part.rows
        start += len(part)
    empty = goal.bias[:0]
    low, high = (
        torch.cat([empty, *(getattr(k, name) for k in kept.layers)]).float() for name in ("low", "high")
    )
    region = Region(kept.region.lower.float(), kept.region.upper.float())
    bias = torch.cat([f.bias for f in forms]).float()
    return Condensed(
        rows[:, :n].contiguous(),
        rows[:, n:].contiguous(),
        bias,
        list(map(len, kept.layers)),
        low,
        high,
        region,
    )


def saving(network: BoxNetwork, passed: Passed) -> Tensor:
    """How much the open rows lose by relaxations per unit of each input's width (inputs,), roughly.

    A neuron costs its coefficient times the height of its triangle, which falls with the width of its interval. By
    which inputs that is wide is taken from the linear map in which every neuron has the slope of its upper line.
    """
    kept = network.kept
    n = kept.inputs
    maps = [torch.eye(n, dtype=torch.float64)]
    weight, start = passed.met.abs().sum(0), 0
    total = torch.zeros(n, dtype=torch.float64)
    for layer in kept.layers:
        own = layer.forms.rows @ torch.cat(maps)
        height = -layer.low * layer.high / (layer.high - layer.low) ** 2
        total += (weight[start : start + len(layer)] * height) @ own.abs()
        maps.append(layer.slope[:, None] * own)
        start += len(layer)
    return total
