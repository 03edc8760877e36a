"""Branch and bound where functions are not piecewise linear: their inputs' intervals are cut into pieces.

Shi et al. 2025 (GenBaB). All in float64: products of activations, as in attention, multiply what float32 would be
charged for rounding.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.assume import assume
from verifolio.plugins.crown.branching import pick_by_trial
from verifolio.plugins.crown.crew import Crew
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.optimise import Dual, Result
from verifolio.plugins.crown.pieces import Pieces
from verifolio.plugins.crown.pile import Pile
from verifolio.plugins.crown.points import Points
from verifolio.plugins.crown.root import Trunk
from verifolio.plugins.crown.sweep import Effort
from verifolio.plugins.crown.value_bounds import ALPHA_RATE, ValueBounds

if TYPE_CHECKING:
    from verifolio.plugins.crown.smooth import SmoothOptions

Array = NDArray[np.float64]
ROOT_ITERATIONS, AGAIN_ITERATIONS, TRIAL_ITERATIONS = 100, 50, 3
ROOT_RATE = 0.1
GAIN = 0.03  # of the missing bound, for which another round is worth its time
TRIAL_CHILDREN = 256


class ValueSplit:
    """Ever dearer bounds of the whole domain, then a search."""

    bounds: ValueBounds

    def __init__(self, problem: Problem, context: Context, options: SmoothOptions) -> None:
        self.problem, self.context, self.options = problem, context, options
        self.points = Points(problem, context)
        self.single = threading.Lock()  # what one thread does at a time: replaying, attacking
        self.pile: Pile[Pieces] = Pile()
        self.crew = Crew(context.budget.cores, self._take, self._round)
        self.point: Array | None = None
        self.count = 0
        self.stuck: list[Pieces] = []

    def run(self) -> Outcome:
        outcome = self._run()
        if outcome.verdict.decided and outcome.point is None:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
        return outcome

    def _run(self) -> Outcome:
        trunk = Trunk(self.problem, Space(torch.float64, self.context.device), self.context.budget)
        trunk.grow(Effort(tighten=False))
        for effort in (Effort(), Effort(steps=self.options.steps, thorough=True)):
            if len(trunk.live):
                trunk.grow(effort)
            if not len(trunk.live):
                return Outcome.proved(stats={"domains": 0, "by": "bounds"})
            root = trunk.root()
            if root.bounds is not None:
                self.context.evidence.add_bounds(root.bounds)
            self.bounds = ValueBounds(root, self.context.budget)
            pieces = self._bound(self.bounds.first(), ROOT_ITERATIONS, ROOT_RATE)
            if self.point is not None:
                return Outcome.found(self.point, stats=self._stats())
            if not len(pieces):
                return Outcome.proved(stats={"domains": 0, "by": "optimised bounds"})
            trunk.live = trunk.live[pieces.goal]
        for k in range(len(pieces)):
            self.pile.add(self._assumed(pieces.pick(slice(k, k + 1))))
        return self._search()

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
        self.crew.run()
        if self.point is not None:
            return Outcome.found(self.point, stats=self._stats())
        waiting = self.pile.all()
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
        return self.pile.take(self.options.batch or int(np.clip((1 << 16) // widest, 4, 64)), self.crew.size)

    def _round(self, pieces: Pieces) -> bool:
        """Cut a batch, bound the parts, keep the open ones; True once there is a witness."""
        whole = pieces.branch[:, 0] < 0
        if bool(whole.any()):
            with self.crew.lock:
                self.stuck.append(pieces.pick(whole.nonzero()[:, 0]))
            pieces = pieces.pick((~whole).nonzero()[:, 0])
        if not len(pieces):
            return False
        pieces = pick_by_trial(pieces, self._try, TRIAL_CHILDREN)
        parts, full = self.bounds.propagated(pieces.split())
        parts = self._bound(parts.pick(full.nonzero()[:, 0]), self.options.iterations)
        with self.crew.lock:
            self.count += 2 * len(pieces)
            self.pile.add(parts.pick(parts.bound.argsort(descending=True)))
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
        result = Result(found.margin[:, None], Dual(), {0: found.met[0][:, None]})
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
