"""Bounds from the evidence tighten the root of every search, and only where they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.graph import Graph
from verifolio.graph.ops import Array
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Assumptions, Bounds, Evidence
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.crown.bounder import AlphaBounder, CrownBounder
from verifolio.plugins.crown.kernel import boxes
from verifolio.plugins.crown.kernel.boxes import BoxBatch
from verifolio.plugins.crown.optimise.dual import Dual, evaluate
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.reduce.opposites import merge_opposites
from verifolio.plugins.crown.search.inputs.tensor_engine import make_engine
from verifolio.plugins.crown.search.root import RootBounds, as_intervals
from verifolio.plugins.crown.smooth import Smooth
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.networks import dense_graph
from verifolio.testing.realistic import NETWORKS
from verifolio.testing.realistic import boxes as random_boxes
from verifolio.testing.reference import attained
from verifolio.testing.trial import evaluate as values_at
from verifolio.testing.trial import sample
from verifolio.vnnlib import make_rows

SQUARE = Domain(-np.ones(2), np.ones(2))
GRID = 24  # boxes per input behind the tight bounds


@cache
def network(function: str = "relu") -> Graph:
    """Two inputs, two layers of 30: small enough for tight bounds by cutting the square, too deep for one pass."""
    rng = np.random.default_rng(5)
    sizes = (2, 30, 30, 1)
    layers = [
        (rng.normal(size=(m, n)) * 1.5 / np.sqrt(n), rng.normal(size=m) * 0.3) for n, m in pairwise(sizes)
    ]
    return dense_graph(layers, function)


def at_most(graph: Graph, value: float, domain: Domain = SQUARE) -> Problem:
    """Can y_0 be at most this?"""
    return Problem(graph, domain, (make_rows([({graph.input_size: 1.0}, value)]),))


@cache
def tight(function: str = "relu") -> Bounds:
    """True bounds of all neurons on the square: the hull of CROWN's bounds on the boxes of a grid."""
    graph = network(function)
    ticks = np.linspace(-1, 1, GRID + 1)
    corners = np.stack(np.meshgrid(ticks[:-1], ticks[:-1]), -1).reshape(-1, 2)
    parts = [at_most(graph, 0.0, Domain(c, c + ticks[1] - ticks[0] + 1e-12)) for c in corners]
    found = CrownBounder().bound(parts)
    lower = {i: np.min([b.lower[i] for b in found], axis=0) for i in found[0].lower}
    upper = {i: np.max([b.upper[i] for b in found], axis=0) for i in found[0].upper}
    return Bounds(graph.sha256, SQUARE, lower, upper)


def evidence_of(*bounds: Bounds) -> Evidence:
    evidence = Evidence()
    for each in bounds:
        evidence.add_bounds(each)
    return evidence


def run(problem: Problem, evidence: Evidence, split: str = "none") -> Outcome:
    verifier = Crown(CrownOptions(split=split))  # type: ignore[arg-type]
    return verifier.run(problem, Context(Budget(30.0), evidence))


def undecided_bound(problem: Problem, evidence: Evidence) -> float:
    found = run(problem, evidence).bound
    assert found is not None
    return found


@cache
def between() -> float:
    """A value of y_0 that bounds exclude with the evidence and not without."""
    least = float(values_at(network(), sample(SQUARE, 4000))[network().output].min())
    problem = at_most(network(), least)
    without, given = undecided_bound(problem, Evidence()), undecided_bound(problem, evidence_of(tight()))
    assert without < given - 0.01
    return least + (without + given) / 2


def test_a_search_on_neurons_proves_at_once_what_it_cannot_without() -> None:
    problem = at_most(network(), between())
    assert run(problem, Evidence()).verdict is Verdict.UNKNOWN
    assert run(problem, evidence_of(tight())).verdict is Verdict.UNSAT


