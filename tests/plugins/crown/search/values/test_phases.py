"""The search on phases where smooth functions are lines with an error: proofs hold, and phases count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.root import RootBounds
from verifolio.plugins.crown.search.values.bounds import ValueBounds
from verifolio.plugins.crown.search.values.phases import missing_share, phases_root, search_phases
from verifolio.plugins.crown.search.values.pieces import Pieces
from verifolio.run.budget import Budget
from verifolio.testing.realistic import NETWORKS, boxes, layered
from verifolio.testing.reference import attained
from verifolio.testing.trial import sample
from verifolio.vnnlib import make_rows

SEED = 1
ROW = {0: 1.0, 1: -1.0}


def problem_at(name: str, seed: int, shift: float, radius: float = 0.15) -> Problem:
    """Is y_0 - y_1 <= its least attained value + shift anywhere?"""
    graph = NETWORKS[name](np.random.default_rng(seed))
    domain = boxes(np.random.default_rng(seed + 1), graph.input_size, (radius,))[0]
    dense = np.zeros((1, graph.output_size))
    for k, c in ROW.items():
        dense[0, k] = c
    least = float(attained(graph, domain, dense)[0])
    rows = {graph.input_size + k: c for k, c in ROW.items()}
    return Problem(graph, domain, (make_rows([(rows, least + shift)]),))


def bounded(problem: Problem) -> tuple[ValueBounds, Pieces]:
    """The whole domain with optimised lines."""
    root_bounds = RootBounds(problem, Space(torch.float64), Budget())
    for effort in (Effort(tighten=False, zonotopes=True), Effort()):
        root_bounds.tighten(effort)
    root_bounds.live = torch.arange(len(problem.disjuncts))
    bounds = ValueBounds(root_bounds.root(), Budget())
    whole = bounds.first()
    return bounds, bounds.ranked(whole, bounds.ascend(whole, 30, 0.1))


def verdict(problem: Problem, seconds: float = 5.0) -> Verdict:
    bounds, piece = bounded(problem)
    context = Context(budget=Budget(seconds))
    found = search_phases(bounds, piece, CandidatePoints(problem, context), context)
    return found.verdict


@pytest.mark.parametrize("name", ["transformer", "quadratic", "layer_norm"])
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_attained_values_are_never_excluded(name: str, seed: int) -> None:
    assert verdict(problem_at(name, seed, 1e-7), 1.0) is not Verdict.UNSAT


def test_phases_prove_what_bounds_leave_open() -> None:
    """A third of what the bound lost is won back by phases."""
    problem = problem_at("transformer", SEED, 0.0)
    gap = -float(bounded(problem)[1].bound[0])
    closer = problem_at("transformer", SEED, -0.67 * gap)
    assert float(bounded(closer)[1].bound[0]) < 0
    assert verdict(closer) is Verdict.UNSAT


def test_the_search_begins_with_the_bound_that_was_found() -> None:
    """The slopes that were sought are where the search starts, and the new network loses next to nothing."""
    bounds, piece = bounded(problem_at("transformer", 1, 0.0))
    root = phases_root(bounds, piece)
    assert root is not None and root.condensed is not None and root.slopes is not None
    bounding = SubproblemBounds(root, root.condensed, Budget())
    first = bounding.first()
    margin = float(bounding.prove(first, first.variables.to(torch.float64)).margin[0, 0])
    assert margin == pytest.approx(float(piece.bound[0]), rel=0.02)


def test_points_are_inputs() -> None:
    """A witness that the search finds has the network's inputs, without the errors."""
    problem = problem_at("transformer", 0, 0.5)
    bounds, piece = bounded(problem)
    context = Context(budget=Budget(5.0), check=lambda x: x.shape == (problem.graph.input_size,))
    found = search_phases(bounds, piece, CandidatePoints(problem, context), context)
    assert found.verdict is Verdict.SAT and found.point is not None
    assert found.point.shape == sample(problem.domain, 1)[0].shape


def test_attacks_on_the_way_have_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are polished by derivatives, in the thread that found them."""
    problem, seen = problem_at("transformer", 0, 0.0), []
    bounds, piece = bounded(problem)
    look = CandidatePoints.look

    def noted(self: CandidatePoints, *found: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return look(self, *found)

    monkeypatch.setattr(CandidatePoints, "look", noted)
    context = Context(budget=Budget(1.0))
    with torch.enable_grad():
        search_phases(bounds, piece, CandidatePoints(problem, context), context)
    assert seen and all(seen)


def test_networks_without_phases_are_left_to_others() -> None:
    problem = problem_at("attention", 0, 0.0)
    bounds, piece = bounded(problem)
    assert phases_root(bounds, piece) is None
    assert not missing_share(bounds, piece) < 1


def test_where_phases_may_win_enough() -> None:
    """A bound is missed by little, or by more than all phases cost."""
    far, near = (missing_share(*bounded(problem_at("transformer", SEED, shift))) for shift in (30.0, -0.1))
    assert 0 < near < 1 < far


def test_relus_that_read_the_inputs() -> None:
    """As where inputs are clipped first: their intervals are the inputs' own."""
    graph = layered(8, 12, 12, 3, first="Clip", after="Sigmoid|Relu")(np.random.default_rng(0))
    domain = Domain(np.full(8, -0.3), np.full(8, 0.3))
    least = float(attained(graph, domain, np.array([[1.0, -1.0, 0.0]]))[0])
    rows = {graph.input_size: 1.0, graph.input_size + 1: -1.0}
    problem = Problem(graph, domain, (make_rows([(rows, least)]),))
    root = phases_root(*bounded(problem))
    assert root is not None and root.origin is not None and 0 in root.origin[:, 0]
    assert verdict(problem, 1.0) is not Verdict.UNSAT
