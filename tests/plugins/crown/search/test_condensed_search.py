"""Branching on inputs with a network per box: verdicts at attained values, against the box engine by tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from verifolio.graph import Graph
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.kernel.boxes import kernel_applies
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.inputs.condensed_search import CondensedSearch, condensed, saving
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.realistic import NETWORKS, layered
from verifolio.testing.reference import attained
from verifolio.vnnlib import make_rows

KINDS = ("few", "conv", "residual", "abs", "joined")
RADIUS = 2.0  # wide enough for several boxes


def few(rng: np.random.Generator) -> Graph:
    return layered(14, 60, 40, 40, 3)(rng)


def make(kind: str, seed: int, radius: float) -> tuple[Graph, Domain]:
    rng = np.random.default_rng(seed)
    graph = few(rng) if kind == "few" else NETWORKS[kind](rng)
    centre = rng.normal(size=graph.input_size)
    reach = np.zeros(graph.input_size)
    reach[:5] = radius  # the other inputs are fixed
    return graph, Domain(centre - reach, centre + reach)


def below(graph: Graph, domain: Domain, thresholds: tuple[float, float]) -> Problem:
    """Two disjuncts: y_0 - y_2 <= t, and a conjunction of the same and a row over an input that always holds."""
    n = graph.input_size
    row = {n: 1.0, n + 2: -1.0}
    always = ({0: 1.0}, float(domain.upper[0]) + 1)
    return Problem(
        graph, domain, (make_rows([(row, thresholds[0])]), make_rows([(row, thresholds[1]), always]))
    )


def search(problem: Problem, seconds: float = 20.0) -> tuple[CondensedSearch, Verdict]:
    context = Context(Budget(seconds), check=checker(problem))
    made = CondensedSearch(problem, context)
    return made, made.run().verdict


@pytest.mark.parametrize("kind", KINDS)
def test_thresholds_at_attained_values(kind: str) -> None:
    """At a value that is attained nothing is proved; well below it the search ends with a proof."""
    graph, domain = make(kind, 1, RADIUS)
    outputs = np.zeros((1, graph.output_size))
    outputs[0, [0, 2]] = 1, -1
    reached = float(attained(graph, domain, outputs)[0])
    at = below(graph, domain, (reached, reached))
    assert search(at, 3.0)[1] is not Verdict.UNSAT
    lower = reached - 0.05 * (1 + abs(reached))
    made, verdict = search(below(graph, domain, (lower, lower)))
    assert verdict is Verdict.UNSAT and made.boxes > 1
    assert made.open_share == pytest.approx(0)


def test_finds_what_there_is() -> None:
    graph, domain = make("few", 2, 0.3)
    outputs = np.zeros((1, graph.output_size))
    outputs[0, [0, 2]] = 1, -1
    reached = float(attained(graph, domain, outputs)[0])
    verdict = search(below(graph, domain, (reached + 0.1 * (1 + abs(reached)), reached - 1e3)))[1]
    assert verdict is Verdict.SAT


def test_one_disjunct_left_open_is_no_proof() -> None:
    """The first disjunct is impossible, the second is met: closing one must not close the other."""
    graph, domain = make("few", 3, 0.3)
    outputs = np.zeros((1, graph.output_size))
    outputs[0, [0, 2]] = 1, -1
    reached = float(attained(graph, domain, outputs)[0])
    problem = below(graph, domain, (reached - 1e3, reached + 1e-6))
    context = Context(Budget(3.0), check=lambda _: False)  # nobody accepts a point
    assert CondensedSearch(problem, context).run().verdict is Verdict.UNKNOWN


def test_out_of_time_says_what_is_open() -> None:
    graph, domain = make("conv", 1, 1.0)
    problem = below(graph, domain, (0.0, 0.0))
    outcome = CondensedSearch(problem, Context(Budget(0.0), check=checker(problem))).run()
    assert outcome.verdict is Verdict.UNKNOWN
    assert "takes too long" in outcome.reason


def test_when_it_is_planned() -> None:
    """For 13 to 16 inputs that vary, a network without a kernel, a box, and nobody who wants a certificate."""
    rng = np.random.default_rng(0)
    graph = layered(140, 30, 20, 3)(rng)
    reach = np.zeros(graph.input_size)
    reach[:14] = 0.1
    domain = Domain(-reach, reach)
    problem = Problem(graph, domain, (make_rows([({graph.input_size: 1.0}, 0.0)]),))
    context = Context(Budget(1.0), check=checker(problem))

    def planned(options: CrownOptions, asked: Problem) -> list[str]:
        return [getattr(f, "__name__", "") for f in Crown(options).plan(asked, context)]

    assert not kernel_applies(problem)
    assert planned(CrownOptions(), problem)[0] == "_on_condensed_boxes"
    assert "_on_condensed_boxes" not in planned(CrownOptions(trace="folder"), problem)
    reach[:17] = 0.1
    wider = replace(problem, domain=Domain(-reach, reach))
    assert "_on_condensed_boxes" not in planned(CrownOptions(), wider)


def test_the_ascent_sees_the_same_network() -> None:
    """The matrices in float32 give the bound that float64 proves, and every input that matters has a saving."""
    graph, domain = make("few", 4, 0.3)
    problem = below(graph, domain, (0.0, 0.0))
    made = CondensedSearch(problem, Context(Budget(0.5), check=lambda _: False))
    made.run()
    box = max((w.network for w in made.waiting), key=lambda network: network.kept.count)
    net = condensed(box)
    passed = box.kept.lower(box.goal)
    phase = torch.zeros(len(box.goal), box.kept.count)
    alpha = torch.cat([k.lower for k in box.kept.layers]).float().expand(len(box.goal), -1)
    bound = net.backward(net.lines(phase), alpha, torch.zeros_like(alpha), torch.eye(len(box.goal))).bound
    assert torch.allclose(bound.double(), passed.bound, atol=1e-3, rtol=1e-3)
    assert (saving(box, passed)[:5] > 0).all()