@pytest.mark.parametrize("compiled", [True, False])
def test_a_search_on_inputs_needs_one_box(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(boxes, "_boxes", None)
    elif boxes._boxes is None:
        pytest.skip("the compiled kernel was not built here")

    def margin(problem: Problem, known: Bounds | None) -> float:
        engine = make_engine(problem, Budget(), known=known)
        batch = BoxBatch(-np.ones((1, 2)), np.ones((1, 2)), engine.phase[None].copy())
        return float(engine.bound(batch).margin[0])

    first = at_most(network(), between())
    without, given = (margin(first, known) for known in (None, tight()))
    assert without < given - 0.01
    problem = at_most(network(), between() + min((without + given) / 2, given - 0.005))
    alone, told = (run(problem, e, "input") for e in (Evidence(), evidence_of(tight())))
    assert told.verdict is Verdict.UNSAT
    assert told.stats["domains"] == 1
    assert int(alone.stats["domains"]) > 1


def test_smooth_proves_by_bounds_what_it_must_search_for_without() -> None:
    graph = network("sigmoid")
    problem = at_most(graph, float(values_at(graph, sample(SQUARE, 4000))[graph.output].min()))

    def margin(known: Bounds | None) -> float:
        root_bounds = RootBounds(problem, Space(torch.float64), Budget(), known)
        root_bounds.tighten(Effort(tighten=False))
        root_bounds.tighten(Effort())
        return float(
            evaluate(root_bounds.program, root_bounds.state, root_bounds.goal, {}, Dual()).margin[0, 0]
        )

    without, given = margin(None), margin(tight("sigmoid"))
    assert without < given - 1e-4
    rhs = float(problem.disjuncts[0].rhs[0]) + (without + given) / 2
    asked = at_most(graph, rhs)
    alone, told = (
        Smooth().run(asked, Context(Budget(30.0), e)) for e in (Evidence(), evidence_of(tight("sigmoid")))
    )
    assert told.verdict is Verdict.UNSAT
    assert told.stats["by"] == "bounds"
    assert alone.stats.get("by") != "bounds"


def nothing() -> Bounds:
    """No neuron is active: false, and so tight that everything would follow."""
    lower, upper = ({i: np.full_like(v, end) for i, v in tight().lower.items()} for end in (-1.0, 0.0))
    return Bounds(network().sha256, SQUARE, lower, upper)


@pytest.mark.parametrize("split", ["none", "input", "neuron"])
@pytest.mark.parametrize(
    "change",
    [
        {"graph": "0" * 64},
        {"domain": Domain(-np.ones(2), np.full(2, 0.9))},
        {"assumptions": Assumptions(splits=frozenset({(1, 0, 1)}))},
        {"assumptions": Assumptions(condition="0" * 64)},
        {"foreign": True},
    ],
    ids=["another graph", "a smaller set", "splits", "another condition", "another tool's"],
)
def test_bounds_that_do_not_hold_here_are_ignored(change: dict[str, Any], split: str) -> None:
    outcome = refuted_by_nothing(split, change)
    assert outcome.verdict is not Verdict.UNSAT


@pytest.mark.parametrize("split", ["none", "input", "neuron"])
def test_bounds_that_claim_to_hold_here_are_used(split: str) -> None:
    """What makes the test above one: the same bounds without a reason to ignore them."""
    assert refuted_by_nothing(split, {}).verdict is Verdict.UNSAT


@pytest.mark.parametrize("split", ["input", "neuron"])
def test_certificates_rest_on_no_evidence(split: str, tmp_path: Path) -> None:
    """They are checked without any, so the search that leaves them has none."""
    assert refuted_by_nothing(split, {}, trace=str(tmp_path)).verdict is not Verdict.UNSAT


def refuted_by_nothing(split: str, change: dict[str, Any], **options: str) -> Outcome:
    """A condition that some points meet, but not if all neurons were inactive."""
    graph = network()
    values = values_at(graph, sample(SQUARE, 400))[graph.output][:, 0]
    problem = at_most(graph, float(np.quantile(values, 0.1)))
    evidence = evidence_of(replace(nothing(), **change))
    verifier = Crown(CrownOptions(split=split, **options))  # type: ignore[arg-type]
    return verifier.run(problem, Context(Budget(1.0), evidence))


@pytest.mark.parametrize("make", [Smooth, Crown, lambda: Crown(CrownOptions(split="none"))])
@pytest.mark.parametrize(
    "name", ["dense", "clip", "abs", "residual", "conv", "sigmoid_deep", "gate", "softmax"]
)
def test_attained_values_are_never_excluded(name: str, make: Callable[[], Verifier]) -> None:
    """On networks of realistic size, with the evidence of a tighter bounder; what is shared then holds, too."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        graph = NETWORKS[name](rng)
        (domain,) = random_boxes(rng, graph.input_size, (0.1,))
        rows = np.zeros((1, graph.output_size))
        rows[0, 0] = 1.0
        problem = at_most(graph, float(attained(graph, domain, rows)[0]), domain)
        evidence = evidence_of(AlphaBounder().bound([problem])[0])
        verifier = make()
        if verifier.refuses(problem) is None:
            assert verifier.run(problem, Context(Budget(1.0), evidence)).verdict is not Verdict.UNSAT
            hold(evidence, problem)


def hold(evidence: Evidence, problem: Problem) -> None:
    values = values_at(problem.graph, sample(problem.domain, 60))
    for bounds in evidence.bounds:
        for node in bounds.lower:
            assert (values[node] >= bounds.lower[node] - 1e-9).all()
            assert (values[node] <= bounds.upper[node] + 1e-9).all()


def test_what_the_evidence_assumes_is_assumed_by_what_follows() -> None:
    problem = at_most(network(), between())
    assumed = Assumptions(problem.condition_sha256)
    evidence = evidence_of(replace(tight(), assumptions=assumed))
    assert run(problem, evidence).verdict is Verdict.UNSAT
    assert {b.assumptions for b in evidence.bounds} == {assumed}


def opposite_pairs() -> Graph:
    rng = np.random.default_rng(3)
    half = rng.normal(size=(20, 4))
    bias = rng.normal(size=20)
    first = (np.concatenate([half, -half]), np.concatenate([bias, -bias]))
    return dense_graph([first, (rng.normal(size=(30, 40)), np.zeros(30)), (rng.normal(size=(1, 30)), [0.0])])


def test_bounds_of_merged_neurons() -> None:
    """What is known of either of two opposite neurons is known of the one that stands for both."""
    graph, domain = opposite_pairs(), Domain(-np.ones(4), np.ones(4))
    problem = at_most(graph, 0.0, domain)
    merged = merge_opposites(graph)
    assert merged.pairs
    known = CrownBounder().bound([problem])[0]
    lower, upper = dict(known.lower), dict(known.upper)
    lower[1] = np.where(
        np.arange(40) < 20, -np.inf, lower[1]
    )  # half of what is known, by the opposites alone
    upper[1] = np.where(np.arange(40) < 20, np.inf, upper[1])
    root_bounds = RootBounds(problem, Space(torch.float64), Budget())
    found = as_intervals(replace(known, lower=lower, upper=upper), merged, root_bounds.program)
    values = values_at(merged.graph, sample(domain, 200))
    assert found.keys() == set(root_bounds.program.before)
    for node, (low, high) in found.items():
        assert bool((low.isfinite() & high.isfinite()).all())
        assert (values[node] >= low.numpy() - 1e-9).all()
        assert (values[node] <= high.numpy() + 1e-9).all()


def test_intervals_are_cast_outward() -> None:
    problem = at_most(network(), 0.0)
    root_bounds = RootBounds(problem, Space(torch.float32), Budget(), tight())
    for node, (low, high) in root_bounds.known.items():
        ends: tuple[Array, Array] = (low[0].double().numpy(), high[0].double().numpy())
        assert (ends[0] <= tight().lower[node]).all()
        assert (ends[1] >= tight().upper[node]).all()
