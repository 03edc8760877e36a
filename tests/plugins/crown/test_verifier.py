"""The verifier `crown` close to the decision boundary: never a wrong answer, and mostly an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.kernel import boxes
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.neurons import refinement, stages
from verifolio.plugins.crown.smooth import Smooth
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.generate import DISTANCES, KINDS, Generated, Shape, generate, write_problem
from verifolio.testing.networks import gated, plus_minus
from verifolio.testing.trial import attempt, evaluate, sample
from verifolio.vnnlib import make_rows

MODES = ("auto", "input", "neuron", "none")
SMOOTH_MODES = (*MODES, "value")
Check = Callable[[np.ndarray], bool]


def run(
    problem: Problem, mode: str = "auto", seconds: float = 5.0, check: Check | None = None, cores: int = 1
) -> Outcome:
    verifier = Smooth() if mode == "value" else Crown(CrownOptions(split=mode))  # type: ignore[arg-type]
    budget = Budget(seconds, cores=cores)
    return verifier.run(problem, Context(budget, check=check or checker(problem)))


@cache
def near_boundary(seed: int) -> Generated:
    """Every kind of network and condition, at a distance of 1e-6 to 1 on either side."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % 4]
    inputs = 4 if kind == "conv" else int(rng.integers(2, 5))
    width = 2 if kind == "maxpool" else int(rng.integers(2, 5))
    shape = Shape(kind, inputs, width, int(rng.integers(1, 3)))
    distance = float(rng.choice(DISTANCES)) * float(rng.choice([-1, 1]))
    return generate(
        rng,
        shape,
        distance,
        int(rng.integers(1, 4)),
        int(rng.integers(1, 4)),
        int(rng.integers(0, 2)),
        rng.random() < 0.3,
    )


def judge(made: Generated, outcome: Outcome, where: str) -> bool:
    """Whether it was decided; a wrong answer fails."""
    if outcome.verdict is Verdict.SAT:
        assert outcome.point is not None and checker(made.problem)(outcome.point), where
    if made.expected is not Verdict.UNKNOWN:
        assert outcome.verdict in (made.expected, Verdict.UNKNOWN), where
    return outcome.verdict.decided


def shares(seeds: range, seconds: float) -> dict[str, float]:
    """The decided share of every mode; each problem is put to one of them in turn."""
    asked: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for seed in seeds:
        made = near_boundary(seed)
        if made.margin is None:
            continue
        mode = MODES[seed // 4 % 4]
        asked[mode] += 1
        decided[mode] += judge(made, run(made.problem, mode, seconds), f"seed {seed}, {mode}")
    return {m: decided[m] / max(asked[m], 1) for m in MODES}


def test_close_to_the_boundary() -> None:
    found = shares(range(160), 2.0)
    assert min(found[m] for m in ("auto", "input", "neuron")) >= 0.9, found


def test_several_threads_prove_no_more_and_no_less() -> None:
    found = [near_boundary(seed) for seed in range(600, 640)]
    decided = [
        judge(m, run(m.problem, "neuron", 5.0, cores=3), m.problem.graph.sha256) for m in found if m.margin
    ]
    assert np.mean(decided) >= 0.9


def refined(monkeypatch: pytest.MonkeyPatch, seeds: range) -> float:
    """The decided share where every search is stopped at once for better intermediate bounds."""
    monkeypatch.setattr(refinement, "WORTHWHILE", -1.0)
    monkeypatch.setattr(stages, "STAGES", (stages.Stage(0.0, 2, 0.5), stages.Stage(0.0, 3, 0.5)))
    plain, calls = refinement.refine_bounds, []

    def counted(*given: Any) -> refinement.Refinement:
        calls.append(given)
        return plain(*given)

    monkeypatch.setattr(stages, "refine_bounds", counted)
    found = [(s, near_boundary(s)) for s in seeds]
    decided = [judge(m, run(m.problem, "neuron", 5.0), f"seed {s}") for s, m in found if m.margin is not None]
    assert len(calls) > len(seeds) / 10
    return float(np.mean(decided))


def test_better_intermediate_bounds_prove_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refined(monkeypatch, range(700, 760)) >= 0.9


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_better_intermediate_bounds_prove_nothing_wrong_1000(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refined(monkeypatch, range(7000, 8000)) >= 0.9


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(10))
def test_close_to_the_boundary_5000(block: int) -> None:
    found = shares(range(1000 + 500 * block, 1500 + 500 * block), 5.0)
    print("decided", {m: round(v, 3) for m, v in found.items()})
    assert min(found[m] for m in ("auto", "input", "neuron")) >= 0.9, found


def test_without_the_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "_boxes", None)
    decided = [
        judge(m, run(m.problem, "input", 1.0), f"seed {s}")
        for s in range(400, 412)
        if (m := near_boundary(s)).margin
    ]
    assert np.mean(decided) >= 0.5


