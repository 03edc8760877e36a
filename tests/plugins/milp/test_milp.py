"""The verifier `milp` agrees with the truth, stops when told, and says what it cannot do."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from verifolio.errors import InputError
from verifolio.graph import Elementwise, Graph, GraphBuilder
from verifolio.graph.enclosure import enclose
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.bounder import Bounders
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.milp.decide import encode_tightly
from verifolio.plugins.milp.options import MilpOptions
from verifolio.plugins.milp.verifier import Milp
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.generate import KINDS, Shape, generate, random_domain, random_graph
from verifolio.testing.networks import dense_graph
from verifolio.vnnlib import make_rows


def context(problem: Problem, seconds: float = 30.0, **more: object) -> Context:
    return Context(budget=Budget(seconds), check=checker(problem), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize(
    ("disjuncts", "search"), [("one", "tree"), ("joint", "tree"), ("one", "solver"), ("joint", "solver")]
)
def test_agrees_with_the_truth(seed: int, disjuncts: str, search: str) -> None:
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % 4]
    distance = float(rng.choice([1e-6, 1e-4, 1e-2, 1.0])) * (1 if seed % 2 else -1)
    shape = Shape(
        kind, inputs=4 if kind == "conv" else 2, width=2 if kind == "maxpool" else 3, depth=1 + seed % 2
    )
    made = generate(rng, shape, distance, disjuncts=1 + seed % 3, rows=1 + seed % 2, cuts=seed % 3 // 2)
    options = MilpOptions(search=search, solver="highs", disjuncts=disjuncts)  # type: ignore[arg-type]
    outcome = Milp(options).run(made.problem, context(made.problem))
    assert outcome.verdict is made.expected, outcome.reason


@pytest.mark.parametrize("search", ["tree", "solver"])
@pytest.mark.parametrize("distance", [1e-3, -1e-3])
def test_every_proof_is_certified(distance: float, search: str) -> None:
    made = generate(np.random.default_rng(8), Shape(width=4), distance, disjuncts=2)
    options = MilpOptions(solver="highs", search=search)  # type: ignore[arg-type]
    outcome = Milp(options).run(made.problem, context(made.problem))
    assert outcome.verdict is made.expected
    if distance < 0:
        assert "certified" in str(outcome.stats["proof"])
        assert "tolerance" not in str(outcome.stats["proof"])


@pytest.mark.parametrize("search", ["tree", "solver"])
def test_a_solver_is_not_believed_where_big_ms_are_huge(search: str) -> None:
    """Neurons that differ by factors of 1e10: HiGHS excludes a value that a point of the box takes."""
    rng, inputs, width = np.random.default_rng(7), 6, 12
    scales = [1e5 ** rng.uniform(-1, 1, size=(width, 1)) for _ in range(2)]
    first = scales[0] * rng.normal(size=(width, inputs)), rng.normal(size=width)
    second = scales[1] * rng.normal(size=(width, width)), rng.normal(size=width)
    graph = dense_graph([first, second, (rng.normal(size=(1, width)), [0.0])])
    taken = min(float(enclose(graph, x)[0][0]) for x in rng.uniform(-1, 1, size=(300, inputs)))
    rows = make_rows([({inputs: 1.0}, taken + 1e-6 * abs(taken))])
    problem = Problem(graph, Domain(-np.ones(inputs), np.ones(inputs)), (rows,))
    options = MilpOptions(search=search, solver="highs", tighten=0.0)  # type: ignore[arg-type]
    quiet = Context(budget=Budget(5.0), bounders=current_plugins().all_bounders(), check=lambda _: False)
    assert Milp(options).run(problem, quiet).verdict is not Verdict.UNSAT


def test_gurobi_is_used_where_it_fits_and_agrees() -> None:
    pytest.importorskip("gurobipy", reason="gurobipy is an extra")
    from verifolio.plugins.milp.gurobi import licence_problem

    if licence_problem() is not None:
        pytest.skip(f"no Gurobi licence: {licence_problem()}")
    for seed, distance in ((0, 1e-3), (1, -1e-3), (2, -0.1)):
        made = generate(np.random.default_rng(seed), Shape(width=4), distance)
        options = MilpOptions(search="solver", solver="gurobi", tighten=0.0)
        outcome = Milp(options).run(made.problem, context(made.problem))
        assert outcome.verdict is made.expected
        assert outcome.stats["solver"] in ("gurobi", "relaxation only")


def test_a_model_beyond_the_free_licence_falls_back_with_the_reason() -> None:
    pytest.importorskip("gurobipy", reason="gurobipy is an extra")
    from verifolio.plugins.milp.gurobi import Gurobi, _size_limit, licence_problem

    if licence_problem() is not None or _size_limit() is None:
        pytest.skip("needs exactly the size-limited licence")
    rng = np.random.default_rng(0)
    graph = random_graph(rng, Shape(inputs=3, width=1500, depth=1, outputs=1))
    problem = Problem(graph, Domain(np.full(3, -2.0), np.full(3, 2.0)), (make_rows([({3: 1.0}, -2.0)]),))
    options = MilpOptions(search="solver", solver="gurobi", tighten=0.0)
    outcome = Milp(options).run(problem, replace(context(problem, 4.0), check=lambda _: False))
    assert outcome.verdict in (Verdict.TIMEOUT, Verdict.UNSAT, Verdict.UNKNOWN)
    assert outcome.stats["solver"] == "highs"
    assert "gurobi" in str(outcome.stats["note"])
    assert Gurobi.name == "gurobi"


def test_evidence_makes_big_m_tighter() -> None:
    bounders = current_plugins().all_bounders()
    if not {"interval", "crown"} <= set(bounders):
        pytest.skip("needs the bounders interval and crown")
    rng = np.random.default_rng(1)
    graph = random_graph(rng, Shape(inputs=4, width=12, depth=3))
    domain = Domain(np.full(4, -0.1), np.full(4, 0.1))
    problem = Problem(graph, domain, (make_rows([({4: 1.0}, -100.0)]),))
    options = MilpOptions(solver="highs", bounder="interval", tighten=0.0)
    alone = Milp(options).run(problem, context(problem, bounders=bounders))
    evidence = Evidence()
    evidence.add_bounds(bounders["crown"].bound([problem])[0])
    informed = Milp(options).run(problem, context(problem, bounders=bounders, evidence=evidence))
    assert float(informed.stats["big_m"]) < 0.9 * float(alone.stats["big_m"])
    assert int(informed.stats["unstable"]) <= int(alone.stats["unstable"])


def test_linear_programs_tighten_and_feed_the_evidence() -> None:
    rng = np.random.default_rng(2)
    graph = random_graph(rng, Shape(inputs=3, width=8, depth=2))
    problem = Problem(graph, random_domain(rng, 3), (make_rows([({3: 1.0}, -100.0)]),))
    loose = encode_tightly(problem, context(problem), None, MilpOptions(tighten=0.0))
    evidence = Evidence()
    tight = encode_tightly(problem, context(problem, evidence=evidence), None, MilpOptions())
    assert tight.big_m < loose.big_m
    (bounds,) = evidence.bounds
    for x in rng.uniform(problem.domain.lower, problem.domain.upper, (200, 3)):
        prefix = Graph(graph.nodes, max(bounds.lower))
        value = enclose(prefix, x)[0]
        assert bool((value >= bounds.lower[prefix.output] - 1e-9).all())
        assert bool((value <= bounds.upper[prefix.output] + 1e-9).all())


def test_what_rests_on_another_tools_bounds_is_theirs() -> None:
    """Linear programs that begin with bounds of another tool leave nothing in the evidence."""
    rng = np.random.default_rng(2)
    graph = random_graph(rng, Shape(inputs=3, width=8, depth=2))
    problem = Problem(graph, random_domain(rng, 3), (make_rows([({3: 1.0}, -100.0)]),))
    began = current_plugins().all_bounders()["interval"].bound([problem])[0]
    for foreign in (False, True):
        evidence = Evidence()
        given = replace(began, foreign=foreign)
        encode_tightly(problem, context(problem, evidence=evidence), given, MilpOptions())
        assert bool(evidence.bounds) is not foreign


def test_an_unknown_bounder_is_named() -> None:
    made = generate(np.random.default_rng(0), Shape(), None)
    with pytest.raises(InputError, match="bounder"):
        Milp(MilpOptions(bounder="nobody")).run(made.problem, context(made.problem, bounders=Bounders({})))


# bad cases


def test_refusals_name_the_reason() -> None:
    builder = GraphBuilder(1)
    smooth = builder.finish(builder.add(Elementwise(1, "tanh"), 0))
    rows = (make_rows([({1: 1.0}, 0.0)]),)
    unit = Domain(np.zeros(1), np.ones(1))
    assert "tanh" in str(Milp().refuses(Problem(smooth, unit, rows)))
    plain = dense_graph([([[1.0]], [0.0])])
    open_domain = Domain(np.zeros(1), np.full(1, np.inf))
    assert "unbounded" in str(Milp().refuses(Problem(plain, open_domain, rows)))
    l2 = replace(unit, ball=Ball(np.zeros(1), 1.0, 2.0))
    assert "L2" in str(Milp().refuses(Problem(plain, l2, rows)))
    assert Milp().refuses(Problem(plain, unit, rows)) is None


def test_empty_and_infeasible_domains_are_proofs() -> None:
    graph = random_graph(np.random.default_rng(0), Shape(inputs=2))
    rows = (make_rows([({2: 1.0}, 100.0)]),)
    empty = Problem(graph, Domain(np.ones(2), np.zeros(2)), rows)
    assert Milp().run(empty, context(empty)).verdict is Verdict.UNSAT
    cut = make_rows([({0: 1.0, 1: 1.0}, -0.1)])
    infeasible = Problem(graph, Domain(np.zeros(2), np.ones(2), cut), rows)
    assert Milp().run(infeasible, context(infeasible)).verdict is Verdict.UNSAT
    ball = Problem(graph, Domain(np.zeros(2), np.ones(2), ball=Ball(np.full(2, -1.0), 1.5, 1.0)), rows)
    assert Milp().run(ball, context(ball)).verdict is Verdict.UNSAT


def test_conditions_that_are_always_or_never_true() -> None:
    graph = random_graph(np.random.default_rng(0), Shape(inputs=2))
    domain = Domain(np.zeros(2), np.ones(2))
    always = Problem(graph, domain, (make_rows([]),))
    assert Milp().run(always, context(always)).verdict is Verdict.SAT
    never = Problem(graph, domain, ())
    assert Milp().run(never, context(never)).verdict is Verdict.UNSAT


def test_a_tie_is_never_a_proof() -> None:
    # relu(x) >= 0 with equality on half the domain: y <= 0 is satisfiable, y <= -1e-12 is not
    graph = dense_graph([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    domain = Domain(-np.ones(1), np.ones(1))
    tie = Problem(graph, domain, (make_rows([({1: 1.0}, 0.0)]),))
    assert Milp().run(tie, replace(context(tie), check=lambda _: False)).verdict is Verdict.UNKNOWN
    assert Milp().run(tie, context(tie)).verdict is Verdict.SAT
    near = Problem(graph, domain, (make_rows([({1: 1.0}, -1e-12)]),))
    assert Milp().run(near, context(near)).verdict in (Verdict.UNSAT, Verdict.UNKNOWN)


@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e9])
def test_ill_scaled_weights_never_make_a_wrong_answer(scale: float) -> None:
    # y = relu(s x) - relu(s x - s/2): the maximum s/2 is attained on [1/2, 1]
    graph = dense_graph([([[scale], [scale]], [0.0, -scale / 2]), ([[1.0, -1.0]], [0.0])])
    domain = Domain(np.zeros(1), np.ones(1))
    for factor, right in ((0.45, Verdict.SAT), (0.55, Verdict.UNSAT)):
        problem = Problem(graph, domain, (make_rows([({1: -1.0}, -factor * scale)]),))
        outcome = Milp().run(problem, context(problem))
        assert outcome.verdict in (right, Verdict.UNKNOWN), outcome


def hard_problem() -> Problem:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, Shape(inputs=30, width=60, depth=5, outputs=1))
    return Problem(graph, Domain(-np.ones(30), np.ones(30)), (make_rows([({30: 1.0}, -60.0)]),))


def test_the_clock_is_honoured() -> None:
    problem = hard_problem()
    started = time.monotonic()
    quiet = replace(context(problem, 1.5), check=lambda _: False)
    outcome = Milp(MilpOptions(solver="highs")).run(problem, quiet)
    assert outcome.verdict is Verdict.TIMEOUT
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize(("search", "solver"), [("tree", "auto"), ("solver", "highs"), ("solver", "auto")])
def test_cancelling_stops_the_solver_promptly(search: str, solver: str) -> None:
    problem = hard_problem()
    cancelled = threading.Event()
    threading.Timer(1.0, cancelled.set).start()
    started = time.monotonic()
    quiet = Context(budget=Budget(60.0, stop=cancelled.is_set), check=lambda _: False)
    options = MilpOptions(search=search, solver=solver, tighten=0.2)  # type: ignore[arg-type]
    outcome = Milp(options).run(problem, quiet)
    assert outcome.verdict is Verdict.CANCELLED
    assert time.monotonic() - started < 4.0


def solve_forever(number: int) -> str:
    """What a worker process runs until it is killed."""
    problem = hard_problem()
    quiet = replace(context(problem, 600.0), check=lambda _: False)
    return str(Milp(MilpOptions(solver="highs", tighten=0.0)).run(problem, quiet).verdict) + str(number)


def test_a_killed_solver_leaves_nothing_behind() -> None:
    import multiprocessing

    worker = multiprocessing.get_context("fork").Process(target=solve_forever, args=(1,))
    worker.start()
    time.sleep(1.0)
    worker.kill()
    worker.join(5.0)
    assert worker.exitcode is not None and worker.exitcode < 0
    made = generate(np.random.default_rng(3), Shape(), -0.1)
    assert Milp().run(made.problem, context(made.problem)).verdict is Verdict.UNSAT


def test_margins_of_another_condition_prove_nothing() -> None:
    """What is known about a threshold out of reach says nothing about one that is attained."""
    rng, box = np.random.default_rng(0), Domain(np.full(4, -0.3), np.full(4, 0.3))
    graph = dense_graph([(rng.normal(size=(20, 4)), rng.normal(size=20)), (rng.normal(size=(2, 20)), [0, 0])])
    value, _ = enclose(graph, np.zeros(4))
    gap = float(value[0] - value[1])
    far = Problem(graph, box, (make_rows([({4: 1.0, 5: -1.0}, gap - 50.0)]),))
    near = Problem(graph, box, (make_rows([({4: 1.0, 5: -1.0}, gap + 0.1)]),))
    evidence = Evidence()
    evidence.add_bounds(current_plugins().all_bounders()["crown"].bound([far])[0])
    alone = Context(budget=Budget(10.0), evidence=evidence)  # without bounders, and nothing replays
    assert Milp().run(near, alone).verdict is not Verdict.UNSAT
    assert Milp().run(far, alone).verdict is Verdict.UNSAT
