"""Branch and bound on the phases of ReLUs alone, where smooth functions and products are lines with an error.

A network of attention has few ReLUs that cost its bound much, and thousands of products that cost it little each. For
one goal all the others become affine (`reduce/linearised.py`), and the search on phases does the rest: a subproblem
takes a millisecond instead of a second.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.answer import Outcome
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.base import Interval
from verifolio.plugins.crown.reduce.linearised import Linearised, linearise
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.neurons.neuron_search import NeuronSearch
from verifolio.plugins.crown.search.root import MOST_NUMBERS, Root, shrink
from verifolio.plugins.crown.search.values.bounds import ValueBounds
from verifolio.plugins.crown.search.values.pieces import Pieces

Array = NDArray[np.float64]


class InputsOfPoints(CandidatePoints):
    """Candidates whose first numbers are the network's inputs; the others are errors."""

    def __init__(self, points: CandidatePoints) -> None:
        self.context, self.violation, self.attack = points.context, points.violation, points.attack

    def corners(self, root: Root, rows: Tensor) -> Array:
        return super().corners(root, rows)[:, : self.violation.inputs]


def search_phases(bounds: ValueBounds, piece: Pieces, points: CandidatePoints, context: Context) -> Outcome:
    """What the search on phases says of one piece of the whole domain."""
    root = phases_root(bounds, piece)
    if root is None or root.condensed is None or context.budget.expired():
        return Outcome.unknown("a search on phases does not apply")
    inputs = bounds.root.program.sizes[0]
    inner = replace(context, check=lambda x: context.check(x[:inputs]))
    outcome = NeuronSearch(root, root.condensed, InputsOfPoints(points), inner, CrownOptions()).run()
    return outcome if outcome.point is None else replace(outcome, point=outcome.point[:inputs])


@torch.no_grad()
def phases_root(bounds: ValueBounds, piece: Pieces) -> Root | None:
    """Where a search on phases starts; None: it does not apply."""
    if bounds.root.state.region.balls is not None:
        return None
    state, rows = _passed(bounds, piece)
    found = linearise(bounds.root.program, state, rows)
    return None if found is None else _root(bounds, piece, state, found)


@torch.no_grad()
def missing_share(bounds: ValueBounds, piece: Pieces) -> float:
    """What a piece's bound misses, as a part of what phases may win: from one on a search on them is of no use.

    Phases win at most the greatest distances of the lines of ReLUs, times the coefficients that they meet.
    """
    state, rows = _passed(bounds, piece)
    total = 0.0
    for i in bounds.root.program.graph.relus:
        if i not in rows:
            continue
        low, high = state.inputs(bounds.root.program, i)[0]
        slope = state.lines[i].lower_slope[0]
        below = torch.maximum(slope * -low, (1 - slope) * high)
        above = high * -low / (high - low).clamp(min=1e-30)
        far = torch.where(rows[i] > 0, below, above)[0]
        total += float((rows[i].abs() * far)[(low < 0)[0] & (high > 0)[0]].sum())
    return -float(piece.bound[0]) / max(total, 1e-300)


def _passed(bounds: ValueBounds, piece: Pieces) -> tuple[State, dict[int, Tensor]]:
    """The piece's state with its lines, and what its row meets at every nonlinear node (size,)."""
    root = bounds.root
    state = bounds.columns.state(root.state, piece)
    for i in root.program.nonlinear:
        root.program.relax(state, i)
    bounds.enclose(state, piece.alpha)
    goal, lead = root.goal.pick(piece.goal), int(piece.row[0])
    rows: dict[int, Tensor] = {}
    root.program.lower(
        state, root.program.graph.output, goal.rows[:, lead : lead + 1], None, rows.__setitem__
    )
    return state, {i: r[0, 0] for i, r in rows.items()}


def _root(bounds: ValueBounds, piece: Pieces, state: State, found: Linearised) -> Root | None:
    """The new network on its own domain, in float32, from the slopes that were sought already."""
    old = bounds.root.state.region
    space = Space(torch.float32, str(old.lower.device))
    ones = old.lower.new_ones(1, found.symbols)
    region = Region(
        _down(space, torch.cat([old.lower, -ones], 1)), _up(space, torch.cat([old.upper, ones], 1))
    )
    known = {p: _outward(space, state.interval[i]) for p, i in found.origin.items()}
    kept = sum(_unstable(known[found.graph.nodes[i].parents[0]]) for i in found.graph.relus)
    if not kept or kept * (found.graph.input_size + kept) > MOST_NUMBERS:
        return None
    goal = bounds.root.goal.pick(piece.goal)
    inputs = goal.inputs
    if inputs is not None:
        inputs = torch.cat([inputs, inputs.new_zeros(*inputs.shape[:2], found.symbols)], 2)
    root = shrink(found.graph, region, known, goal.rows, inputs, goal.rhs)
    if root.origin is None or not len(root.origin):
        return None
    sought = bounds.columns.lines(piece.alpha)
    relus = [found.origin[i] for i in found.graph.relus]
    slopes = [float(sought[relus[k]][0, neuron]) for k, neuron in root.origin.tolist()]
    return replace(root, slopes=torch.tensor(slopes, dtype=torch.float32, device=space.device))


def _unstable(ends: Interval) -> int:
    return int(((ends[0] < 0) & (ends[1] > 0)).sum())


def _outward(space: Space, ends: Interval) -> Interval:
    return _down(space, ends[0][:1]), _up(space, ends[1][:1])


def _down(space: Space, value: Tensor) -> Tensor:
    return space.down(value.cpu().numpy())


def _up(space: Space, value: Tensor) -> Tensor:
    return space.up(value.cpu().numpy())
