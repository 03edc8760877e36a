"""Branch and bound on ReLU phases: for networks with many inputs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.answer import Outcome, Verdict
from verifolio.plugins.crown.ascent import Ascended, Variables, ascend
from verifolio.plugins.crown.assault import Assault
from verifolio.plugins.crown.branching import CANDIDATES, pick_by_trial, rank
from verifolio.plugins.crown.certificate import Ledger
from verifolio.plugins.crown.condensed import Condensed
from verifolio.plugins.crown.crew import Crew
from verifolio.plugins.crown.input_split import Violation
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.leaf import LeafSolver
from verifolio.plugins.crown.optimise import Dual, Result, Schedule, evaluate, optimise
from verifolio.plugins.crown.root import Root, bound_root, open_goals
from verifolio.plugins.crown.subproblems import HALF, Subproblems
from verifolio.plugins.crown.sweep import Effort, sweep
from verifolio.problem import Problem
from verifolio.verifier import Context

if TYPE_CHECKING:
    from verifolio.plugins.crown.verifier import CrownOptions

Array = NDArray[np.float64]
ROOT_ITERATIONS = 50
GAIN = 0.01  # of the missing bound, for which another sweep is worth its time
TRIED_POINTS = 64
STARTS = 8
TRIAL_ITERATIONS = 6
TRIAL_CHILDREN = 512
RESERVE = 1.5  # a bound that seems positive by this many times the rounding last charged will be


class NeuronSplit:
    """Bounds of the whole domain first; where they leave something open and there are phases, the search."""

    def __init__(self, problem: Problem, context: Context, options: CrownOptions) -> None:
        self.problem, self.context, self.options = problem, context, options
        space = Space(torch.float32, context.device)
        self.root = bound_root(problem, space, options.steps, options.memory // 64, context.budget)
        context.evidence.add_bounds(self.root.bounds)

    def run(self) -> Outcome:
        if not len(self.root.disjuncts):
            outcome = Outcome.proved(stats={"domains": 0, "by": "bounds"})
        else:
            points = Points(self.problem, self.context, self.root)
            net = self.root.condensed
            outcome = self._bounds_alone(points) if net is None else self._search(points, net)
        if outcome.verdict.decided and outcome.point is None:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
        return outcome

    def _search(self, points: Points, net: Condensed) -> Outcome:
        search = Search(self.root, net, points, self.context, self.options)
        outcome = search.run()
        if self.options.certificate and outcome.verdict is Verdict.UNSAT:
            stats = {**outcome.stats, "certificate": search.save(self.problem)}
            return replace(outcome, stats=stats)
        return outcome

    def _bounds_alone(self, points: Points) -> Outcome:
        """A network that is not piecewise linear has no phases to split: ever dearer bounds while they improve."""
        root, budget = self.root, self.context.budget
        state, goal, bound = root.state, root.goal, -np.inf
        known = {p: state.interval[p] for p in root.program.before}
        effort = Effort(steps=self.options.steps, thorough=True, elements=self.options.memory // 64)
        while True:
            result = optimise(root.program, state, goal, Schedule(ROOT_ITERATIONS), budget)
            left = open_goals(result.margin)
            if not len(left):
                return Outcome.proved(stats={"domains": 0, "by": "optimised bounds"})
            point = points.look(result, left)
            if point is not None:
                return Outcome.found(point, stats={"domains": 0})
            before, bound = bound, float(result.margin[left].amax(1).min())
            if budget.expired() or not bound > before + GAIN * abs(bound) or not self.options.steps:
                return Outcome.unknown(f"bounds alone do not decide: the worst is {bound:.4g}", bound=bound)
            with torch.no_grad():
                state = sweep(root.program, state.region, effort, known=known, budget=budget)
            known, goal = {p: state.interval[p] for p in root.program.before}, goal.pick(left)


class Points:
    """Candidates for counterexamples: where bounds are attained, and now and then an attack from there."""

    def __init__(self, problem: Problem, context: Context, root: Root) -> None:
        self.context, self.root = context, root
        self.violation = Violation(problem, context.device)
        self.assault = Assault(problem, context, eager=True)

    def look(self, result: Result, left: Tensor) -> Array | None:
        """A point that replays, from the corners at which the rows of open goals are smallest."""
        lead = result.margin.nan_to_num(nan=-np.inf).argmax(1)
        rows = result.captured[0].expand(len(lead), -1, -1)[left, lead[left]][:TRIED_POINTS]
        points = self.root.state.region.corner(rows[None])[0].double().cpu().numpy()
        value = self.violation(points)
        best = int(value.argmin())
        if value[best] <= 0 and self.context.check(points[best]):
            return np.asarray(points[best])
        if self.assault.due():
            return self.assault.run(list(points[np.argsort(value)[:STARTS]]))
        return None


class Search:
    """Domains in batches, worst first within a batch, depth first overall."""

    def __init__(
        self, root: Root, net: Condensed, points: Points, context: Context, options: CrownOptions
    ) -> None:
        self.root, self.net, self.points = root, net, points
        self.context, self.options = context, options
        self.exact = root.double()  # proofs: in float32 rounding may eat the margins of deep networks
        self.leaves = LeafSolver(self.exact)
        self.stack: list[Subproblems] = []
        self.crew = Crew(context.budget.cores, self._take, self._round)
        self.single = threading.Lock()  # what one thread does at a time: replaying, attacking, solving leaves
        self.point: Array | None = None
        self.domains, self.stuck = 0, 0
        self.reserve = 0.0
        self.ledger = Ledger(options.memory if options.certificate else 0)

    def run(self) -> Outcome:
        items, self.point = self._bound(self._first(), ROOT_ITERATIONS)
        if self.point is None and len(items) and self.options.split == "none":
            return self._give_up("bounds alone do not decide", items)
        self.stack = [items] if len(items) else []
        if self.point is None:
            self.crew.run()
        if self.point is not None:
            return Outcome.found(self.point, stats=self._stats())
        if self.stack:
            return self._give_up("out of time", Subproblems.join(self.stack))
        if self.stuck:
            reason = f"{self.stuck} leaves without unstable neurons stay open after {self.domains} domains"
            return Outcome.unknown(reason, stats=self._stats())
        return Outcome.proved(stats={**self._stats(), "by": "search" if self.domains else "optimised bounds"})

    def save(self, problem: Problem) -> str:
        """Write the certificate of a finished search; says what came of it."""
        if self.ledger.full():
            return f"not written: it outgrew {self.options.memory} bytes"
        path = Path(self.options.certificate)
        self.ledger.save(path, problem, self.options.steps, self.options.memory // 64)
        return str(path)

    def _first(self) -> Subproblems:
        """One subproblem per open goal, nothing fixed; its weights favour the row that is nearest to a proof."""
        root, net = self.root, self.net
        count, height = root.goal.rhs.shape
        with torch.no_grad():
            margin = evaluate(root.program, root.cut(count, {}), root.goal, {}, Dual()).margin
        best = torch.nn.functional.one_hot(margin.nan_to_num(nan=-torch.inf).argmax(1), height)
        alpha = (net.high > -net.low).to(HALF).expand(count, -1)
        device = alpha.device
        return Subproblems(
            torch.arange(count, device=device),
            torch.full((count,), -torch.inf, device=device),
            torch.full((count, CANDIDATES), -1, device=device),
            torch.zeros(count, net.kept, dtype=torch.int8, device=device),
            Variables(alpha, torch.zeros_like(alpha), (0.7 * best + 0.3 / height).to(HALF)),
        )

    def _round(self, items: Subproblems) -> bool:
        """Split a batch, bound the children, keep the open ones; True once there is a witness."""
        leaves = items.branch[:, 0] < 0
        if bool(leaves.any()):
            point = self._finish(items.pick(leaves.nonzero()[:, 0]))
            items = items.pick((~leaves).nonzero()[:, 0])
            if point is not None or not len(items):
                return self._settle(point)
        items = pick_by_trial(
            items, lambda trial: self._ascend(trial, TRIAL_ITERATIONS).margin, TRIAL_CHILDREN
        )
        children, point = self._bound(items.split(), self.options.iterations)
        with self.crew.lock:
            self.domains += 2 * len(items)
            if len(children):
                self.stack.append(children.pick(children.bound.argsort(descending=True)))
        return self._settle(point)

    def _settle(self, point: Array | None) -> bool:
        if point is not None:
            self.point = point
        return point is not None

    def _finish(self, leaves: Subproblems) -> Array | None:
        """Decide subproblems that have nothing left to split; those that stay open are counted."""
        with self.single:
            for k in range(len(leaves)):
                leaf = leaves.pick(slice(k, k + 1))
                proof, point = self.leaves.solve(leaf)
                if proof is not None:
                    self.ledger.add(leaf, proof)
                elif point is not None and self.context.check(point):
                    return point
                self.stuck += proof is None
        return None

    def _rows(self, items: Subproblems) -> Tensor:
        """The numbers of each subproblem's rows among the goal's (count, rows)."""
        height = self.root.goal.rhs.shape[1]
        return items.disjunct[:, None] * height + torch.arange(height, device=items.disjunct.device)

    def _ascend(self, items: Subproblems, iterations: int) -> Ascended:
        first = items.variables.to(self.root.program.space.dtype)
        budget = self.context.budget
        return ascend(self.net, items.phase, self._rows(items), first, iterations, self.reserve, budget)

    def _bound(self, items: Subproblems, iterations: int) -> tuple[Subproblems, Array | None]:
        """The subproblems that stay open, with their new bounds and branching candidates; perhaps a witness."""
        found = self._ascend(items, iterations)
        result = self.exact.prove(items.disjunct, items.phase, found.best.to(torch.float64))
        margin = result.margin[:, 0].to(found.margin.dtype)
        lost = (found.margin - margin).nan_to_num(0.0, 0.0, 0.0)
        self.reserve = RESERVE * float(lost.max())
        left = open_goals(result.margin)
        if self.options.certificate:
            closed = (result.margin[:, 0] > 0).nonzero()[:, 0]
            with self.single:
                self.ledger.add(items.pick(closed), found.best.pick(closed))
        if not len(left):
            return items.pick(left), None
        items, rest = items.pick(left), found.pick(left)
        branch = rank(self.net, items.phase, self._rows(items), rest)
        bounded = items.bounded(rest.best, torch.fmax(margin[left], items.bound), branch)
        with self.single:
            return bounded, self.points.look(result, left)

    def _take(self) -> Subproblems | None:
        """Up to a batch of domains from the top of the stack, a fair part where several threads want some."""
        if not self.stack or self.context.budget.expired():
            return None
        room = self.options.batch or int(np.clip((1 << 19) // max(self.root.program.sizes), 16, 256))
        room = min(room, -(-sum(map(len, self.stack)) // self.crew.size))
        parts = []
        while self.stack and room > 0:
            top = self.stack.pop()
            if len(top) > room:
                self.stack.append(top.pick(slice(0, len(top) - room)))
                top = top.pick(slice(len(top) - room, len(top)))
            parts.append(top)
            room -= len(top)
        return Subproblems.join(parts)

    def _stats(self) -> dict[str, float | int | str]:
        return {"domains": self.domains}

    def _give_up(self, why: str, items: Subproblems) -> Outcome:
        bound = float(items.bound.min())
        # a split halves its domain, by count of phases
        share = float((0.5 ** items.depth().double()).sum()) / len(self.root.disjuncts)
        done = f"{len(items)} domains open after {self.domains} ({share:.2%} of the phases)"
        stats = {**self._stats(), "open_domains": len(items), "open_share": share}
        return Outcome.unknown(f"{why}: {done}, worst bound {bound:.4g}", bound=bound, stats=stats)
