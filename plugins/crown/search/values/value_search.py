"""Branch and bound where functions are not piecewise linear: their inputs' intervals are cut into pieces.

Shi et al. 2025 (GenBaB). All in float64: products of activations, as in attention, multiply what float32 would be
charged for rounding.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.dual import BoundResult, Dual
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.options import SmoothOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.frontier import Frontier
from verifolio.plugins.crown.search.root import RootBounds
from verifolio.plugins.crown.search.strong_branching import pick_by_trial
from verifolio.plugins.crown.search.values.assume import assume
from verifolio.plugins.crown.search.values.bounds import ALPHA_RATE, ValueBounds
from verifolio.plugins.crown.search.values.phases import missing_share, search_phases
from verifolio.plugins.crown.search.values.pieces import Pieces
from verifolio.plugins.crown.worker_threads import WorkerThreads

Array = NDArray[np.float64]
# Steps at the root, after each round of assumptions, and for a trial. Many at the root, which is bounded once: two of
# three vision transformers are proved there. A trial only ranks candidates.
ROOT_ITERATIONS, AGAIN_ITERATIONS, TRIAL_ITERATIONS = 100, 50, 3
FIRST_ITERATIONS = 30  # after zonotopes, which other bounds may improve soon
# Parts of the time that is left for the search on phases: half where less than a quarter of what phases may win is
# missing, as most of these are closed in seconds; little elsewhere, until bounds are better. Choices.
BRIEFLY, LONG, CLOSE = 0.05, 0.5, 0.25
FEW_GOALS = 16  # that are worth these: with many, some need the other bounds anyway; a choice
SHARE = 0.4  # of the time that is left, for backward bounds of all neurons: branching is the last resort; a choice
ROWS = (
    1 << 20
)  # numbers of the rows that go back together: 8 MB in float64, which is allocated once and not again
ROOT_RATE = 0.1  # lines start from their defaults there: larger steps than on a piece
GAIN = 0.03  # of the missing bound, for which another round of assumptions is worth its time; less never gets there
# bounded in a trial; more find better cuts, and cost a pass with gradients each; a choice
TRIAL_CHILDREN = 256
# Pieces of a batch: as many as keep a layer's rows within ELEMENTS numbers (512 KB in float64), but at least 4 and at
# most 64; autograd keeps such rows for every node.
ELEMENTS, LEAST, MOST = 1 << 16, 4, 64


class ValueSearch:
    """Ever dearer bounds of the whole domain, then a search."""

    bounds: ValueBounds

    def __init__(self, problem: Problem, context: Context, options: SmoothOptions) -> None:
        self.problem, self.context, self.options = problem, context, options
        self.points = CandidatePoints(problem, context)
        self.single = threading.Lock()  # what one thread does at a time: replaying, attacking
        self.frontier: Frontier[Pieces] = Frontier()
        self.workers = WorkerThreads(context.budget.cores, self._take, self._round)
        self.point: Array | None = None
        self.count = 0
        self.stuck: list[Pieces] = []

    def run(self) -> Outcome:
        outcome = self._run()
        if outcome.verdict.decided and outcome.point is None:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
        return outcome

    def _run(self) -> Outcome:
        space, known = (
            Space(torch.float64, self.context.device),
            self.context.evidence.bounds_for(self.problem),
        )
        root_bounds = RootBounds(self.problem, space, self.context.budget, known)
        root_bounds.tighten(Effort(tighten=False))
        for effort, iterations, part, phases in self._efforts():
            if len(root_bounds.live):
                share = self.context.budget.share(self.context.budget.remaining * part)
                root_bounds.tighten(effort, budget=share)
            if not len(root_bounds.live):
                return Outcome.proved(stats={"domains": 0, "by": "bounds"})
            root = root_bounds.root()
            if root.bounds is not None:
                self.context.evidence.add_bounds(root.bounds)
            self.bounds = ValueBounds(root, self.context.budget)
            if effort.zonotopes and len(root_bounds.live) > FEW_GOALS:
                continue
            pieces = self._bound(self.bounds.first(), iterations, ROOT_RATE)
            if len(pieces) and self.point is None:
                pieces = self._by_phases(pieces, phases)
            if self.point is not None:
                return Outcome.found(self.point, stats=self._stats())
            if not len(pieces):
                by = "phases" if self.count else "optimised bounds"
                return Outcome.proved(stats={**self._stats(), "by": by})
            root_bounds.live = root_bounds.live[pieces.goal]
        for k in range(len(pieces)):
            self.frontier.add(self._assumed(pieces.pick(slice(k, k + 1))))
        return self._search()

    def _efforts(self) -> list[tuple[Effort, int, float, float]]:
        """What to bound the neurons by, the steps on the condition's lines after it, and both parts of the time.

        The first is that of the bounds, the second that of a search on phases.
        """
        return [
            (Effort(tighten=False, zonotopes=True), FIRST_ITERATIONS, 1.0, BRIEFLY),
            (Effort(sampled=True, elements=ROWS), ROOT_ITERATIONS, SHARE, LONG),
            (Effort(steps=self.options.steps, thorough=True, elements=ROWS), ROOT_ITERATIONS, SHARE, BRIEFLY),
        ]

    def _by_phases(self, pieces: Pieces, part: float) -> Pieces:
        """What a search on phases leaves open of some goals; perhaps a witness is found."""
        left = []
        for k in range(len(pieces)):
            piece, budget = pieces.pick(slice(k, k + 1)), self.context.budget
            share = missing_share(self.bounds, piece)
            if self.point is not None or not share < 1:
                left.append(k)
                continue
            seconds = budget.remaining * (LONG if share < CLOSE else part) / (len(pieces) - k)
            context = replace(self.context, budget=budget.share(seconds))
            outcome = search_phases(self.bounds, piece, self.points, context)
            self.count += int(outcome.stats.get("domains", 0))
            if outcome.point is not None:
                self.point = outcome.point
            if outcome.verdict is not Verdict.UNSAT:
                left.append(k)
        return pieces.pick(torch.tensor(left, dtype=torch.int64, device=pieces.goal.device))

    def _assumed(self, piece: Pieces) -> Pieces:
        """The piece without what a counterexample does not need, as long as that pays; nothing if it is closed."""
        while len(piece) and self.point is None and not self.context.budget.expired():
            before = piece.bound
            narrower = assume(self.bounds, piece, self.options.iterations, self.context.budget)
            if narrower is None:
                return piece.pick(slice(0, 0))
            piece = self._bound(narrower, AGAIN_ITERATIONS, ROOT_RATE)
            if not bool((piece.bound > (1 - GAIN) * before).all()):
                break
        return piece

    def _search(self) -> Outcome:
        self.workers.run()
        if self.point is not None:
            return Outcome.found(self.point, stats=self._stats())
        waiting = self.frontier.all()
        if waiting is not None:
            return self._give_up("out of time", waiting)
        if self.stuck:
            return self._give_up("nothing is left to cut", Pieces.join(self.stuck))
        return Outcome.proved(
            stats={**self._stats(), "by": "search" if self.count else "an assumed violation"}
        )

    def _take(self) -> Pieces | None:
        if self.context.budget.expired():
            return None
        widest = max(self.bounds.root.program.sizes)
        return self.frontier.take(
            self.options.batch or int(np.clip(ELEMENTS // widest, LEAST, MOST)), self.workers.size
        )

    def _round(self, pieces: Pieces) -> bool:
        """Cut a batch, bound the parts, keep the open ones; True once there is a witness."""
        whole = pieces.branch[:, 0] < 0
        if bool(whole.any()):
            with self.workers.lock:
                self.stuck.append(pieces.pick(whole.nonzero()[:, 0]))
            pieces = pieces.pick((~whole).nonzero()[:, 0])
        if not len(pieces):
            return False
        pieces = pick_by_trial(pieces, self._try, TRIAL_CHILDREN)
        parts, full = self.bounds.propagated(pieces.split())
        parts = self._bound(parts.pick(full.nonzero()[:, 0]), self.options.iterations)
        with self.workers.lock:
            self.count += 2 * len(pieces)
            self.frontier.add(parts.pick(parts.bound.argsort(descending=True)))
        return self.point is not None

    def _try(self, pieces: Pieces) -> Tensor:
        """What some pieces may be worth (count,)."""
        pieces, full = self.bounds.propagated(pieces)
        margin = self.bounds.ascend(pieces, TRIAL_ITERATIONS).margin
        return torch.where(full, margin, torch.full_like(margin, torch.inf))

    def _bound(self, pieces: Pieces, iterations: int, rate: float = ALPHA_RATE) -> Pieces:
        """The pieces that stay open, with their new bounds and candidates; perhaps a witness is found."""
        if not len(pieces):
            return pieces
        found = self.bounds.ascend(pieces, iterations, rate)
        left = (~(found.margin > 0)).nonzero()[:, 0]
        if not len(left):
            return pieces.pick(left)
        result = BoundResult(found.margin[:, None], Dual(), {0: found.met[0][:, None]})
        with self.single:
            point = self.points.look(self.bounds.root, result, left)
        if point is not None:
            self.point = point
        return self.bounds.ranked(pieces.pick(left), found.pick(left))

    def _stats(self) -> dict[str, float | int | str]:
        return {"domains": self.count}

    def _give_up(self, why: str, pieces: Pieces) -> Outcome:
        bound = float(pieces.bound.min())
        stats = {**self._stats(), "open_domains": len(pieces)}
        reason = f"{why}: {len(pieces)} pieces open after {self.count}, worst bound {bound:.4g}"
        return Outcome.unknown(reason, bound=bound, stats=stats)
