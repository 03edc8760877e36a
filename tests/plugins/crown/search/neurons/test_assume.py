"""Intervals under the assumption of a violation: against the reference, true of every violation, and of nothing else.

Thresholds are values that points attain, so that there is always a violation, at the least a single point.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from verifolio.graph import Graph
from verifolio.graph.ops import Array
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.assumed import AssumedVariables, ascend_assumed
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.candidates import CandidatePoints
from verifolio.plugins.crown.search.neurons import stages
from verifolio.plugins.crown.search.neurons.assume import assume_violation, goal_root, prove_assumed
from verifolio.plugins.crown.search.neurons.goal_search import GoalSearch
from verifolio.plugins.crown.search.root import Root, RootBounds
from verifolio.run.budget import Budget
from verifolio.testing.realistic import NETWORKS, layered
from verifolio.testing.reference import Reference
from verifolio.testing.trial import evaluate, sample, untrue
from verifolio.vnnlib import make_rows

NAMES = ["deep", "conv", "residual"]
SINGLE = torch.float32


@cache
def problem_of(name: str, quantile: float) -> tuple[Problem, Array]:
    """Two disjuncts, of one row and of two, which this part of some points meets, and those points."""
    make = layered(20, 64, 64, 48, 5, gain=1.6) if name == "deep" else NETWORKS[name]
    graph = make(np.random.default_rng(5))
    n, rng = graph.input_size, np.random.default_rng(6)
    centre = rng.normal(size=n)
    domain = Domain(centre - 0.25, centre + 0.25)
    points = sample(domain, 400)
    y = evaluate(graph, points)[graph.output]
    rows = [{n: 1.0, n + 1: -1.0}, {n + 1: 1.0, n + 2: -0.5}, {n + 2: 1.0}]
    columns = np.concatenate([points, y], 1)
    values = [np.sum([c * columns[:, k] for k, c in row.items()], axis=0) for row in rows]
    made = [(r, float(np.quantile(v, quantile, method="lower"))) for r, v in zip(rows, values, strict=True)]
    # the pair's second threshold is what the first one's points attain, so that some point meets both
    both = float(values[2][values[1] <= made[1][1]].min())
    made[2] = (rows[2], both)
    return Problem(graph, domain, (make_rows(made[:1]), make_rows(made[1:]))), points


@cache
def rooted(name: str, quantile: float) -> Root:
    root_bounds = RootBounds(problem_of(name, quantile)[0], Space(SINGLE), Budget())
    for effort in (Effort(tighten=False), Effort()):
        root_bounds.tighten(effort)
    root_bounds.live = torch.arange(2)
    return root_bounds.root()


def inner(root: Root, points: Array) -> tuple[Array, Array]:
    """The inputs of the kept neurons, and the goal's largest row, at points."""
    graph: Graph = root.program.graph
    values = evaluate(graph, points)
    return np.concatenate([values[graph.nodes[i].parents[0]] for i in graph.relus], 1), values[
        graph.output
    ].max(1)


def ends(root: Root) -> tuple[Array, Array]:
    nodes = [root.program.parents[i][0] for i in root.program.graph.relus]
    low, high = (torch.cat([root.state.interval[p][k][0] for p in nodes]).double().numpy() for k in (0, 1))
    return low, high