@pytest.mark.parametrize("name", ["milp", "smt"])
def test_agrees_with_exact_members(name: str) -> None:
    """Problems without a computed truth, put to another complete verifier of the registry."""
    other = next(v for v in current_plugins().verifiers if v.name == name)
    if other.available() is not None:
        pytest.skip(f"{name} is unavailable")
    for seed in range(6):
        rng = np.random.default_rng(50 + seed)
        made = generate(rng, Shape(KINDS[seed % 4], inputs=4, width=3), None, 2, 2)
        mine = run(made.problem, MODES[seed % 3])
        theirs = other().run(made.problem, Context(Budget(5.0), check=checker(made.problem)))
        assert {mine.verdict, theirs.verdict} != {Verdict.SAT, Verdict.UNSAT}


@pytest.mark.parametrize("mode", MODES)
def test_answers_replay(mode: str, tmp_path: Path) -> None:
    """Through files, ONNX Runtime and core's referee."""
    for seed in range(3):
        made = generate(np.random.default_rng(seed), Shape(KINDS[seed], inputs=3), 0.05 * (-1) ** seed)
        if made.margin is None:
            continue
        query = write_problem(made.problem, tmp_path / str(seed))
        trial = attempt(Crown(CrownOptions(split=mode)), query, 5.0)  # type: ignore[arg-type]
        assert trial.report.verdict in (made.expected, Verdict.UNKNOWN)
        assert (trial.report.verdict is Verdict.SAT) == (trial.report.witness is not None)


@pytest.mark.parametrize("mode", MODES)
def test_rejected_points_prove_nothing(mode: str) -> None:
    """Counterexamples exist but none replays: the answer is neither SAT nor UNSAT."""
    for seed in range(6):
        made = near_boundary(seed)
        if made.expected is Verdict.SAT:
            outcome = run(made.problem, mode, 0.1, check=lambda _: False)
            assert outcome.verdict is Verdict.UNKNOWN and outcome.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_no_time_no_proof(mode: str, seconds: float) -> None:
    for seed in range(8):
        made = near_boundary(seed)
        outcome = run(made.problem, mode, seconds)
        assert made.expected is not Verdict.SAT or outcome.verdict is not Verdict.UNSAT


def sphere_problem(norm: float, radius: float, threshold: float) -> Problem:
    """relu(x_0) + relu(x_1) >= threshold in a ball around the origin."""
    domain = Domain(-np.full(2, 2.0), np.full(2, 2.0), ball=Ball(np.zeros(2), radius, norm))
    return Problem(plus_minus(), domain, (make_rows([({2: -1.0}, -threshold)]),))


@pytest.mark.parametrize("mode", ["auto", "input", "neuron"])
@pytest.mark.parametrize(("norm", "most"), [(1.0, 1.0), (2.0, 2.0**0.5), (np.inf, 2.0)])
def test_balls(mode: str, norm: float, most: float) -> None:
    """The maximum over the unit ball is 1, sqrt 2 or 2."""
    assert run(sphere_problem(norm, 1.0, most + 0.01), mode).verdict is Verdict.UNSAT
    assert run(sphere_problem(norm, 1.0, most - 0.05), mode, 1.0).verdict is not Verdict.UNSAT


