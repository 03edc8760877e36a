"""Searches where all but a few inputs are fixed: verdicts at attained values, on the numbers as written."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verifolio.graph import Conv, Dense, Graph, GraphBuilder, Relu
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import Query
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.inputs import fixed_search
from verifolio.plugins.crown.search.inputs.condensed_search import CondensedSearch
from verifolio.plugins.crown.search.inputs.fixed_search import FixedSearch, fixed_applies, written_box
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.attained import attained as exactly
from verifolio.testing.check import checker
from verifolio.testing.reference import attained
from verifolio.vnnlib import make_rows
from verifolio.vnnlib.exact import exact_numbers

VARY = 4


def deep(layers: int, side: int = 8, channels: int = 8, seed: int = 0) -> Graph:
    """Convolutions with random weights, whose absolute row sums multiply errors by some ten per layer."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(side * side)
    x, depth = 0, 1
    for _ in range(layers):
        weight = rng.normal(size=(channels, depth, 3, 3)) * np.sqrt(2 / (9 * depth))
        shape, depth = (depth, side, side), channels
        op = Conv(
            channels * side**2,
            rng.normal(size=channels) / 10,
            weight,
            shape,
            (channels, side, side),
            (1, 1),
            (1, 1, 1, 1),
        )
        x = builder.add(Relu(op.size), builder.add(op, x))
    last = Dense(3, rng.normal(size=3), rng.normal(size=(3, channels * side**2)) / 10)
    return builder.finish(builder.add(last, x))


def written(graph: Graph, radius: float, seed: int) -> Domain:
    """Fixed inputs are decimals that are no doubles; four vary."""
    rng = np.random.default_rng(seed)
    centre = [Fraction(int(v), 10**6) for v in rng.integers(1, 10**6, graph.input_size)]
    reach = [Fraction(radius if i < VARY else 0) for i in range(graph.input_size)]
    lower, upper = (exact_numbers([c + s * r for c, r in zip(centre, reach, strict=True)]) for s in (-1, 1))
    return Domain(lower.below, upper.above, written=(lower, upper))


def below(graph: Graph, domain: Domain, threshold: float) -> Problem:
    n = graph.input_size
    return Problem(graph, domain, (make_rows([({n: 1.0, n + 2: -1.0}, threshold)]),))


def least(graph: Graph, domain: Domain) -> float:
    return float(attained(graph, domain, np.array([[1.0, 0.0, -1.0]]))[0])


def search(problem: Problem, seconds: float = 20.0) -> tuple[FixedSearch, Verdict, Context]:
    context = Context(Budget(seconds), check=checker(problem))
    made = FixedSearch(problem, context)
    return made, made.run().verdict, context


@pytest.mark.parametrize("radius", [0.02, 0.3])
def test_thresholds_at_attained_values(radius: float) -> None:
    graph = deep(3)
    domain = written(graph, radius, 1)
    reached = least(graph, domain)
    assert search(below(graph, domain, reached), 3.0)[1] is not Verdict.UNSAT
    made, verdict, context = search(below(graph, domain, reached - 0.02 * (1 + abs(reached))))
    assert verdict is Verdict.UNSAT
    assert made.boxes == 1 or radius > 0.1
    assert not context.evidence.refuted  # the domain's doubles are more than what was written
    assert search(below(graph, domain, reached + 0.01))[1] is Verdict.SAT


def test_single_points_and_numbers_out_of_range() -> None:
    """Other searches follow: nothing is raised."""
    graph = deep(2)
    point = exact_numbers([Fraction(k % 7, 8) for k in range(graph.input_size)])
    domain = Domain(point.below, point.above, written=(point, point))
    (*_, last) = exactly(graph, domain.lower)
    value = float(last.lower[0] - last.lower[2])
    assert search(below(graph, domain, value), 3.0)[1] is not Verdict.UNSAT
    assert search(below(graph, domain, value - 1e-9), 3.0)[1] is Verdict.UNSAT
    for name, factor in (("weight", 1e140), ("bias", 1e308)):
        nodes = tuple(
            replace(n, op=replace(n.op, **{name: getattr(n.op, name) * factor}))
            if isinstance(n.op, Conv)
            else n
            for n in graph.nodes
        )
        assert search(below(replace(graph, nodes=nodes), domain, 0.0), 3.0)[1] is Verdict.UNKNOWN


def test_what_grows_does_not_explode() -> None:
    """Twenty layers: other bounds lose everything to rounding and to decimals that are no doubles."""
    graph = deep(20)
    domain = written(graph, 1e-6, 2)
    (*_, last) = exactly(graph, (domain.lower + domain.upper) / 2)
    value = float(last.lower[0] - last.lower[2])
    assert search(below(graph, domain, value + 1e-9), 3.0)[1] is not Verdict.UNSAT
    problem = below(graph, domain, value - 1e-4)
    assert search(problem)[1] is Verdict.UNSAT
    plain = CondensedSearch(problem, Context(Budget(20.0), check=checker(problem)))
    assert plain.run().verdict is not Verdict.UNSAT and plain.bound < -1


def test_it_is_planned_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = deep(3)
    domain = written(graph, 0.02, 1)
    problem = below(graph, domain, 0.0)
    assert not fixed_applies(problem)  # small networks have other ways
    monkeypatch.setattr(fixed_search, "LARGE", 1)
    assert fixed_applies(problem)
    assert not fixed_applies(problem.with_domain(Domain(domain.lower, domain.upper)))
    assert not fixed_applies(problem.with_domain(replace(domain, upper=domain.upper + 0.1)))
    assert written_box(replace(domain, lower=domain.lower + 1e-9)) is None
    rows = make_rows([({0: 1.0, graph.input_size: 1.0}, 0.0)])
    assert not fixed_applies(replace(problem, disjuncts=(rows,)))
    found = Crown(CrownOptions()).run(
        below(graph, domain, least(graph, domain) - 0.1), Context(Budget(20.0), check=lambda _: False)
    )
    assert found.verdict is Verdict.UNSAT and found.stats["domains"] == 1


def test_queries_know_what_was_written(tmp_path: Path) -> None:
    from verifolio.testing.networks import plus_minus, saved

    network = saved(plus_minus, tmp_path / "net.onnx").path
    text = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
    text += (
        "(assert (>= X_0 0.1))(assert (<= X_0 0.1))(assert (>= X_1 -1))(assert (<= X_1 1))(assert (>= Y_0 3))"
    )
    (tmp_path / "p.vnnlib").write_text(text)
    (problem,) = Query.from_files([network], tmp_path / "p.vnnlib").problems
    box = written_box(problem.domain)
    assert box is not None
    assert [list(side) for side in box] == [[Fraction(1, 10), -1], [Fraction(1, 10), 1]]
    assert problem.domain.lower[0] < problem.domain.upper[0]
