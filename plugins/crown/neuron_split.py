"""Branch and bound on ReLU phases: for networks with many inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.answer import Outcome
from verifolio.plugins.crown.branching import CANDIDATES, pick_by_trial, rank
from verifolio.plugins.crown.input_split import Violation
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.leaf import LeafSolver
from verifolio.plugins.crown.optimise import Goal, Result, Schedule, evaluate, optimise, start
from verifolio.plugins.crown.program import State
from verifolio.plugins.crown.root import bound_root, open_goals
from verifolio.plugins.crown.subproblems import HALF, Subproblems
from verifolio.problem import Problem
from verifolio.verifier import Context

if TYPE_CHECKING:
    from verifolio.plugins.crown.verifier import CrownOptions

Array = NDArray[np.float64]
ROOT_ITERATIONS = 50
TRIED_POINTS = 64
TRIAL_ITERATIONS = 6
TRIAL_CHILDREN = 512


@dataclass
class Counts:
    """What the search has done so far."""

    domains: int = 0
    stuck: int = 0
    closed_share: float = 0.0


class NeuronSplit:
    """Root bounds first; then domains in batches, worst first within a batch, depth first overall."""

    def __init__(self, problem: Problem, context: Context, options: CrownOptions) -> None:
        self.problem, self.context, self.options = problem, context, options
        self.violation = Violation(problem, context.device)
        space = Space(torch.float32, context.device)
        self.root = bound_root(problem, space, options.steps, options.memory // 64, context.budget)
        context.evidence.add_bounds(self.root.bounds)
        self.program, self.goal = self.root.program, self.root.goal
        graph = self.program.graph
        self.relu_inputs = tuple(self.program.parents[i][0] for i in graph.relus)
        self.counts = Counts()
        self.stack: list[Subproblems] = []
        self.leaf_solver: LeafSolver | None = None

    def run(self) -> Outcome:
        if not len(self.root.disjuncts):
            return self._proved("bounds")
        items, point = self._first()
        if point is not None:
            return Outcome.found(point, stats=self._stats())
        if not len(items):
            return self._proved("optimised bounds")
        # without unstable neurons the small graph is affine: a leaf, which float64 decides
        if self.options.split == "none" or not (self.relu_inputs or self.goal.mixable):
            return self._give_up("bounds alone do not decide", items)
        self.stack.append(items)
        while self.stack and not self.context.budget.expired():
            point = self._round()
            if point is not None:
                return Outcome.found(point, stats=self._stats())
        if self.stack:
            return self._give_up("out of time", Subproblems.join(self.stack))
        if self.counts.stuck:
            return self._give_up(f"{self.counts.stuck} leaves without unstable neurons stay open", None)
        return self._proved("search")

    def _first(self) -> tuple[Subproblems, Array | None]:
        """Optimised bounds of the whole domain for every open goal."""
        count = len(self.goal.rhs)
        state = self._spread(count)
        sizes = {p: self.program.sizes[p] for p in self.relu_inputs}
        device = self.program.space.device
        items = Subproblems(
            torch.arange(count, device=device),
            torch.full((count,), -torch.inf, device=device),
            torch.full((count, CANDIDATES), -1, device=device),
            self._mix(state),
            {p: torch.zeros(count, n, dtype=torch.int8, device=device) for p, n in sizes.items()},
            {i: a.to(HALF) for i, a in start(self.program, state).alpha.items()},
            {p: torch.zeros(count, n, dtype=HALF, device=device) for p, n in sizes.items()},
        )
        return self._bound(items, ROOT_ITERATIONS)

    def _mix(self, state: State) -> Tensor | None:
        """First weights of the rows of conjunctions: mostly the row that is nearest to a proof."""
        height = self.goal.rhs.shape[1]
        if height == 1 or not self.goal.mixable:
            return None
        with torch.no_grad():
            margin = evaluate(self.program, state, self.goal, {}, start(self.program, state)).margin
        best = torch.nn.functional.one_hot(margin.nan_to_num(nan=-torch.inf).argmax(1), height)
        return (0.7 * best + 0.3 / height).to(HALF)

    def _spread(self, count: int, signs: dict[int, Tensor] | None = None) -> State:
        """The root's state repeated, with the fixed neurons' intervals cut at zero."""
        state = self.root.state
        interval = dict(state.interval)
        for p in self.program.before:
            low, high = (t.expand(count, -1) for t in state.interval[p])
            if signs is not None and p in signs:
                low = torch.where(signs[p] > 0, low.clamp(min=0), low)
                high = torch.where(signs[p] < 0, high.clamp(max=0), high)
            interval[p] = (low, high)
        return State(state.region, interval, state.noise)

    def _round(self) -> Array | None:
        """Take a batch, split it, bound the children, keep the open ones."""
        items = self._take()
        leaves = items.branch[:, 0] < 0
        if bool(leaves.any()):
            point = self._finish(items.pick(leaves.nonzero()[:, 0]))
            items = items.pick((~leaves).nonzero()[:, 0])
            if point is not None or not len(items):
                return point
        items = pick_by_trial(items, self._trial, TRIAL_CHILDREN)
        children, point = self._bound(items.split(), self.options.iterations)
        self.counts.domains += 2 * len(items)
        if len(children):
            self.stack.append(children.pick(children.bound.argsort(descending=True)))
        return point

    def _finish(self, leaves: Subproblems) -> Array | None:
        """Decide subproblems that have nothing left to split; those that stay open are counted."""
        if not self.goal.mixable:
            self.counts.stuck += len(leaves)
            return None
        if self.leaf_solver is None:
            self.leaf_solver = LeafSolver(self.root)
        for k in range(len(leaves)):
            proved, point = self.leaf_solver.solve(leaves.pick(slice(k, k + 1)))
            if not proved and point is not None and self.context.check(point):
                return point
            self.counts.stuck += not proved
        return None

    def _bound(self, items: Subproblems, iterations: int) -> tuple[Subproblems, Array | None]:
        """The subproblems that stay open, with their new bounds and branching candidates; perhaps a witness."""
        state, goal, signs, result = self._optimised(items, iterations)
        left = open_goals(result.margin)
        bound = torch.fmax(result.margin.amax(1), items.bound)
        branch = rank(self.program, state, goal, signs, result)
        bounded = items.with_dual(result.dual, bound, branch).pick(left)
        return bounded, self._try_points(result) if len(left) else None

    def _trial(self, items: Subproblems) -> Tensor:
        """Quick bounds of subproblems, to compare branching candidates."""
        return self._optimised(items, TRIAL_ITERATIONS)[3].margin.amax(1)

    def _optimised(
        self, items: Subproblems, iterations: int
    ) -> tuple[State, Goal, dict[int, Tensor], Result]:
        state = self._spread(len(items), items.signs)
        goal = self.goal.pick(items.disjunct)
        dual = items.dual(self.program.space.dtype)
        signs = {p: s.to(self.program.space.dtype) for p, s in items.signs.items() if bool(s.any())}
        result = optimise(self.program, state, goal, signs, dual, Schedule(iterations), self.context.budget)
        return state, goal, signs, result

    def _take(self) -> Subproblems:
        """Up to a batch of domains from the top of the stack."""
        room = self.options.batch or self._default_batch()
        parts = []
        while self.stack and room > 0:
            top = self.stack.pop()
            if len(top) > room:
                self.stack.append(top.pick(slice(0, len(top) - room)))
                top = top.pick(slice(len(top) - room, len(top)))
            parts.append(top)
            room -= len(top)
        return Subproblems.join(parts)

    def _default_batch(self) -> int:
        widest = max(self.program.sizes)
        return int(np.clip((1 << 19) // widest, 16, 256))

    def _try_points(self, result: Result) -> Array | None:
        """The corners at which the linear bounds are smallest; whatever looks satisfied is replayed."""
        lead = result.margin.nan_to_num(nan=-np.inf).argmax(1)
        rows = result.captured[0].expand(len(lead), -1, -1)
        rows = rows[torch.arange(len(lead), device=lead.device), lead][:TRIED_POINTS]
        points = self.root.state.region.corner(rows[None])[0].double().cpu().numpy()
        value = self.violation(points)
        best = int(value.argmin())
        if value[best] <= 0 and self.context.check(points[best]):
            return np.asarray(points[best])
        return None

    def _stats(self) -> dict[str, float | int | str]:
        return {"domains": self.counts.domains}

    def _proved(self, how: str) -> Outcome:
        self.context.evidence.add_refuted(self.problem, self.problem.domain)
        return Outcome.proved(stats={**self._stats(), "by": how})

    def _give_up(self, why: str, items: Subproblems | None) -> Outcome:
        bound = None if items is None else float(items.bound.min())
        count = 0 if items is None else len(items)
        reason = f"{why}: {count} domains open after {self.counts.domains}, worst bound {bound}"
        return Outcome.unknown(reason, bound=bound, stats=self._stats())