@pytest.mark.parametrize("mode", MODES)
def test_ball_beside_the_box(mode: str) -> None:
    """Nothing is in both, so anything is impossible; certainly nothing is found."""
    domain = Domain(np.zeros(2), np.ones(2), ball=Ball(np.full(2, 9.0), 1.0, 2.0))
    problem = Problem(plus_minus(), domain, (make_rows([({2: -1.0}, 0.0)]),))
    assert run(problem, mode, 1.0).verdict is not Verdict.SAT


def judge_smooth(seed: int, mode: str, seconds: float) -> bool:
    """No proof where sampling finds a witness, no point that is none; whether what lies far below is decided."""
    graph = gated(seed)
    radius = (0.3, 1.0, 0.03)[seed % 3]
    domain = Domain(-np.full(3, radius), np.full(3, radius))
    values = evaluate(graph, sample(domain, 300))[graph.output]
    least, spread = float(values.min()), float(np.ptp(values))
    reached = Problem(graph, domain, (make_rows([({3: 1.0}, least + 1e-6 * spread)]),))
    assert run(reached, mode, seconds).verdict is not Verdict.UNSAT, f"seed {seed}, {mode}"
    far = Problem(graph, domain, (make_rows([({3: 1.0}, least - spread)]),))
    outcome = run(far, mode, seconds)
    if outcome.verdict is Verdict.SAT:
        assert outcome.point is not None and checker(far)(outcome.point), f"seed {seed}, {mode}"
    return outcome.verdict.decided


