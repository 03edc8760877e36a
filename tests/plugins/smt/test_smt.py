"""The verifier `smt` is exact: ties, strict rows and tiny distances are decided, and it stops when told."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from verifolio.graph import Dense, Elementwise, Graph, GraphBuilder, Relu
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.bounder import Bounder, Bounders
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.smt.verifier import Smt, SmtOptions
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.generate import KINDS, Shape, generate, random_graph
from verifolio.vnnlib import Rows, make_rows


def context(problem: Problem, seconds: float = 20.0) -> Context:
    return Context(budget=Budget(seconds), check=checker(problem))


def relu_graph() -> Graph:
    """y = relu(x)."""
    builder = GraphBuilder(1)
    return builder.finish(builder.add(Relu(1), 0))


@pytest.mark.parametrize("seed", range(16))
def test_agrees_with_the_truth(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    kind = KINDS[seed % 4]
    distance = float(rng.choice([1e-6, 1e-4, 1e-2, 1.0])) * (1 if seed % 2 else -1)
    shape = Shape(
        kind, inputs=4 if kind == "conv" else 2, width=2 if kind == "maxpool" else 3, depth=1 + seed % 2
    )
    made = generate(rng, shape, distance, disjuncts=1 + seed % 3, rows=1 + seed % 2, cuts=seed % 3 // 2)
    outcome = Smt().run(made.problem, context(made.problem))
    assert outcome.verdict is made.expected, outcome.reason


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (make_rows([({1: 1.0}, 0.0)]), Verdict.SAT),
        (make_rows([({1: 1.0}, 0.0)], strict=True), Verdict.UNSAT),
        (make_rows([({1: 1.0}, Fraction(-1, 10**40))]), Verdict.UNSAT),
        (make_rows([({1: -1.0}, -1.0)]), Verdict.SAT),
        (make_rows([({1: -1.0}, -1.0)], strict=True), Verdict.UNSAT),
    ],
)
def test_ties_and_strict_rows_are_exact(rows: Rows, verdict: Verdict) -> None:
    problem = Problem(relu_graph(), Domain(-np.ones(1), np.ones(1)), (rows,))
    assert Smt().run(problem, context(problem)).verdict is verdict


def test_unbounded_inputs_are_no_obstacle() -> None:
    problem = Problem(
        relu_graph(), Domain(np.full(1, -np.inf), np.full(1, np.inf)), (make_rows([({1: -1.0}, -1e6)]),)
    )
    assert Smt().refuses(problem) is None
    assert Smt().run(problem, context(problem)).verdict is Verdict.SAT
    below = replace(problem, disjuncts=(make_rows([({1: 1.0}, -1.0)]),))
    assert Smt().run(below, context(below)).verdict is Verdict.UNSAT


def test_an_exact_point_that_does_not_replay_is_said_to_be_one() -> None:
    problem = Problem(relu_graph(), Domain(-np.ones(1), np.ones(1)), (make_rows([({1: 1.0}, 0.0)]),))
    outcome = Smt().run(problem, replace(context(problem), check=lambda _: False))
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.stats["exact"] == "sat"
    assert "no float32 point" in outcome.reason


def test_l1_balls_are_exact() -> None:
    builder = GraphBuilder(2)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), 0))
    ball = Ball(np.zeros(2), 1.0, 1.0)
    domain = Domain(np.full(2, -5.0), np.full(2, 5.0), ball=ball)
    touching = Problem(graph, domain, (make_rows([({2: -1.0}, -1.0)]),))
    beyond = Problem(graph, domain, (make_rows([({2: -1.0}, -1.0 - 2**-40)]),))
    assert Smt().run(touching, context(touching)).verdict is Verdict.SAT
    assert Smt().run(beyond, context(beyond)).verdict is Verdict.UNSAT


def test_refusals_name_the_reason() -> None:
    builder = GraphBuilder(1)
    smooth = builder.finish(builder.add(Elementwise(1, "exp"), 0))
    builder = GraphBuilder(1)
    noisy = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 1)), np.full((1, 1), 1e-9)), 0))
    unit, rows = Domain(np.zeros(1), np.ones(1)), (make_rows([({1: 1.0}, 0.0)]),)
    assert "exp" in str(Smt().refuses(Problem(smooth, unit, rows)))
    assert "error" in str(Smt().refuses(Problem(noisy, unit, rows)))
    l2 = replace(unit, ball=Ball(np.zeros(1), 1.0, 2.0))
    assert "L2" in str(Smt().refuses(Problem(relu_graph(), l2, rows)))
    small = Smt(SmtOptions(max_neurons=0))
    assert "max_neurons" in str(small.refuses(Problem(relu_graph(), unit, rows)))


def test_too_many_open_phases_are_given_up_early() -> None:
    graph = random_graph(np.random.default_rng(0), Shape(inputs=5, width=60, depth=3))
    problem = Problem(graph, Domain(-np.ones(5), np.ones(5)), (make_rows([({5: 1.0}, -50.0)]),))
    started = time.monotonic()
    outcome = Smt().run(problem, context(problem))
    assert outcome.verdict is Verdict.UNKNOWN
    assert "max_open" in outcome.reason
    assert time.monotonic() - started < 5.0


def test_empty_domains_and_conditions() -> None:
    rows = (make_rows([({1: 1.0}, 5.0)]),)
    empty = Problem(relu_graph(), Domain(np.ones(1), np.zeros(1)), rows)
    assert Smt().run(empty, context(empty)).verdict is Verdict.UNSAT
    cut = Problem(relu_graph(), Domain(np.zeros(1), np.ones(1), make_rows([({0: 1.0}, -1e-30)])), rows)
    assert Smt().run(cut, context(cut)).verdict is Verdict.UNSAT
    always = Problem(relu_graph(), Domain(np.zeros(1), np.ones(1)), (make_rows([]),))
    assert Smt().run(always, context(always)).verdict is Verdict.SAT


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_ill_scaled_weights_do_not_matter(scale: float) -> None:
    builder = GraphBuilder(1)
    hidden = builder.add(Dense(2, np.array([0.0, -scale / 2]), np.full((2, 1), scale)), 0)
    out = Dense(1, np.zeros(1), np.array([[1.0, -1.0]]))
    graph = builder.finish(builder.add(out, builder.add(Relu(2), hidden)))
    for factor, right in ((0.5, Verdict.SAT), (0.5 + 2**-50, Verdict.UNSAT)):
        problem = Problem(
            graph, Domain(np.zeros(1), np.ones(1)), (make_rows([({1: -1.0}, -factor * scale)]),)
        )
        outcome = Smt().run(problem, replace(context(problem), check=lambda _: True))
        assert outcome.verdict is right


def hard_problem() -> Problem:
    graph = random_graph(np.random.default_rng(0), Shape(inputs=12, width=24, depth=2, outputs=1))
    return Problem(graph, Domain(-np.ones(12), np.ones(12)), (make_rows([({12: 1.0}, -9.0)]),))


class Telling(Bounder):
    """Crown's bounds, counting how often they were asked for."""

    name: ClassVar[str] = "telling"

    def __init__(self) -> None:
        self.calls = 0
        self.inner = current_plugins().all_bounders()["crown"]

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        self.calls += 1
        return self.inner.bound(problems, budget, known)


