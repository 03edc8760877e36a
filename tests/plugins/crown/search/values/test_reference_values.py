"""Bounds of pieces and under an assumed violation (`smooth`), against the reference and against attained values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain, Problem
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.root import RootBounds
from verifolio.plugins.crown.search.values.assume import _Layer, assume
from verifolio.plugins.crown.search.values.bounds import ValueBounds
from verifolio.plugins.crown.search.values.pieces import Pieces
from verifolio.run.budget import Budget
from verifolio.testing.realistic import NETWORKS, boxes
from verifolio.testing.reference import Reference
from verifolio.testing.trial import evaluate, sample
from verifolio.vnnlib import make_rows

MORE = ("sigmoid_deep", "Tanh", "pow", "layer_norm", "hard_swish")
NAMES = ["Log", "gate", "elu", "attention", *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]


@cache
def grown(name: str) -> tuple[Problem, ValueBounds]:
    """A problem whose rows about a third of the points meet, and bounds of its whole domain."""
    graph = NETWORKS[name](np.random.default_rng(1))
    domain = boxes(np.random.default_rng(2), graph.input_size, (0.2,))[0]
    n, points = graph.input_size, sample(domain, 100)
    columns = np.concatenate([points, evaluate(graph, points)[graph.output]], 1)
    rows = [{n: 1.0, n + 1: -1.0}, {n + 2: 1.0, 0: 0.5}]
    made = [(r, float(np.quantile(sum(c * columns[:, k] for k, c in r.items()), 0.3))) for r in rows]
    problem = Problem(graph, domain, (make_rows(made[:1]), make_rows(made)))
    root_bounds = RootBounds(problem, Space(torch.float64), Budget())
    for effort in (Effort(tighten=False), Effort()):
        root_bounds.tighten(effort)
    root_bounds.live = torch.arange(2)
    return problem, ValueBounds(root_bounds.root(), Budget())


@cache
def split(name: str) -> Pieces:
    """The whole domain and what two rounds of cuts leave of it."""
    bounds = grown(name)[1]
    pieces = whole = bounds.first()
    for _ in range(2):
        pieces = bounds.ranked(pieces, bounds.ascend(pieces, 2)).split()
    return Pieces.join([whole, pieces])


def values_of(problem: Problem, bounds: ValueBounds, count: int = 300) -> tuple[Array, Array]:
    """The values of all columns at points, and every goal's rows minus right-hand sides (points, goals, rows)."""
    points, graph = sample(problem.domain, count), bounds.root.program.graph
    nodes, goal = evaluate(graph, points), bounds.root.goal
    columns = np.concatenate([nodes[p] for p in bounds.columns.nodes], 1)
    gaps = np.einsum("grm,pm->pgr", goal.rows.numpy(), nodes[graph.output]) - goal.rhs.numpy()
    if goal.inputs is not None:
        gaps = gaps + np.einsum("grn,pn->pgr", goal.inputs.numpy(), points)
    return columns, gaps