@pytest.mark.parametrize("mode", SMOOTH_MODES)
def test_smooth_networks(mode: str) -> None:
    for seed in range(4):
        judge_smooth(seed, mode, 0.3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_smooth_networks_1000() -> None:
    decided = [judge_smooth(seed, SMOOTH_MODES[seed // 3 % 5], 0.5) for seed in range(100, 1100)]
    print("proved", np.mean(decided))
    assert np.mean(decided) >= 0.8


@pytest.mark.parametrize("distance", [1e-6, 1e-9])
def test_affine_problems_are_decided_in_float64(distance: float) -> None:
    """Once all neurons are stable, float32's rounding is no reason to give up."""
    builder = GraphBuilder(3)
    hidden = builder.add(
        Relu(2), builder.add(Dense(2, np.full(2, 9.0), np.array([[1.0, 2, 3], [-1, 1, 0]])), 0)
    )
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), hidden))
    square = Domain(-np.ones(3), np.ones(3))
    problem = Problem(graph, square, (make_rows([({3: 1.0}, 12.0 - distance)]),))  # 18 + 3 x_1 + 3 x_2 >= 12
    assert run(problem, "neuron").verdict is Verdict.UNSAT
    reached = replace(problem, disjuncts=(make_rows([({3: 1.0}, 12.0 + distance)]),))
    assert run(reached, "neuron").verdict is Verdict.SAT


def test_infeasible_input_rows() -> None:
    cut = make_rows([({0: 1.0, 1: 1.0}, -0.5)])
    problem = Problem(plus_minus(), Domain(np.zeros(2), np.ones(2), cut), (make_rows([({2: -1.0}, 0.0)]),))
    for mode in ("auto", "input", "neuron"):
        assert run(problem, mode).verdict is Verdict.UNSAT
    empty = replace(problem, disjuncts=(make_rows([]),))
    assert run(empty, "input").verdict is Verdict.UNSAT


def test_conditions_without_rows_or_disjuncts() -> None:
    square = Domain(np.zeros(2), np.ones(2))
    assert run(Problem(plus_minus(), square, ())).verdict is Verdict.UNSAT
    assert run(Problem(plus_minus(), square, (make_rows([]),))).verdict is Verdict.SAT
    never = Problem(plus_minus(), square, (make_rows([]),))
    assert run(never, check=lambda _: False).verdict is Verdict.UNKNOWN


def test_refuses_endless_boxes() -> None:
    endless = Domain(np.full(2, -np.inf), np.ones(2))
    problem = Problem(plus_minus(), endless, (make_rows([({2: 1.0}, 0.0)]),))
    assert Crown().refuses(problem)
    assert Crown().refuses(problem.with_domain(replace(endless, ball=Ball(np.zeros(2), 1.0, 2.0)))) is None


def test_shared_evidence_holds() -> None:
    """Bounds and refuted sets that the search leaves behind are true."""
    for seed in range(12):
        made = near_boundary(seed)
        if made.margin is None:
            continue
        evidence = Evidence()
        mode = MODES[seed % 4]
        context = Context(Budget(2.0), evidence, check=checker(made.problem))
        Crown(CrownOptions(split=mode)).run(made.problem, context)  # type: ignore[arg-type]
        assert not (evidence.refuted and made.expected is Verdict.SAT)
        points = sample(made.problem.domain, 60)
        values = evaluate(made.problem.graph, points)
        for bounds in evidence.bounds:
            for node in bounds.lower:
                assert (values[node] >= bounds.lower[node] - 1e-12).all()
                assert (values[node] <= bounds.upper[node] + 1e-12).all()


def clauses(count: int, variables: int, seed: int) -> Problem:
    """A random formula as a hidden layer: an input of yes and no that satisfies all clauses is a counterexample."""
    rng = np.random.default_rng(seed)
    signs = np.zeros((count, variables))
    for row in signs:
        row[rng.choice(variables, 3, replace=False)] = rng.choice([-1.0, 1.0], 3)
    points = (np.arange(2**variables)[:, None] >> np.arange(variables)) & 1
    true = points @ signs.T + (signs < 0).sum(axis=1)  # how many literals of each clause hold
    assert not (true >= 1).all(axis=1).any()
    eye, nought = np.eye(variables), np.zeros(variables)
    weights = np.concatenate([-signs, eye, 2 * eye])
    bias = np.concatenate([1.0 - (signs < 0).sum(axis=1), nought, nought - 1.0])
    last = np.zeros((2, len(weights)))
    last[0, :count] = -1.0
    last[1, count:] = np.repeat([1.0, -1.0], variables)  # x - relu(2 x - 1): nought at 0 and 1 alone
    builder = GraphBuilder(variables)
    hidden = builder.add(Relu(len(weights)), builder.add(Dense(len(weights), bias, weights), 0))
    graph = builder.finish(builder.add(Dense(2, np.array([1.0, 0.0]), last), hidden))
    rows = make_rows([({variables: -1.0}, -1.0), ({variables + 1: 1.0}, 0.0)])
    return Problem(graph, Domain(np.zeros(variables), np.ones(variables)), (rows,))


@pytest.mark.skipif(boxes._boxes is None, reason="the kernel is not compiled here")
def test_a_formula_in_one_hidden_layer_is_refuted_by_boxes() -> None:
    """Phases can leave its bounds at nought, which rounding keeps open; boxes on inputs, which come first, do not."""
    outcome = run(clauses(90, 14, 0), seconds=20.0)
    assert outcome.verdict is Verdict.UNSAT
    assert outcome.stats["closed_share"] == 1.0  # said by the search on boxes


@pytest.mark.parametrize("mode", MODES)
def test_values_beyond_all_doubles_end_in_no_answer(mode: str) -> None:
    """10^400 relu(x), times 10^-400, reaches 1; there is no traceback, and no proof."""
    builder, value = GraphBuilder(1), 0
    for weight in (1e200, 1e200, 1e-200, 1e-200):
        dense = builder.add(Dense(1, np.zeros(1), np.full((1, 1), weight)), value)
        value = builder.add(Relu(1), dense)
    domain = Domain(-np.ones(1), np.ones(1))
    problem = Problem(builder.finish(value), domain, (make_rows([({1: -1.0}, -0.5)]),))
    assert run(problem, mode, 1.0, lambda _: False).verdict is Verdict.UNKNOWN
