"""Boxes of a large network whose inputs are fixed but for a few, whatever its size: see `reduce.fixed_walk`.

What is fixed is what is written: a decimal that is no double would otherwise be an interval, and intervals of all
pixels grow through the layers like rounding errors. So a proof is one of the problem as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.dual import Goal
from verifolio.plugins.crown.propagate.limbs import OutOfRange
from verifolio.plugins.crown.reduce.box_network import BoxNetwork, goal_forms
from verifolio.plugins.crown.reduce.fixed_walk import FixedWalk
from verifolio.plugins.crown.search.inputs.condensed_search import CondensedSearch
from verifolio.vnnlib.exact import exact_numbers

Array = NDArray[np.float64]
Written = tuple[Sequence[Fraction], Sequence[Fraction]]
# Neurons from which on the base is worth its many products: smaller networks have other ways. A choice.
LARGE = 1 << 17
MOST_VARYING = 64  # every one of them is a column of all neurons that it reaches; a choice


def written_box(domain: Domain) -> Written | None:
    """The bounds as written; None: they are not known, or the domain has been narrowed since."""
    if domain.written is None or domain.ball is not None:
        return None
    lower, upper = (exact_numbers(side) for side in domain.written)
    same = np.array_equal(lower.below, domain.lower) and np.array_equal(upper.above, domain.upper)
    return (lower, upper) if same else None


def fixed_applies(problem: Problem) -> bool:
    """Whether the network is large, and all but a few of many inputs are fixed."""
    graph = problem.graph
    if graph.neurons < LARGE or not graph.piecewise_linear or problem.mixes_inputs:
        return False
    written = written_box(problem.domain)
    if written is None:
        return False
    varying = sum(low != high for low, high in zip(*written, strict=True))  # as the walk counts them
    return varying <= MOST_VARYING and 8 * varying <= graph.input_size


class FixedSearch(CondensedSearch):
    """The boxes are those of the inputs that vary, around their middles."""

    def __init__(self, problem: Problem, context: Context) -> None:
        super().__init__(problem, context)
        written = written_box(problem.domain)
        if written is None:
            raise ValueError("the written bounds are not known")
        self.written = written

    def _make(self, goal: Goal) -> BoxNetwork | None:
        try:
            self.walk = FixedWalk(self.problem.graph, self.context.budget, *self.written)
            outputs = self.walk.run()
        except OutOfRange:
            outputs = None
        if outputs is None:
            return None
        kept, every = self.walk.kept, np.arange(self.problem.graph.output_size)
        return BoxNetwork(kept, goal_forms(goal, outputs, kept, outputs.bias.new_tensor(every).long()))

    def _points(self, inputs: Array) -> Array:
        domain = self.problem.domain
        points = np.repeat(((domain.lower + domain.upper) / 2)[None], len(inputs), 0)
        points[:, self.walk.vary] = self.walk.middle + inputs
        return np.clip(points, domain.lower, domain.upper)

    def _prove(self) -> None:
        """Only the problem as written is refuted, which is what a proof of the query speaks of."""
