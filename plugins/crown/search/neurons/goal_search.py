"""Goals one by one: each with intervals under the assumption that it is violated, then a search on phases.

One goal's intervals are of no use to another, so these searches share nothing but the time.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from verifolio.model.answer import Outcome, Stats
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.neurons.assume import Assumed, assume_violation, goal_root
from verifolio.plugins.crown.search.neurons.neuron_search import NeuronSearch
from verifolio.plugins.crown.search.root import Root
from verifolio.run.budget import Budget


class GoalSearch:
    """Every goal of a root by itself; the budget is the context's.

    `last`: nothing comes after it, so that goals are searched too for which the assumption did nothing.
    """

    def __init__(
        self, root: Root, points: CandidatePoints, context: Context, options: CrownOptions, last: bool
    ) -> None:
        self.root, self.points, self.last = root, points, last
        self.context, self.options = context, options
        self.domains = 0
        self.proved = torch.zeros(len(root.disjuncts), dtype=torch.bool)

    def run(self) -> Outcome:
        """Narrower intervals for all goals in half of the time, then searches, the nearest to a proof first."""
        count = len(self.proved)
        half = self.context.budget.share(self.context.budget.remaining / 2)
        left: dict[int, Assumed] = {}
        for k in range(count):
            found = assume_violation(goal_root(self.root, k), _fair(half, count - k))
            if found is None:
                self.proved[k] = True
            else:
                left[k] = found
        order = sorted((k for k in left if self.last or left[k].gained), key=lambda k: -left[k].bound)
        for place, k in enumerate(order):
            outcome = self._search(left[k].root, _fair(self.context.budget, len(order) - place))
            if outcome.point is not None:
                return outcome
            self.proved[k] = outcome.verdict.decided
            if outcome.bound is not None:
                left[k] = replace(left[k], bound=max(left[k].bound, outcome.bound))
        by = "search" if self.domains else "assumption of a violation"
        stats: Stats = {"domains": self.domains, "by": by}
        if bool(self.proved.all()):
            return Outcome.proved(stats=stats)
        bound = min(found.bound for k, found in left.items() if not self.proved[k])
        some = f"{len(self.open_goals())} of {count} goals stay open after {self.domains} domains"
        return Outcome.unknown(f"out of time: {some}, worst bound {bound:.4g}", bound=bound, stats=stats)

    def _search(self, root: Root, budget: Budget) -> Outcome:
        net = root.condensed
        if net is None or budget.expired():
            return Outcome.unknown("out of time")
        search = NeuronSearch(root, net, self.points, replace(self.context, budget=budget), self.options)
        outcome = search.run()
        self.domains += search.domains
        return outcome

    def open_goals(self) -> Tensor:
        """The numbers of the goals that are not proved."""
        return (~self.proved).nonzero()[:, 0]


def _fair(budget: Budget, among: int) -> Budget:
    """An equal part of what is left."""
    return budget.share(budget.remaining / max(among, 1))
