"""Branch and bound on ReLU phases: for networks with many inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.answer import Outcome
from verifolio.plugins.crown.branching import choose
from verifolio.plugins.crown.input_split import Violation
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.optimise import Dual, Result, Schedule, evaluate, optimise, start
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
        self.program, self.goal = self.root.program, self.root.goal
        graph = self.program.graph
        self.relu_inputs = tuple(self.program.parents[i][0] for i in graph.relus)
        self.counts = Counts()
        self.stack: list[Subproblems] = []

    def run(self) -> Outcome:
        if not len(self.root.disjuncts):
            return self._proved("bounds")
        items, point = self._first()
        if point is not None:
            return Outcome.found(point, stats=self._stats())
        if not len(items):
            return self._proved("optimised bounds")
        if self.options.split == "none" or not self.relu_inputs:
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
        batch = self._spread(count)
        dual = start(self.program, batch)
        result = optimise(self.program, batch, self.goal, {}, dual, Schedule(ROOT_ITERATIONS), self.context.budget)
        margin = result.margin.amax(1)
        left = open_goals(result.margin)
        point = self._try_points(result) if len(left) else None
        return self._items(left, margin[left], result.dual.pick(left)), point

    def _items(self, disjunct: Tensor, bound: Tensor, dual: Dual) -> Subproblems:
        count = len(disjunct)
        sizes = {p: self.program.sizes[p] for p in self.relu_inputs}
        device = self.program.space.device
        return Subproblems(
            disjunct,
            bound,
            {p: torch.zeros(count, n, dtype=torch.int8, device=device) for p, n in sizes.items()},
            {i: a.to(HALF) for i, a in dual.alpha.items()},
            {p: torch.zeros(count, n, dtype=HALF, device=device) for p, n in sizes.items()},
        )

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
        batch = self._spread(len(items), items.signs)
        goal = self.goal.pick(items.disjunct)
        with torch.no_grad():
            result = evaluate(self.program, batch, goal, _floats(items.signs), items.dual(torch.float32))
            choice = choose(self.program, batch, goal, items, result, self._spread)
        if choice.stuck.any():
            self.counts.stuck += int(choice.stuck.sum())
            keep = (~choice.stuck).nonzero()[:, 0]
            items, choice = items.pick(keep), choice.pick(keep)
            if not len(items):
                return None
        children = Subproblems.join([items.fix(choice.node, choice.neuron, s) for s in (1, -1)])
        return self._bound(children)

    def _bound(self, items: Subproblems) -> Array | None:
        batch = self._spread(len(items), items.signs)
        goal = self.goal.pick(items.disjunct)
        schedule = Schedule(self.options.iterations)
        result = optimise(
            self.program,
            batch,
            goal,
            _floats(items.signs),
            items.dual(torch.float32),
            schedule,
            self.context.budget,
        )
        self.counts.domains += len(items)
        margin = result.margin.amax(1)
        left = open_goals(result.margin)
        if not len(left):
            return None
        point = self._try_points(result)
        bounded = items.with_dual(result.dual, torch.fmax(margin, items.bound)).pick(left)
        self.stack.append(bounded.pick(bounded.bound.argsort(descending=True)))
        return point

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


def _floats(signs: dict[int, Tensor]) -> dict[int, Tensor]:
    return {p: s.to(torch.float32) for p, s in signs.items() if bool(s.any())}
