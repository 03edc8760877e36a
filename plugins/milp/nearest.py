"""Best first over the phases towards the closest counterexample; every distance it proves is a safe dual bound.

A node is a set of fixed phases, its bound the least distance proved for it or for a node above it. What the
solver claims only steers the search: the proved distance is the least bound of all nodes that were left.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.encode.condition import distance_model
from verifolio.encode.model import Array
from verifolio.encode.rows import Encoding, box
from verifolio.encode.safe import proves_infeasible, safe_lower_bound
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Ball, Problem
from verifolio.plugin.verifier import Context
from verifolio.vnnlib import Rows

from .highs import Lp, LpResult
from .solver import SolverSettings, SolveStatus
from .tree import Brancher

GAP = 1e-6  # of the radius: nodes that promise less are not opened; float32 inputs are no finer than 1e-7
# of a row, far above the solver's tolerance: a leaf that it calls infeasible without proof gets a bound this way
LOOSEN = 1e-6
# a row is tightened by these until a point replays: float32 rounding is 1e-7 of a value, and adds up over layers
MARGINS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
POLISH_SECONDS = 10.0  # for one program with all phases fixed: it takes milliseconds unless the solver cycles
PATTERN_EVERY = 8  # nodes between two looks at the phases of a relaxation's own point: a look costs a program
MORE = 64  # nodes for a closer point that replays, after the proved distance is final; a choice
# linear programs held at a time, one per disjunct: ten classes fit, a hundred would fill the memory
KEPT = 12
FREE = -1  # a phase that is not fixed; 0 and 1 are inactive and active

Phases = NDArray[np.int8]


class Incumbent:
    """The closest point so far that replays."""

    def __init__(self, problem: Problem, ball: Ball, context: Context) -> None:
        self.ball, self.context = ball, context
        self.distance, self.replays = np.inf, 0
        self.point: Array | None = None
        self._box = box(problem.domain)

    def accept(self, x: Array) -> bool:
        """Keep the input if it is closer than the best, inside the ball, and replays."""
        x = np.clip(x, *self._box)
        distance = self.ball.distance(x)
        if distance > self.ball.radius or distance >= self.distance:
            return False
        self.replays += 1
        if not self.context.check(x):
            return False
        self.point, self.distance = x, distance
        return True


class Target:
    """One disjunct: minimise the distance subject to its rows, with phases fixed or left open."""

    def __init__(
        self,
        encoding: Encoding,
        problem: Problem,
        rows: Rows,
        ball: Ball,
        settings: SolverSettings,
        context: Context,
    ) -> None:
        self.encoding, self.problem, self.rows, self.ball = encoding, problem, rows, ball
        self.settings, self.budget = settings, context.budget
        self.scale = 1.0 + float(np.abs(rows.coefficient).max(initial=0.0))
        model = distance_model(encoding, problem.domain, rows, ball)
        self.model, self.binaries = model.model, model.binaries
        self.lp = Lp(self.model, settings, context.budget)
        self.brancher = Brancher(model)

    def solve(self, phases: Phases, cutoff: float = np.inf) -> LpResult:
        self.lp.set_cutoff(cutoff)
        self.lp.set_bounds(*self.bounds(phases))
        return self.lp.solve()

    def proved(self, result: LpResult) -> float:
        """The proved distance of the node the program stands at; inf where it is proved to be empty."""
        if result.ray is not None and proves_infeasible(self.lp.model, result.ray):
            return np.inf
        return -np.inf if result.duals is None else safe_lower_bound(self.lp.model, result.duals)

    def bounds(self, phases: Phases) -> tuple[Array, Array]:
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        lower[self.binaries[phases == 1]] = 1.0
        upper[self.binaries[phases == 0]] = 0.0
        return lower, upper

    def shifted(self, phases: Phases, margin: float) -> tuple[Lp, LpResult]:
        """The program with fixed phases and rows that hold by `margin` more than they need to."""
        target = distance_model(self.encoding, self.problem.domain, self.rows, self.ball, margin * self.scale)
        lp = Lp(target.model, self.settings, self.budget)
        lp.set_bounds(*self.bounds(phases))
        return lp, lp.solve(POLISH_SECONDS)


@dataclass(frozen=True, order=True)
class _Node:
    bound: float
    number: int
    target: int = field(compare=False)
    phases: Phases = field(compare=False)


class Nearest:
    """The search over all disjuncts on one encoding."""

    def __init__(
        self,
        problem: Problem,
        encoding: Encoding,
        groups: Sequence[Rows],
        ball: Ball,
        best: Incumbent,
        settings: SolverSettings,
        context: Context,
    ) -> None:
        self.problem, self.encoding, self.groups, self.ball = problem, encoding, groups, ball
        self.best, self.settings, self.context = best, settings, context
        self.gap = GAP * ball.radius
        self.closed = np.inf  # the least bound of what was closed
        self.claimed = np.inf  # the solver's distance of some pattern; it steers, and proves nothing
        self.nodes, self.more, self.numbers = 0, 0, 0
        self._module = GraphModule(problem.graph, torch.float64)
        self._targets: dict[int, Target] = {}
        self._tried: dict[bytes, float] = {}
        self._heap: list[_Node] = []
        count = sum(len(b) for b in encoding.binaries.values())
        for k in range(len(groups)):
            self._push(0.0, k, np.full(count, FREE, np.int8))

    @property
    def lower(self) -> float:
        """No counterexample of the model is closer; inf where there is none."""
        return min(self.closed, self._heap[0].bound if self._heap else np.inf)

    @property
    def finished(self) -> bool:
        """Whether the proved distance is as large as it will get, up to the gap."""
        least = min(self.closed, self.claimed, self.best.distance)
        return not self._heap or self._heap[0].bound >= least - self.gap

    def run(self, limit: float, enough: float) -> None:
        """Until finished, out of time, after `limit` nodes, or at a point closer than `enough`."""
        while self._heap and self.nodes < limit and not self.context.budget.expired():
            if self.finished:
                self.more += 1
                near = self._heap[0].bound >= self.best.distance - self.gap
                if near or self.more > MORE:
                    return
            self._visit(heapq.heappop(self._heap))
            if self.best.distance < enough and not self.finished:
                return

    def try_pattern(self, k: int, phases: Phases) -> float:
        """The solver's distance of the closest point with these phases, replayed where it would be the best."""
        key = k.to_bytes(4, "little") + phases.tobytes()
        if key in self._tried:
            return self._tried[key]
        target = self._target(k)
        result = target.solve(phases)
        optimal = result.status is SolveStatus.OPTIMAL and result.point is not None
        self._tried[key] = result.objective if optimal else np.inf
        if result.point is None:
            return np.inf
        self.claimed = min(self.claimed, result.objective)
        if result.objective < self.best.distance - self.gap and not self._accept(result.point):
            self._polish(target, phases)
        return result.objective

    def _visit(self, node: _Node) -> None:
        """Close the node, or push its children."""
        self.nodes += 1
        target = self._target(node.target)
        result, proved = self._solve(target, node)
        bound = max(node.bound, proved)
        if bound >= self.best.distance - self.gap or bound > self.ball.radius:
            self.closed = min(self.closed, bound)
            return
        if self.context.budget.expired():
            heapq.heappush(self._heap, node)
            return
        free = np.flatnonzero(node.phases == FREE)
        if len(free) == 0:
            self._leave(target, node, bound, result)
        elif not self._whole(target, node, bound, result):
            k = target.brancher.choose(result, free)
            for phase in (0, 1):
                phases = node.phases.copy()
                phases[k] = phase
                self._push(bound, node.target, phases)

    def _solve(self, target: Target, node: _Node) -> tuple[LpResult, float]:
        """The node's program; once more without the cutoff where rounding spoiled what was cut off."""
        result = target.solve(node.phases, self.best.distance)
        proved = target.proved(result)
        if result.status is SolveStatus.ABOVE and proved < self.best.distance - self.gap:
            result = target.solve(node.phases)
            proved = target.proved(result)
        return result, proved

    def _whole(self, target: Target, node: _Node, bound: float, result: LpResult) -> bool:
        """Try the phases that the relaxation hints at; whether one attains the bound, so that it is closed."""
        if result.point is None:
            return False
        z = np.clip(result.point[target.binaries], 0.0, 1.0)
        whole = float((z * (1 - z)).max(initial=0.0)) < GAP
        distance = np.inf
        if whole:
            distance = self.try_pattern(node.target, np.round(z).astype(np.int8))
        if self.nodes <= PATTERN_EVERY or self.nodes % PATTERN_EVERY == 0:
            x = np.clip(result.point[self.encoding.inputs], *box(self.problem.domain))
            distance = min(distance, self.try_pattern(node.target, self._phases_at(x)))
        if distance > bound + self.gap:
            return False
        self.closed = min(self.closed, bound)
        return True

    def _leave(self, target: Target, node: _Node, bound: float, result: LpResult) -> None:
        """A leaf: all phases are fixed, and its bound is what it is."""
        self.try_pattern(node.target, node.phases)
        if result.status is not SolveStatus.OPTIMAL:
            lp, loose = target.shifted(node.phases, -LOOSEN)
            if loose.duals is not None:
                bound = max(bound, safe_lower_bound(lp.model, loose.duals))
        self.closed = min(self.closed, bound)

    def _polish(self, target: Target, phases: Phases) -> None:
        """The optimum lies on a tie: ask for a little more until a point replays."""
        for margin in MARGINS[1:]:
            _, result = target.shifted(phases, margin)
            if result.point is None or self._accept(result.point) or self.context.budget.expired():
                return

    def _accept(self, point: Array) -> bool:
        return self.best.accept(point[self.encoding.inputs])

    def _phases_at(self, x: Array) -> Phases:
        """The phases of the network itself at a point, in the order of the binaries."""
        with torch.no_grad():
            values = self._module.values(torch.as_tensor(x)[None])
        found = []
        for i, neurons in self.encoding.unstable.items():
            read = values[self.problem.graph.nodes[i].parents[0]][0].numpy()
            found.append((read[neurons] > 0).astype(np.int8))
        return np.concatenate([np.zeros(0, np.int8), *found])

    def _target(self, k: int) -> Target:
        if k not in self._targets:
            if len(self._targets) >= KEPT:
                del self._targets[next(iter(self._targets))]
            self._targets[k] = Target(
                self.encoding, self.problem, self.groups[k], self.ball, self.settings, self.context
            )
        return self._targets[k]

    def _push(self, bound: float, target: int, phases: Phases) -> None:
        self.numbers += 1
        heapq.heappush(self._heap, _Node(bound, -self.numbers, target, phases))
