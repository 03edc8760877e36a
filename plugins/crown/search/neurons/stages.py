"""What to do about a problem on whose phases one branches: bounds, a search, better bounds, another search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.claims import LEVELS, Deepen, claim_arrays
from verifolio.plugins.crown.optimise.dual import Schedule, optimise
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import State
from verifolio.plugins.crown.propagate.relax.base import Interval
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.neurons.goal_search import GoalSearch
from verifolio.plugins.crown.search.neurons.lp_tree import LpTree
from verifolio.plugins.crown.search.neurons.neuron_search import ROOT_ITERATIONS, NeuronSearch
from verifolio.plugins.crown.search.neurons.record import ProofRecord
from verifolio.plugins.crown.search.neurons.refinement import (
    ClaimLeaves,
    Refinement,
    refine_bounds,
    split_bounds,
)
from verifolio.plugins.crown.search.root import Root, RootBounds, bound_root, open_goals
from verifolio.run.budget import Budget

GAIN = 0.01  # of the missing bound, for which another pass over all neurons is worth its time; less never gets there
# seconds that a part of a stage takes at most: with an hour's budget a twentieth would be too much
LONG = 60.0


@dataclass(frozen=True)
class Stage:
    """A search for a part of the time, then rounds of splits on every neuron, for a part of the time."""

    search: float
    rounds: int
    refine: float


# Easy problems are over within a twentieth of the time. Then the neurons are refined for a third of it at most. From
# then on goals are searched one by one, for a quarter of it before the neurons are refined with twice the rounds.
# Measured with refinement: mnist-net_256x4 at 0.05 takes 5 s instead of 53, 256x6 30 s and relu_9_200 7 s, both open
# without it. Goals one by one after it: 256x6 at 0.03 takes 10 s of one core, open before.
STAGES = (Stage(1 / 20, 4, 1 / 3), Stage(1 / 4, 8, 1 / 3))


def outward(known: dict[int, Interval], space: Space) -> dict[int, Interval]:
    """Intervals in another type."""
    return {p: (space.down(low.numpy()), space.up(high.numpy())) for p, (low, high) in known.items()}


class StagedSearch:
    """Bounds of the whole domain; where they leave something open and there are phases, a search.

    A search that is not over soon stops for better intermediate bounds, and begins again from there: what they cost
    is paid once, what loose ones cost is paid in every subproblem. After `run`, a certificate is made of `root`,
    `record` and `claims`.
    """

    def __init__(self, problem: Problem, context: Context, options: CrownOptions) -> None:
        self.problem, self.context, self.options = problem, context, options
        space = Space(torch.float32, context.device)
        self.effort = Effort(steps=options.steps, elements=options.memory // 64)
        self.claims: dict[str, Any] = {}
        self.root_bounds = self._certifiable(space) if options.trace else self._bound_root(space)
        self.root = self._share_root()
        self.points = CandidatePoints(problem, context)
        self.record: ProofRecord | None = None  # for a certificate; bounds alone have none

    def _bound_root(self, space: Space) -> RootBounds:
        known = self.context.evidence.bounds_for(self.problem)
        return bound_root(self.problem, space, self.effort, self.context.budget, known)

    def _certifiable(self, space: Space) -> RootBounds:
        """Bounds that a certificate can state, without what others found; pairs of neurons stay pairs."""
        budget = self.context.budget
        found = bound_root(self.problem, space, replace(self.effort, steps=0), budget, merge=False)
        if self.problem.graph.piecewise_linear and not found.done():
            self._claim(found, budget)
        return found

    def _claim(self, found: RootBounds, budget: Budget, deepen: Deepen | None = None) -> None:
        """Bounds of every neuron with what a certificate states about them."""
        with torch.enable_grad():
            claims, known = claim_arrays(self.problem, budget, deepen)
        if claims:
            self.claims, found.known = claims, outward(known, found.space)
            found.tighten(Effort(tighten=False))

    def _deepen(self, rounds: int, budget: Budget) -> Refinement:
        """As `refine_bounds`, with what a certificate states about it."""
        came, leaves, found = Refinement(), ClaimLeaves(LEVELS), self.root_bounds

        def deepen(known: dict[int, Interval], node: int) -> Interval:
            nonlocal came
            state = State(found.region, outward(known, found.space))
            if came.gained and came.in_time and not budget.expired():
                came = split_bounds(found.program, state, node, rounds, budget, leaves=leaves)
            low, high = state.interval[node]
            return low.double(), high.double()

        self._claim(found, self.context.budget, deepen)
        numbers = {found.program.parents[i][0]: k for k, i in enumerate(found.program.graph.relus)}
        for k, part in enumerate(leaves.parts):
            held = {**part, "node": np.array(numbers[part["node"]])}
            self.claims |= {f"deep{k}_{name}": value for name, value in held.items()}
        return replace(came, in_time=came.in_time and not budget.expired())

    def _share_root(self) -> Root:
        """The root of the bounds so far, which others may use too."""
        root = self.root_bounds.root()
        if root.bounds is not None:
            self.context.evidence.add_bounds(root.bounds)
        return root

    def run(self) -> Outcome:
        outcome = self._stages()
        if outcome.verdict.decided and outcome.point is None:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
        return outcome

    def _stages(self) -> Outcome:
        budget, options = self.context.budget, self.options
        whole, stages = budget.remaining, list(STAGES)
        while True:
            net = self.root.condensed
            if net is None or not len(self.root.disjuncts):
                return self._without_phases()
            programs = bool(options.trace) and len(net.cuts) == 1 and options.split != "none"
            last = not programs and (not stages or options.split == "none" or len(net.cuts) < 2)
            part = budget if last else budget.share(min((stages or STAGES)[0].search * whole, LONG))
            refined = len(stages) < len(STAGES)
            outcome = self._goals(part, last) if refined and self._assumes() else self._search(net, part)
            if outcome.verdict.decided or last or budget.expired():
                return outcome
            if programs and self.root.stacked is not None:
                tree = LpTree(self.root, net, self.root.stacked, self.context, options.memory)
                outcome, self.record = tree.run(), tree.record
                return outcome
            stage, *stages = stages
            came = self._refine(stage.rounds, budget.share(min(stage.refine * whole, LONG)))
            stages = stages if came.gained and came.in_time else []
            self.root = self._share_root()

    def _search(self, net: Condensed, budget: Budget) -> Outcome:
        """All goals together, from bounds that hold everywhere."""
        search = NeuronSearch(self.root, net, self.points, replace(self.context, budget=budget), self.options)
        outcome, self.record = search.run(), search.record
        if not outcome.verdict.decided and not self.options.trace:
            self._keep(search.open_goals())
        return outcome

    def _without_phases(self) -> Outcome:
        """What bounds prove, where nothing is open or nothing can be split."""
        if not len(self.root.disjuncts):
            self.record = ProofRecord(self.options.memory)
            return Outcome.proved(stats={"domains": 0, "by": "bounds"})
        self.record = ProofRecord(self.options.memory) if self.options.trace else None
        return self._bounds_alone()

    def _refine(self, rounds: int, budget: Budget) -> Refinement:
        if self.options.trace:
            return self._deepen(rounds, budget)
        return refine_bounds(self.root_bounds, rounds, self.effort, budget)

    def _assumes(self) -> bool:
        """Whether goals may be searched one by one under the assumption of a violation: no certificate states it."""
        net = self.root.condensed
        return (
            not self.options.trace and self.options.split != "none" and net is not None and len(net.cuts) > 1
        )

    def _keep(self, goals: Tensor) -> None:
        """Go on with these goals of the root alone: the others are proved."""
        self.root_bounds.live = self.root.disjuncts[goals.to(self.root.disjuncts.device)]

    def _goals(self, budget: Budget, last: bool) -> Outcome:
        context = replace(self.context, budget=budget)
        search = GoalSearch(self.root, self.points, context, self.options, last)
        outcome = search.run()
        if not outcome.verdict.decided:
            self._keep(search.open_goals())
        return outcome

    def _bounds_alone(self) -> Outcome:
        """A network that is not piecewise linear has no phases to split: ever dearer bounds while they improve."""
        root, budget = self.root, self.context.budget
        state, goal, bound = root.state, root.goal, -np.inf
        known = {p: state.interval[p] for p in root.program.before}
        effort = replace(self.effort, thorough=True)
        while True:
            result = optimise(root.program, state, goal, Schedule(ROOT_ITERATIONS), budget)
            left = open_goals(result.margin)
            if not len(left):
                return Outcome.proved(stats={"domains": 0, "by": "optimised bounds"})
            point = self.points.look(root, result, left)
            if point is not None:
                return Outcome.found(point, stats={"domains": 0})
            before, bound = bound, float(result.margin[left].amax(1).min())
            if budget.expired() or not bound > before + GAIN * abs(bound) or not self.options.steps:
                return Outcome.unknown(f"bounds alone do not decide: the worst is {bound:.4g}", bound=bound)
            with torch.no_grad():
                state = intermediate_bounds(root.program, state.region, effort, known=known, budget=budget)
            known, goal = {p: state.interval[p] for p in root.program.before}, goal.pick(left)
