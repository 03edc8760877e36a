"""Branch and bound on the inputs: for networks with few inputs, whatever their size."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.graph.module import GraphModule
from verifolio.model.answer import Outcome
from verifolio.model.problem import NARROW, Problem, dense_rows
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.assault import Assault
from verifolio.plugins.crown.boxes import Batch, BoxEngine, Findings
from verifolio.plugins.crown.pile import Pile
from verifolio.plugins.crown.region import shrunk_box
from verifolio.plugins.crown.trace import BoxTree, save_trace, short

Array = NDArray[np.float64]
FIRST_BATCH = 16
LONGEST_BATCH = 0.2  # seconds
MOST_STUCK = 64  # boxes too small to halve; with one of them boxes prove nothing any more


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


class Violation:
    """How far points are from satisfying the output condition (<= 0: satisfied), in float64."""

    def __init__(self, problem: Problem, device: str = "cpu") -> None:
        self.module = GraphModule(problem.graph, torch.float64).to(device)
        n, m = problem.graph.input_size, problem.graph.output_size
        self.parts = [dense_rows(rows, n, m) for rows in problem.disjuncts]
        self.device = device

    @torch.no_grad()
    def __call__(self, x: Array) -> Array:
        y = self.module(torch.as_tensor(x, device=self.device)).cpu().numpy()
        worst = [(x @ a.T + y @ b.T - rhs).max(1, initial=-np.inf) for a, b, rhs in self.parts]
        return np.asarray(np.min(worst, axis=0))


class InputSplit:
    """Depth-first in batches: take boxes, bound them, try points in the open ones, halve the best input."""

    def __init__(
        self, problem: Problem, engine: BoxEngine, context: Context, batch: int, trace: str = ""
    ) -> None:
        self.problem, self.engine, self.context = problem, engine, context
        self.trace, self.tree = trace, BoxTree()
        self.limit, self.size = batch, min(batch, FIRST_BATCH)
        self.violation = Violation(problem, context.device)
        self.assault = Assault(problem, context, eager=False)
        lower, upper = shrunk_box(problem.domain)
        self.root = Batch(lower[None].copy(), upper[None].copy(), np.zeros((1, engine.neurons), np.int8))
        self.stack: Pile[Batch] = Pile()
        self.stack.add(self.root)
        self.volume = Volume(lower, upper)
        self.progress = Progress()

    def run(self) -> Outcome:
        while self.progress.stuck < MOST_STUCK and not self.context.budget.expired():
            batch = self.stack.take(self.size)
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

    def _try_points(self, batch: Batch, found: Findings) -> Array | None:
        """Corners and centres of the open boxes; whatever looks satisfied is replayed."""
        live = ~found.closed
        if not live.any():
            return None
        centres = (batch.lower[live] + batch.upper[live]) / 2
        points = np.concatenate([found.corner[live], centres])
        value = self.violation(points)
        for i in np.argsort(value)[:4]:
            if value[i] <= 0 and self.progress.rejected < 1000:
                if self.context.check(points[i]):
                    return np.asarray(points[i])
                self.progress.rejected += 1
        best = points[int(value.argmin())]
        self.context.evidence.add_candidate(best)
        return self.assault.run([best]) if self.assault.due() else None

    def _split(self, batch: Batch, found: Findings) -> Batch:
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
            if self.trace:
                middle = short(middle, width[~tiny][place, dimension])
            both = parts(rest, place, dimension, middle)
            if self.trace:
                both.node = self.tree.split(rest.node, dimension, middle)
            self.stack.add(both)
        return rest

    def _conclude(self) -> Outcome:
        stats = self.progress.stats()
        open_boxes = len(self.stack)
        if not open_boxes and not self.progress.stuck:
            self.context.evidence.add_refuted(self.problem, self.problem.domain)
            if self.trace:
                save_trace(self.trace, self.problem, self.tree.arrays())
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

    def __call__(self, batch: Batch) -> Array:
        return np.asarray(np.prod((batch.upper - batch.lower)[:, self.wide] / self.width, axis=1))


def parts(batch: Batch, place: NDArray[np.intp], dimension: NDArray[np.intp], cut: Array) -> Batch:
    """Both parts of every box, cut along its own dimension."""
    left_upper, right_lower = batch.upper.copy(), batch.lower.copy()
    left_upper[place, dimension] = cut
    right_lower[place, dimension] = cut
    left = Batch(batch.lower, left_upper, batch.phase)
    right = Batch(right_lower, batch.upper, batch.phase.copy())
    return Batch.join([left, right])
