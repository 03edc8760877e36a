"""Every form that `milp` turns into rows, against enumeration: disjunctions, max-pool, clip, balls, input rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from verifolio.encode.heads import clamp_head
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.milp.options import MilpOptions
from verifolio.plugins.milp.verifier import Milp
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.generate import Shape, generate, random_condition, random_graph, shifted
from verifolio.testing.regions import true_margin
from verifolio.vnnlib import make_rows

DISTANCES = (1e-5, 1e-2, -1e-5, -1e-2)


def verdict(problem: Problem, **options: object) -> Verdict:
    context = Context(Budget(30.0), bounders=current_plugins().all_bounders(), check=checker(problem))
    return Milp(MilpOptions(**options)).run(problem, context).verdict  # type: ignore[arg-type]


def truth(distance: float) -> Verdict:
    return Verdict.SAT if distance > 0 else Verdict.UNSAT


@pytest.mark.parametrize("distance", DISTANCES)
def test_one_model_for_several_disjuncts(distance: float) -> None:
    made = generate(np.random.default_rng(11), Shape(width=4), distance, disjuncts=4, rows=2)
    for disjuncts in ("one", "joint"):
        assert verdict(made.problem, disjuncts=disjuncts) is truth(distance)


@pytest.mark.parametrize("distance", DISTANCES)
def test_max_pool(distance: float) -> None:
    made = generate(np.random.default_rng(12), Shape("maxpool", width=3, depth=1), distance, rows=2)
    assert verdict(made.problem) is truth(distance)


@pytest.mark.parametrize("distance", DISTANCES)
def test_clip(distance: float) -> None:
    rng = np.random.default_rng(13)
    graph = clamp_head(random_graph(rng, Shape(width=4, depth=1)), -0.5, 0.5)
    domain = Domain(-np.ones(2), np.ones(2))
    problem = Problem(graph, domain, (make_rows([({2: 1.0, 3: -0.75}, 0.0)]),))
    margin, _ = true_margin(problem)
    assert verdict(shifted(problem, margin, distance)) is truth(distance)


@pytest.mark.parametrize("distance", DISTANCES)
def test_an_l1_ball_is_the_same_as_its_four_sides(distance: float) -> None:
    rng = np.random.default_rng(14)
    graph = random_graph(rng, Shape(inputs=2, width=4, depth=1))
    centre, radius = np.array([0.25, -0.5]), 0.75
    sides = [({0: s, 1: t}, s * centre[0] + t * centre[1] + radius) for s in (1.0, -1.0) for t in (1.0, -1.0)]
    box = Domain(centre - radius, centre + radius, make_rows(sides))
    problem = Problem(graph, box, random_condition(rng, graph, 2))
    problem = shifted(problem, true_margin(problem)[0], distance)
    ball = replace(box, rows=None, ball=Ball(centre, radius, 1.0))
    assert verdict(problem) is truth(distance)
    assert verdict(problem.with_domain(ball)) is truth(distance)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("search", ["tree", "solver"])
def test_linear_input_rows(distance: float, search: str) -> None:
    made = generate(np.random.default_rng(15), Shape(inputs=3, width=4, depth=1), distance, cuts=2)
    assert verdict(made.problem, search=search, solver="highs") is truth(distance)


@pytest.mark.parametrize("distance", (1e-3, -1e-3))
def test_boxes_and_tree_agree(distance: float) -> None:
    """A network that the first short tree does not decide is cut into boxes, or not, as `split` says."""
    made = generate(np.random.default_rng(16), Shape(inputs=2, width=7, depth=2), distance, rows=1)
    for split in (0, 16):
        assert verdict(made.problem, split=split) is truth(distance)
