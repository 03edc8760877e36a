"""Candidates for counterexamples on the way: where bounds are attained, and now and then an attack from there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.dual import BoundResult
from verifolio.plugins.crown.search.attack import InterleavedAttack
from verifolio.plugins.crown.search.root import Root
from verifolio.plugins.crown.search.violation import Violation

Array = NDArray[np.float64]
TRIED_POINTS = 64  # per batch of subproblems: one evaluation in float64, far below a batch's bounds
STARTS = 8  # points with the least violation from which an attack starts; it adds random ones of its own


class CandidatePoints:
    """Looks for a point that replays."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.context = context
        self.violation = Violation(problem, context.device)
        self.attack = InterleavedAttack(problem, context, eager=True)

    def look(self, root: Root, result: BoundResult, left: Tensor) -> Array | None:
        """A point that replays, from the corners at which the rows of open goals are smallest."""
        lead = result.margin.nan_to_num(nan=-np.inf).argmax(1)
        rows = result.captured[0].expand(len(lead), -1, -1)[left, lead[left]][:TRIED_POINTS]
        points = self.corners(root, rows)
        value = self.violation(points)
        best = int(value.argmin())
        if value[best] <= 0 and self.context.check(points[best]):
            return np.asarray(points[best])
        if self.attack.due():
            return self.attack.run(list(points[np.argsort(value)[:STARTS]]))
        return None

    def corners(self, root: Root, rows: Tensor) -> Array:
        """The inputs at which some rows are smallest."""
        found: Array = root.state.region.corner(rows[None])[0].double().cpu().numpy()
        return found