@pytest.mark.parametrize("distance", [1e-4, -1e-4])
def test_pieces_cover_the_box_and_those_left_when_told_to_stop_are_no_proof(distance: float) -> None:
    made = generate(np.random.default_rng(18), Shape(inputs=2, width=6, depth=2), distance, disjuncts=2)

    def run(pieces: int, most_calls: int) -> tuple[Outcome, int]:
        bounder = Telling()
        budget = Budget(60.0, stop=lambda: bounder.calls >= most_calls)
        told = replace(context(made.problem), budget=budget, bounders=Bounders({"telling": bounder}))
        return Smt(SmtOptions(few=2, pieces=pieces)).run(made.problem, told), bounder.calls

    assert run(1, 1000)[0].verdict is made.expected
    outcome, calls = run(64, 1000)
    assert outcome.verdict is made.expected
    assert int(outcome.stats["pieces"]) > 1
    for most_calls in range(1, calls + 1):
        assert run(64, most_calls)[0].verdict is Verdict.CANCELLED


def test_the_clock_and_the_token_are_honoured() -> None:
    problem = hard_problem()
    started = time.monotonic()
    quiet = replace(context(problem, 1.0), check=lambda _: False)
    assert Smt().run(problem, quiet).verdict is Verdict.TIMEOUT
    assert time.monotonic() - started < 3.0
    cancelled = threading.Event()
    threading.Timer(0.7, cancelled.set).start()
    started = time.monotonic()
    outcome = Smt().run(problem, Context(budget=Budget(60.0, stop=cancelled.is_set)))
    assert outcome.verdict is Verdict.CANCELLED
    assert time.monotonic() - started < 3.0


def deep_problem() -> Problem:
    """184 open neurons in eight layers with weights of 53 bits: a linear program in rationals takes z3 minutes."""
    widths, rng, builder, node = (
        (100, 40, 16, 12, 29, 29, 29, 29, 5),
        np.random.default_rng(0),
        GraphBuilder(100),
        0,
    )
    for k, (before, after) in enumerate(itertools.pairwise(widths)):
        node = builder.add(Relu(before), node) if k else node
        weight = rng.normal(size=(after, before)) * np.sqrt(2.0 / before)
        node = builder.add(Dense(after, weight=weight, bias=rng.normal(size=after) * 0.1), node)
    return Problem(
        builder.finish(node), Domain(-np.ones(100), np.ones(100)), (make_rows([({100: 1.0}, -1e3)]),)
    )


def test_z3_is_interrupted_wherever_it_is() -> None:
    """Told to stop a second after the last word from the main thread: z3's `push` went on for minutes."""
    heard = [time.monotonic()]

    def stop() -> bool:
        if threading.current_thread() is threading.main_thread():
            heard[0] = time.monotonic()
            return False
        return time.monotonic() - heard[0] > 1.0

    problem, started = deep_problem(), time.process_time()
    told = Context(budget=Budget(600.0, stop=stop), check=lambda _: False)
    outcome = Smt(SmtOptions(max_open=500)).run(problem, told)
    assert outcome.verdict is Verdict.UNKNOWN and "cancel" in outcome.reason
    assert time.process_time() - started < 20.0
