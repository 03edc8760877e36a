"""Branch and bound on ReLU phases from one root (Bunel et al. 2020; bounds as in beta-CROWN, Wang et al. 2021)."""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.answer import Outcome
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.frontier import Frontier
from verifolio.plugins.crown.search.neurons.envelope_bounds import make_bounds
from verifolio.plugins.crown.search.neurons.leaf import LeafSolver
from verifolio.plugins.crown.search.neurons.record import ProofRecord
from verifolio.plugins.crown.search.neurons.subproblems import Subproblems
from verifolio.plugins.crown.search.root import Root, open_goals
from verifolio.plugins.crown.search.strong_branching import pick_by_trial
from verifolio.plugins.crown.worker_threads import WorkerThreads

Array = NDArray[np.float64]
ROOT_ITERATIONS = 50  # steps at the root, made once; its variables are where all subproblems start
TRIAL_ITERATIONS = 6  # steps for a trial: half of a subproblem's, as a trial only ranks candidates
# bounded in a trial: two batches' worth at most, so that trials cost about a round or two
TRIAL_CHILDREN = 512
# Subproblems of a batch: as many as keep a layer's rows within ELEMENTS numbers (2 MB in float32, the caches), but at
# least 16, as every round costs some hundred calls of operations, and at most 256, so that the worst come first. A
# few are not shared among threads either: two rounds of a half each take longer than one, for twice the calls.
ELEMENTS, LEAST, MOST = 1 << 19, 16, 256


class NeuronSearch:
    """Domains in batches, worst first within a batch, depth first overall."""

    def __init__(
        self, root: Root, net: Condensed, points: CandidatePoints, context: Context, options: CrownOptions
    ) -> None:
        self.root, self.points = root, points
        self.context, self.options = context, options
        self.bounding = make_bounds(root, net, context.budget, bool(options.trace))
        self.leaves = LeafSolver(self.bounding.exact)
        self.frontier: Frontier[Subproblems] = Frontier()
        self.workers = WorkerThreads(context.budget.cores, self._take, self._round)
        self.single = threading.Lock()  # what one thread does at a time: replaying, attacking, solving leaves
        self.point: Array | None = None
        self.domains, self.stuck = 0, 0
        self.record = ProofRecord(options.memory if options.trace else 0)

    def run(self) -> Outcome:
        items, self.point = self._bound(self.bounding.first(), ROOT_ITERATIONS)
        if self.point is None and len(items) and self.options.split == "none":
            return self._give_up("bounds alone do not decide", items)
        self.frontier.add(items)
        if self.point is None:
            self.workers.run()
        if self.point is not None:
            return Outcome.found(self.point, stats=self._stats())
        left = self.frontier.all()
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
        with self.workers.lock:
            self.domains += 2 * len(items)
            self.frontier.add(children.pick(children.bound.argsort(descending=True)))
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
                    self.record.add(leaf, proof)
                elif point is not None and self.context.check(point):
                    return point
                self.stuck += proof is None
        return None

    def _bound(self, items: Subproblems, iterations: int) -> tuple[Subproblems, Array | None]:
        """The subproblems that stay open, with their new bounds and branching candidates; perhaps a witness."""
        done = self.bounding.bound(items, iterations)
        left = open_goals(done.result.margin)
        if self.options.trace:
            closed = (done.margin > 0).nonzero()[:, 0]
            with self.single:
                self.record.add(items.pick(closed), done.found.best.pick(closed))
        if not len(left):
            return items.pick(left), None
        bounded = self.bounding.ranked(items.pick(left), done.pick(left))
        with self.single:
            return bounded, self.points.look(self.root, done.result, left)

    def _take(self) -> Subproblems | None:
        """The next batch of domains."""
        if self.context.budget.expired():
            return None
        room = self.options.batch or int(np.clip(ELEMENTS // self.bounding.width, LEAST, MOST))
        return self.frontier.take(room, self.workers.size, LEAST)

    def open_goals(self) -> Tensor:
        """The numbers of the goals that an undecided search has not proved: all of them where it cannot tell.

        A leaf that is stuck may belong to any goal, and a search that never began has proved none.
        """
        left = self.frontier.all()
        if self.stuck or left is None:
            return torch.arange(len(self.root.disjuncts))
        found: Tensor = left.disjunct.unique().cpu()
        return found

    def _stats(self) -> dict[str, float | int | str]:
        return {"domains": self.domains}

    def _give_up(self, why: str, items: Subproblems) -> Outcome:
        bound = float(items.bound.min())
        # a split halves its domain, by count of phases
        share = float((0.5 ** items.depth().double()).sum()) / len(self.root.disjuncts)
        done = f"{len(items)} domains open after {self.domains} ({share:.2%} of the phases)"
        stats = {**self._stats(), "open_domains": len(items), "open_share": share}
        return Outcome.unknown(f"{why}: {done}, worst bound {bound:.4g}", bound=bound, stats=stats)
