"""Branch and bound on the inputs (as Wang et al. 2018, ReluVal): for few inputs, networks of any size."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome
from verifolio.model.problem import NARROW, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.kernel.boxes import BoxBatch, BoxEngine, Findings
from verifolio.plugins.crown.propagate.arrays import shrunk_box
from verifolio.plugins.crown.search.frontier import Frontier
from verifolio.plugins.crown.search.inputs.box_tree import BoxTree, short
from verifolio.plugins.crown.search.violation import Violation

if TYPE_CHECKING:
    from verifolio.plugins.crown.search.attack import InterleavedAttack

Array = NDArray[np.float64]
# boxes; doubled while batches are quick, so that an easy problem does not wait for a large one
FIRST_BATCH = 16
LONGEST_BATCH = 0.2  # seconds within which a cancellation must be noticed
# boxes too small to halve; with one of them boxes prove nothing any more, and a counterexample is all that is left
MOST_STUCK = 64
TRIED_POINTS = 4  # points of a batch that are replayed at most: a replay costs a run of ONNX Runtime
MOST_REJECTED = 1000  # replays that may fail: more of the same would cost time and fail as well


@dataclass
class Progress:
    """Counts kept while the search runs."""

    boxes: int = 0
    stuck: int = 0
    closed_share: float = 0.0
    bound: float = np.inf
    rejected: int = 0

    def stats(self) -> dict[str, float | int | str]:
        return {"domains": self.boxes, "closed_share": round(self.closed_share, 6)}


class InputSearch:
    """Depth first, in batches: take boxes, bound them, try points in the open ones, halve the best input.

    An `attack` gets a small share of the time.
    """

    def __init__(
        self,
        problem: Problem,
        engine: BoxEngine,
        context: Context,
        batch: int,
        record: bool = False,
        attack: InterleavedAttack | None = None,
    ) -> None:
        self.problem, self.engine, self.context = problem, engine, context
        self.tree = BoxTree() if record else None
        self.limit, self.size = batch, min(batch, FIRST_BATCH)
        self.violation = Violation(problem, context.device)
        self.attack = attack
        lower, upper = shrunk_box(problem.domain)
        self.root = BoxBatch(lower[None].copy(), upper[None].copy(), engine.phase[None].copy())
        self.frontier: Frontier[BoxBatch] = Frontier()
        self.frontier.add(self.root)
        self.volume = Volume(lower, upper)
        self.progress = Progress()

    def run(self) -> Outcome:
        while self.progress.stuck < MOST_STUCK and not self.context.budget.expired():
            batch = self.frontier.take(self.size)
            if batch is None:
                break
            share = self.volume(batch)
            began = time.monotonic()
            found = self.engine.bound(batch)
            self._pace(time.monotonic() - began)
            self.progress.boxes += len(batch)
            point = self._try_points(batch, found)
            if point is not None:
                return Outcome.found(point, stats=self.progress.stats())
            remaining = self._split(batch, found)
            self.progress.closed_share += float(share.sum() - self.volume(remaining).sum())
        return self._conclude()

    def _pace(self, seconds: float) -> None:
        """Batches long enough to be efficient, short enough to hear the clock and a cancellation."""
        if seconds > LONGEST_BATCH:
            self.size = max(1, self.size // 2)
        elif seconds < LONGEST_BATCH / 4:
            self.size = min(self.limit, self.size * 2)

    def _try_points(self, batch: BoxBatch, found: Findings) -> Array | None:
        """Corners and centres of the open boxes; whatever looks satisfied is replayed."""
        live = ~found.closed
        if not live.any():
            return None
        centres = (batch.lower[live] + batch.upper[live]) / 2
        points = np.concatenate([found.corner[live], centres])
        value = self.violation(points)
        for i in np.argsort(value)[:TRIED_POINTS]:
            if value[i] <= 0 and self.progress.rejected < MOST_REJECTED:
                if self.context.check(points[i]):
                    return np.asarray(points[i])
                self.progress.rejected += 1
        best = points[int(value.argmin())]
        self.context.evidence.add_candidate(best)
        return self.attack.run([best]) if self.attack is not None and self.attack.due() else None

    def _split(self, batch: BoxBatch, found: Findings) -> BoxBatch:
        """Halve every open box along its best input; boxes too small to halve are counted as stuck."""
        live = np.flatnonzero(~found.closed)
        rest, score = batch.pick(live), found.score[live]
        if not len(rest):
            return rest
        scale = np.maximum(np.abs(rest.lower), np.abs(rest.upper))
        width = rest.upper - rest.lower
        score = np.where(width > NARROW * scale, np.nan_to_num(score), -1.0)
        dimension, place = score.argmax(1), np.arange(len(rest))
        # a score of zero everywhere says nothing: split the widest input
        flat = score[place, dimension] <= 0
        dimension[flat] = width[flat].argmax(1)
        tiny = width[place, dimension] <= NARROW * scale[place, dimension]
        if tiny.any():
            self.progress.stuck += int(tiny.sum())
            self.progress.bound = min(self.progress.bound, float(found.margin[live][tiny].min()))
            rest, dimension = rest.pick(~tiny), dimension[~tiny]
            place = np.arange(len(rest))
        if len(rest):
            middle = (rest.lower[place, dimension] + rest.upper[place, dimension]) / 2
            if self.tree is not None:
                middle = short(middle, width[~tiny][place, dimension])
            both = parts(rest, place, dimension, middle)
            if self.tree is not None:
                both.node = self.tree.split(rest.node, dimension, middle)
            self.frontier.add(both)
        return rest

    def _conclude(self) -> Outcome:
        stats = self.progress.stats()
        open_boxes = len(self.frontier)
        if not open_boxes and not self.progress.stuck:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
            return Outcome.proved(stats=stats)
        share = max(0.0, 1 - self.progress.closed_share)
        stats["open_domains"] = open_boxes + self.progress.stuck
        if self.progress.stuck and not self.context.budget.expired():
            reason = f"{self.progress.stuck} boxes of float32 width hinge on rounding error"
            return Outcome.unknown(reason, bound=self.progress.bound, stats=stats)
        done = self.progress.boxes
        reason = f"out of time after {done} boxes; {share:.2%} of the input set is open ({open_boxes} boxes)"
        return Outcome.unknown(reason, stats=stats)


class Volume:
    """The share of the root box that boxes cover, over the inputs that have any width."""

    def __init__(self, lower: Array, upper: Array) -> None:
        self.wide = upper > lower
        self.width = (upper - lower)[self.wide]

    def __call__(self, batch: BoxBatch) -> Array:
        return np.asarray(np.prod((batch.upper - batch.lower)[:, self.wide] / self.width, axis=1))


def parts(batch: BoxBatch, place: NDArray[np.intp], dimension: NDArray[np.intp], cut: Array) -> BoxBatch:
    """Both parts of every box, cut along its own dimension."""
    left_upper, right_lower = batch.upper.copy(), batch.lower.copy()
    left_upper[place, dimension] = cut
    right_lower[place, dimension] = cut
    left = BoxBatch(batch.lower, left_upper, batch.phase)
    right = BoxBatch(right_lower, batch.upper, batch.phase.copy())
    return BoxBatch.join([left, right])