@pytest.mark.parametrize("name", NAMES)
def test_the_proof_is_the_references(name: str) -> None:
    """Any slopes and weights: the bound of a neuron's row plus the weighted goal; negative weights are nought."""
    for goal in (0, 1):
        exact = goal_root(rooted(name, 0.3), goal).double()
        graph, reference = exact.program.graph, Reference(exact.program.graph)
        kept, height = sum(exact.program.sizes[i] for i in graph.relus), exact.goal.rhs.shape[1]
        torch.manual_seed(goal)
        neurons = torch.randint(0, kept, (6,))
        rows = torch.nn.functional.one_hot(neurons, kept).double() * torch.tensor([1, -1] * 3)[:, None]
        found = AssumedVariables(torch.rand(6, kept).double(), torch.rand(6, height).double() - 0.3)
        proved = prove_assumed(exact, rows, found).numpy()
        region, interval = exact.state.region, exact.state.interval
        domain = Domain(region.lower[0].numpy(), region.upper[0].numpy())
        known = {i: (low[0].numpy(), high[0].numpy()) for i, (low, high) in interval.items()}
        for k in range(6):
            start, lines = 0, {}
            wanted = {graph.output: found.weight[k].clamp(min=0).numpy()[None]}
            for i in graph.relus:
                p, part = graph.nodes[i].parents[0], slice(start, start + graph.nodes[i].op.size)
                low, high = known[p]
                chord = np.clip(high, 0, None) / (np.clip(high, 0, None) - np.clip(low, None, 0))
                slope = np.where((low < 0) & (high > 0), found.alpha[k, part].numpy(), chord)
                lines[i] = reference.lines(i, known, [slope], [chord])
                wanted[p], start = rows[k, part].numpy()[None], part.stop
            bound = reference.lower(domain, known, lines, wanted)
            assert proved[k] <= bound.high[0]
            assert proved[k] == pytest.approx(bound.low[0], rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("quantile", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_every_violation_lies_inside(name: str, quantile: float) -> None:
    """With a threshold that a point attains nothing is empty, and what violates the goal keeps its values."""
    _, points = problem_of(name, quantile)
    root = rooted(name, quantile)
    for goal in (0, 1):
        whole = goal_root(root, goal)
        found = assume_violation(whole, Budget(60.0, cores=2))
        assert found is not None
        _, worst = inner(found.root, points)
        there = points[worst <= 1e-9]
        assert len(there)
        values, _ = inner(found.root, there)
        low, high = ends(found.root)
        assert (values >= low - 1e-7).all() and (values <= high + 1e-7).all()


def test_other_points_may_lie_outside() -> None:
    """The assumption does something: intervals are narrower, and cut off points that violate nothing."""
    _, points = problem_of("deep", 0.0)
    whole = goal_root(rooted("deep", 0.0), 0)
    found = assume_violation(whole, Budget(60.0))
    assert found is not None and found.root.violated
    low, high = ends(found.root)
    values, worst = inner(found.root, points)
    outside = ((values < low - 1e-4) | (values > high + 1e-4)).any(1)
    assert outside.any() and (worst[outside] > 0).all()


def test_what_nothing_violates_is_proved() -> None:
    """A threshold a little below what a whole search says is out of reach: closed without a split, or not at all."""
    problem, points = problem_of("deep", 0.0)
    n = problem.graph.input_size
    y = evaluate(problem.graph, points)[problem.graph.output]
    gap = float((y[:, 0] - y[:, 1]).min())
    proved = []
    for below in (0.0, 0.5, 1.0, 2.0):
        easier = replace(problem, disjuncts=(make_rows([({n: 1.0, n + 1: -1.0}, gap - below)]),))
        root_bounds = RootBounds(easier, Space(SINGLE), Budget())
        for effort in (Effort(tighten=False), Effort()):
            root_bounds.tighten(effort)
        if len(root_bounds.live):
            proved.append(assume_violation(goal_root(root_bounds.root(), 0), Budget(60.0)) is None)
    assert not proved[0] and proved == sorted(proved)


def test_the_ascent_raises_bounds_by_the_weights() -> None:
    """More steps are no worse than none, and some weight stays positive where the assumption helps."""
    root = goal_root(rooted("deep", 0.0), 0)
    net, exact = root.condensed, root.double()
    assert net is not None
    last = torch.arange(net.cuts[-1].start, net.cuts[-1].stop)
    rows = torch.nn.functional.one_hot(last, net.kept).float()
    start = torch.full((net.kept,), 0.5)
    first, better = (ascend_assumed(net, rows, start, 0.5, steps, Budget()) for steps in (1, 20))
    plain = replace(better, weight=torch.zeros_like(better.weight))
    bounds = [prove_assumed(exact, rows, v) for v in (first, better, plain)]
    stable = (net.low >= 0).to(torch.int8) - (net.high <= 0).to(torch.int8)
    lines = net.lines(stable.expand(len(rows), -1))
    matrices = net.backward_without(-rows, lines, better.alpha, better.weight).bound
    assert torch.allclose(matrices.double(), bounds[1], rtol=1e-3, atol=1e-3)
    assert bool((bounds[1] >= bounds[0] - 1e-5).all()) and bool((bounds[1] > bounds[2] + 1e-3).any())


def test_such_bounds_are_no_evidence() -> None:
    """A root under the assumption has one goal and no bounds for others, in any type."""
    root = rooted("deep", 0.3)
    assert root.bounds is not None
    with pytest.raises(ValueError, match="one goal"):
        replace(root, violated=True)
    with pytest.raises(ValueError, match="not evidence"):
        replace(root, disjuncts=root.disjuncts[:1], violated=True)
    found = assume_violation(goal_root(root, 0), Budget(60.0))
    assert found is not None and found.root.violated and found.root.double().violated
    assert found.root.bounds is None and not goal_root(root, 0).violated
    assert goal_root(found.root, 0).violated


@pytest.mark.parametrize("quantile", [0.0, 0.3])
def test_whole_searches(monkeypatch: pytest.MonkeyPatch, quantile: float) -> None:
    """Attained thresholds stay open in every stage; what is told to others holds at all points."""
    monkeypatch.setattr(stages, "STAGES", (stages.Stage(0.0, 1, 0.2), stages.Stage(0.2, 1, 0.2)))
    problem, points = problem_of("deep", quantile)
    context = Context(Budget(6.0), Evidence(), check=lambda _: False)
    search = stages.StagedSearch(problem, context, CrownOptions())
    assert search.run().verdict is Verdict.UNKNOWN
    bounds = context.evidence.bounds_for(problem)
    assert bounds is not None and not untrue(bounds, problem, points)


@pytest.mark.parametrize("last", [False, True])
def test_goals_one_by_one(last: bool) -> None:
    """An attained goal stays open beside one that is proved, and the search says which."""
    problem, _ = problem_of("deep", 0.0)
    n = problem.graph.input_size
    hard = make_rows([({n: 1.0, n + 1: -1.0}, -1e4)])
    problem = replace(problem, disjuncts=(hard, problem.disjuncts[0]))
    root_bounds = RootBounds(problem, Space(SINGLE), Budget())
    for effort in (Effort(tighten=False), Effort()):
        root_bounds.tighten(effort)
    root_bounds.live = torch.arange(2)
    context = Context(Budget(4.0), check=lambda _: False)
    search = GoalSearch(root_bounds.root(), CandidatePoints(problem, context), context, CrownOptions(), last)
    assert search.run().verdict is Verdict.UNKNOWN
    assert search.open_goals().tolist() == [1]
