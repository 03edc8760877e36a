"""Both solvers behind one interface: they stop when told, take any number of threads, and agree."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest

from verifolio.encode.condition import MarginModel, margin_model
from verifolio.encode.rows import encode
from verifolio.model.problem import Domain
from verifolio.plugins.milp.choose import choose_solver
from verifolio.plugins.milp.highs import Highs, Lp
from verifolio.plugins.milp.solver import Solver, SolverSettings, SolveStatus, Watch
from verifolio.testing.generate import Shape, random_graph
from verifolio.vnnlib import make_rows

DEAF = Watch(lambda _, __: False, lambda _: False)


@pytest.fixture(params=["highs", "gurobi"])
def solver(request: pytest.FixtureRequest) -> Solver:
    found, note = choose_solver(request.param)
    if found.name != request.param:
        pytest.skip(note)
    return found


@cache
def target(inputs: int, width: int, depth: int) -> MarginModel:
    """The least output of a random network on a wide box."""
    graph = random_graph(np.random.default_rng(0), Shape(inputs=inputs, width=width, depth=depth, outputs=1))
    domain = Domain(-np.ones(inputs), np.ones(inputs))
    return margin_model(encode(graph, domain), domain, [make_rows([({inputs: 1.0}, 0.0)])], np.inf)


def test_a_feasible_point_that_is_taken_ends_the_search(solver: Solver) -> None:
    seen: list[float] = []

    def take(_: object, objective: float) -> bool:
        seen.append(objective)
        return True

    started = time.process_time()
    model = target(6, 12, 2).model
    result = solver.solve(model, SolverSettings(seconds=60.0), Watch(take, lambda _: False))
    assert result.status is SolveStatus.STOPPED and seen
    assert result.point is not None and result.objective == pytest.approx(seen[-1])
    assert time.process_time() - started < 20.0


def test_a_bound_beyond_what_is_wanted_ends_the_search(solver: Solver) -> None:
    bounds: list[float] = []

    def enough(bound: float) -> bool:
        bounds.append(bound)
        return bound > -1e9

    model = target(12, 24, 3).model
    result = solver.solve(model, SolverSettings(seconds=60.0), Watch(lambda _, __: False, enough))
    assert result.status is SolveStatus.STOPPED
    assert max(bounds) > -1e9


def test_the_time_limit_is_kept(solver: Solver) -> None:
    started = time.process_time()
    result = solver.solve(target(12, 24, 3).model, SolverSettings(seconds=0.5), DEAF)
    assert result.status is SolveStatus.STOPPED
    assert time.process_time() - started < 5.0


def test_the_number_of_threads_may_change_within_a_process(solver: Solver) -> None:
    """HiGHS's pool of threads belongs to the process, and refuses other numbers unless it is renewed."""
    small = target(3, 6, 2).model
    found = [solver.solve(small, SolverSettings(threads=t), DEAF) for t in (1, 2, 1)]
    assert {r.status for r in found} == {SolveStatus.OPTIMAL}
    assert np.ptp([r.objective for r in found]) < 1e-6
    relaxed = [Lp(small, SolverSettings(threads=t)).solve() for t in (2, 1, 2)]
    assert {r.status for r in relaxed} == {SolveStatus.OPTIMAL}


def test_solvers_agree(solver: Solver) -> None:
    small = target(3, 6, 2).model
    mine, theirs = solver.solve(small, SolverSettings(), DEAF), Highs().solve(small, SolverSettings(), DEAF)
    assert mine.objective == pytest.approx(theirs.objective, abs=1e-6)
    assert mine.bound <= mine.objective + 1e-9
