"""What to do about a problem on whose phases one branches: bounds, a search, better bounds, another search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.certificate import Depth, Ledger
from verifolio.plugins.crown.claims import claim_arrays
from verifolio.plugins.crown.deepen import deepen
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.optimise import Schedule, optimise
from verifolio.plugins.crown.points import Points
from verifolio.plugins.crown.root import Root, open_goals, plant
from verifolio.plugins.crown.search import ROOT_ITERATIONS, Search
from verifolio.plugins.crown.sweep import Effort, sweep
from verifolio.plugins.crown.trace import phase_arrays, save_trace

if TYPE_CHECKING:
    from verifolio.plugins.crown.verifier import CrownOptions

GAIN = 0.01  # of the missing bound, for which another sweep is worth its time
LONG = 60.0  # seconds that a part of a stage takes at most


@dataclass(frozen=True)
class Stage:
    """A search for a part of the time, then rounds of splits on every neuron, for a part of the time."""

    search: float
    rounds: int
    deepen: float


STAGES = (Stage(1 / 20, 4, 1 / 3), Stage(1 / 12, 8, 1 / 3))


class NeuronSplit:
    """Bounds of the whole domain; where they leave something open and there are phases, a search.

    A search that is not over soon stops for better intermediate bounds, and begins again from there: what they cost
    is paid once, what loose ones cost is paid in every subproblem.
    """

    def __init__(self, problem: Problem, context: Context, options: CrownOptions) -> None:
        self.problem, self.context, self.options = problem, context, options
        space = Space(torch.float32, context.device)
        self.effort = Effort(steps=options.steps, elements=options.memory // 64)
        self.trunk = plant(problem, space, self.effort, context.budget)
        self.root = self._uproot()
        self.points = Points(problem, context)

    def _uproot(self) -> Root:
        """The root of the bounds so far, which others may use too."""
        root = self.trunk.root()
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
        whole, depth, stages = budget.remaining, Depth(), list(STAGES)
        while True:
            net = self.root.condensed
            if not len(self.root.disjuncts):
                proof = Outcome.proved(stats={"domains": 0, "by": "bounds"})
                return self._certified(proof, Ledger(options.memory), depth)
            if net is None:
                return self._bounds_alone()
            last = not stages or options.split == "none" or len(net.cuts) < 2
            part = budget if last else budget.share(min(stages[0].search * whole, LONG))
            search = Search(self.root, net, self.points, replace(self.context, budget=part), options)
            outcome = search.run()
            if outcome.verdict.decided or last or budget.expired():
                return self._certified(outcome, search.ledger, depth)
            stage, *stages = stages
            part = budget.share(min(stage.deepen * whole, LONG))
            came = deepen(self.trunk, stage.rounds, self.effort, part)
            depth = depth.after(stage.rounds, came.in_time)
            stages = stages if came.gained and came.in_time else []
            self.root = self._uproot()

    def _certified(self, outcome: Outcome, ledger: Ledger, depth: Depth) -> Outcome:
        """The same outcome; what proves it is in a file, if that was wanted."""
        if self.options.trace and outcome.verdict is Verdict.UNSAT:
            plain = self.trunk.halved.graph is self.problem.graph
            arrays = phase_arrays(self.problem, self.root, ledger, plain)
            if outcome.stats.get("by") != "bounds" and plain:
                with torch.enable_grad():
                    arrays |= claim_arrays(self.problem, self.context.budget)
            save_trace(self.options.trace, self.problem, arrays)
        if not self.options.certificate or outcome.verdict is not Verdict.UNSAT:
            return outcome
        path = Path(self.options.certificate)
        said = ledger.save(path, self.problem, self.effort, depth)
        return replace(outcome, stats={**outcome.stats, "certificate": said})

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
                state = sweep(root.program, state.region, effort, known=known, budget=budget)
            known, goal = {p: state.interval[p] for p in root.program.before}, goal.pick(left)
