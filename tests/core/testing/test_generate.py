"""Generated problems lie where they claim to lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio.graph.enclosure import enclose
from verifolio.model.answer import Verdict, Witness
from verifolio.model.problem import Problem, dense_rows
from verifolio.testing.generate import KINDS, Kind, Shape, generate, write_problem
from verifolio.testing.regions import TooManyRegions, linear_regions, true_margin
from verifolio.trust.referee import judge_counterexample


def margin_at(problem: Problem, x: np.ndarray) -> float:
    y = enclose(problem.graph, x)[0]
    found = []
    for rows in problem.disjuncts:
        a, b, rhs = dense_rows(rows, len(x), len(y))
        found.append(float((a @ x + b @ y - rhs).max()))
    return min(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [1e-3, -1e-3])
def test_the_least_margin_is_where_it_was_put(kind: Kind, distance: float) -> None:
    rng = np.random.default_rng(11)
    inputs = 4 if kind == "conv" else 2
    shape = Shape(kind, inputs=inputs, width=2 if kind == "maxpool" else 3, depth=1)
    made = generate(rng, shape, distance, disjuncts=2, rows=2)
    assert made.point is not None
    assert margin_at(made.problem, made.point) == pytest.approx(-distance, abs=1e-7)
    assert true_margin(made.problem)[0] == pytest.approx(-distance, abs=1e-7)
    samples = rng.uniform(made.problem.domain.lower, made.problem.domain.upper, (500, inputs))
    assert min(margin_at(made.problem, x) for x in samples) >= -distance - 1e-7
    assert made.expected is (Verdict.SAT if distance > 0 else Verdict.UNSAT)


def test_files_hold_the_same_problem(tmp_path: Path) -> None:
    made = generate(np.random.default_rng(4), Shape(), 0.1, disjuncts=2, cuts=1)
    query = write_problem(made.problem, tmp_path)
    assert made.point is not None
    assert isinstance(judge_counterexample(query, made.point), Witness)
    (problem,) = query.problems
    assert true_margin(problem)[0] == pytest.approx(-0.1, abs=1e-7)


def test_large_networks_are_not_enumerated() -> None:
    made = generate(np.random.default_rng(0), Shape(inputs=6, width=12, depth=2), None)
    assert made.expected is Verdict.UNKNOWN
    with pytest.raises(TooManyRegions, match="more than 5"):
        linear_regions(made.problem, limit=5)
