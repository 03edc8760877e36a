"""Branch and bound on ReLU phases from one root."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.bounding import Bounding
from verifolio.plugins.crown.branching import pick_by_trial
from verifolio.plugins.crown.certificate import Ledger
from verifolio.plugins.crown.condensed import Condensed
from verifolio.plugins.crown.crew import Crew
from verifolio.plugins.crown.leaf import LeafSolver
from verifolio.plugins.crown.pile import Pile
from verifolio.plugins.crown.points import Points
from verifolio.plugins.crown.root import Root, open_goals
from verifolio.plugins.crown.subproblems import Subproblems

if TYPE_CHECKING:
    from verifolio.plugins.crown.verifier import CrownOptions

Array = NDArray[np.float64]
ROOT_ITERATIONS = 50
TRIAL_ITERATIONS = 6
TRIAL_CHILDREN = 512


class Search:
    """Domains in batches, worst first within a batch, depth first overall."""

    def __init__(
        self, root: Root, net: Condensed, points: Points, context: Context, options: CrownOptions
    ) -> None:
        self.root, self.points = root, points
        self.context, self.options = context, options
        self.bounding = Bounding(root, net, context.budget)
        self.leaves = LeafSolver(self.bounding.exact)
        self.stack: Pile[Subproblems] = Pile()
        self.crew = Crew(context.budget.cores, self._take, self._round)
        self.single = threading.Lock()  # what one thread does at a time: replaying, attacking, solving leaves
        self.point: Array | None = None
        self.domains, self.stuck = 0, 0
        self.ledger = Ledger(options.memory if options.certificate or options.trace else 0)

    def run(self) -> Outcome:
        items, self.point = self._bound(self.bounding.first(), ROOT_ITERATIONS)
        if self.point is None and len(items) and self.options.split == "none":
            return self._give_up("bounds alone do not decide", items)
        self.stack.add(items)
        if self.point is None:
            self.crew.run()
        if self.point is not None:
            return Outcome.found(self.point, stats=self._stats())
        left = self.stack.all()
        if left is not None:
            return self._give_up("out of time", left)
        if self.stuck:
            reason = f"{self.stuck} leaves without unstable neurons stay open after {self.domains} domains"
            return Outcome.unknown(reason, stats=self._stats())
        return Outcome.proved(stats={**self._stats(), "by": "search" if self.domains else "optimised bounds"})

    def _round(self, items: Subproblems) -> bool:
        """Split a batch, bound the children, keep the open ones; True once there is a witness."""
        leaves = items.branch[:, 0] < 0
        if bool(leaves.any()):
            point = self._finish(items.pick(leaves.nonzero()[:, 0]))
            items = items.pick((~leaves).nonzero()[:, 0])
            if point is not None or not len(items):
                return self._settle(point)
        items = pick_by_trial(
            items, lambda trial: self.bounding.ascend(trial, TRIAL_ITERATIONS).margin, TRIAL_CHILDREN
        )
        children, point = self._bound(items.split(), self.options.iterations)
        with self.crew.lock:
            self.domains += 2 * len(items)
            self.stack.add(children.pick(children.bound.argsort(descending=True)))
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

    def _bound(self, items: Subproblems, iterations: int) -> tuple[Subproblems, Array | None]:
        """The subproblems that stay open, with their new bounds and branching candidates; perhaps a witness."""
        done = self.bounding.bound(items, iterations)
        left = open_goals(done.result.margin)
        if self.options.certificate or self.options.trace:
            closed = (done.margin > 0).nonzero()[:, 0]
            with self.single:
                self.ledger.add(items.pick(closed), done.found.best.pick(closed))
        if not len(left):
            return items.pick(left), None
        bounded = self.bounding.ranked(items.pick(left), done.pick(left))
        with self.single:
            return bounded, self.points.look(self.root, done.result, left)

    def _take(self) -> Subproblems | None:
        """The next batch of domains."""
        if self.context.budget.expired():
            return None
        room = self.options.batch or int(np.clip((1 << 19) // max(self.root.program.sizes), 16, 256))
        return self.stack.take(room, self.crew.size)

    def _stats(self) -> dict[str, float | int | str]:
        return {"domains": self.domains}

    def _give_up(self, why: str, items: Subproblems) -> Outcome:
        bound = float(items.bound.min())
        # a split halves its domain, by count of phases
        share = float((0.5 ** items.depth().double()).sum()) / len(self.root.disjuncts)
        done = f"{len(items)} domains open after {self.domains} ({share:.2%} of the phases)"
        stats = {**self._stats(), "open_domains": len(items), "open_share": share}
        return Outcome.unknown(f"{why}: {done}, worst bound {bound:.4g}", bound=bound, stats=stats)