def inside(columns: Array, pieces: Pieces, k: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.all(
        (columns >= pieces.low[k].numpy()) & (columns <= pieces.high[k].numpy()), axis=1
    )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_pieces(seen: Any, name: str) -> None:
    """Any lines and multipliers: the reference's bound of rows and multipliers, less what the ends are worth."""
    problem, bounds = grown(name)
    reference, program = Reference(bounds.root.program.graph), bounds.root.program
    with torch.no_grad():
        pieces = split(name)
        least, most = bounds.columns.range(pieces)
        torch.manual_seed(0)
        alpha = least + torch.rand_like(least) * (most - least)
        multiplier = 0.1 * torch.randn_like(pieces.low)
        margin = bounds.evaluate(pieces, alpha, multiplier).margin.numpy()
        state = bounds.columns.state(bounds.root.state, pieces)
        bounds.enclose(state, alpha)
        cut, goal = bounds.columns.cut(pieces), bounds.root.goal.pick(pieces.goal)
    columns, gaps = values_of(problem, bounds)
    for k in range(len(pieces)):
        known, weight = seen(reference, program, state, k), torch.where(cut[k], multiplier[k], 0.0)
        rows = {program.graph.output: goal.rows[k].numpy()}
        if goal.inputs is not None:
            rows[0] = goal.inputs[k].numpy()
        for p, part in bounds.columns.by_node(weight).items():
            rows[p] = rows.get(p, 0.0) + np.broadcast_to(part.numpy(), (len(goal.rhs[k]), len(part)))
        wanted = reference.lower(known.domain, known.intervals, known.lines, rows)
        ends = float(torch.maximum(weight * pieces.low[k], weight * pieces.high[k]).sum())
        room = 1e-7 * (1 + np.abs(wanted.low))
        assert (margin[k] <= wanted.high - ends - goal.rhs[k].numpy() + 1e-11 * (1 + abs(ends))).all(), (
            f"piece {k}"
        )
        assert (margin[k] >= wanted.low - ends - goal.rhs[k].numpy() - room).all(), f"piece {k}"
        there = gaps[inside(columns, pieces, k)][:, int(pieces.goal[k])]
        assert not len(there) or (margin[k] <= there.min(0) + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_propagated(name: str) -> None:
    """Interval arithmetic on pieces is the reference's, and empties none that holds a point."""
    problem, bounds = grown(name)
    reference = Reference(bounds.root.program.graph)
    with torch.no_grad():
        before = split(name)
        after, full = bounds.propagated(before)
    columns, _ = values_of(problem, bounds)
    for k in range(len(before)):
        ends = zip(*(bounds.columns.by_node(t[k]).items() for t in (before.low, before.high)), strict=True)
        known = {p: (low.numpy(), high.numpy()) for (p, low), (_, high) in ends}
        wanted = reference.intervals(problem.domain, known)
        low, high = (np.concatenate([wanted[p][end] for p in bounds.columns.nodes]) for end in (0, 1))
        if bool(full[k]):
            room = 1e-5 * (1 + np.abs(low) + np.abs(high))
            assert (after.low[k].numpy() <= low + room).all() and (after.high[k].numpy() >= high - room).all()
            assert (after.low[k].numpy() >= low - room).all() and (after.high[k].numpy() <= high + room).all()
        there = columns[inside(columns, before, k)]
        assert bool(full[k]) or not len(there)
        assert (there >= after.low[k].numpy() - 1e-12).all() and (
            there <= after.high[k].numpy() + 1e-12
        ).all()


@pytest.mark.parametrize("name", NAMES)
def test_assumed_violation(seen: Any, name: str) -> None:
    """Intervals under the assumption that a row holds: the reference's for the same lines, true of such points."""
    problem, bounds = grown(name)
    program, reference = bounds.root.program, Reference(bounds.root.program.graph)
    pieces = bounds.first()
    pieces = bounds.ranked(pieces, bounds.ascend(pieces, 3))
    columns, gaps = values_of(problem, bounds)
    for k in range(len(pieces)):
        piece = pieces.pick(slice(k, k + 1))
        narrower = assume(bounds, piece, 3, Budget())
        lead = int(piece.row[0])
        there = columns[gaps[:, k, lead] <= 0]
        assert len(there) and narrower is not None
        assert (there >= narrower.low[0].numpy() - 1e-12).all() and (
            there <= narrower.high[0].numpy() + 1e-12
        ).all()
        node = bounds.columns.nodes[-1]
        check_layer(seen, reference, _Layer(bounds, piece, node, 3, Budget()), lead)
    assert program.graph.output_size == 3


def check_layer(seen: Any, reference: Reference, layer: _Layer, lead: int) -> None:
    """The bounds of a few neurons of a layer, each with its own lines and its own weight of the assumption."""
    program, goal = layer.program, layer.bounds.root.goal.pick(layer.piece.goal)
    torch.manual_seed(0)
    size, rows = program.sizes[layer.node], min(4, program.sizes[layer.node])
    unit = (
        torch.eye(size, dtype=torch.float64)[None, :rows] * torch.tensor([1.0, -1.0, 1.0, -1.0])[:rows, None]
    )
    share = torch.rand(1, rows, layer.least.shape[1], dtype=torch.float64)
    weight = torch.rand(1, rows, 1, dtype=torch.float64)
    with torch.no_grad():
        found = layer._bound(unit, share, weight).numpy()
        layer.bounds.enclose(layer.state, layer.least[:, None] + share * (layer.most - layer.least)[:, None])
    for r in range(rows):
        known, w = seen(reference, program, layer.state, 0, r), float(weight[0, r, 0])
        parts = {program.graph.output: w * goal.rows[0, lead].numpy()[None]}
        parts[layer.node] = unit[0, r].numpy()[None]
        if goal.inputs is not None:
            parts[0] = w * goal.inputs[0, lead].numpy()[None]
        wanted = reference.lower(known.domain, known.intervals, known.lines, parts)
        given = w * float(goal.rhs[0, lead])
        assert found[r] <= wanted.high[0] - given + 1e-12 * (1 + abs(given))
        assert found[r] >= wanted.low[0] - given - 1e-7 * (1 + abs(wanted.low[0]))


def test_graph_is_the_same_after_rewriting() -> None:
    """What is compared here is the graph with opposite neurons joined: it computes what the problem's computes."""
    problem, bounds = grown("elu")
    graph: Graph = bounds.root.program.graph
    points = sample(Domain(problem.domain.lower, problem.domain.upper), 20)
    assert np.allclose(
        evaluate(graph, points)[graph.output], evaluate(problem.graph, points)[problem.graph.output]
    )
