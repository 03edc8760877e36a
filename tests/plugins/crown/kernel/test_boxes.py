"""Both box engines: what they close is empty, what they cut off is empty, and they come to the same verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from verifolio.graph import Dense, Elementwise, Graph, GraphBuilder, Product, Relu, Select, Sum
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem, dense_rows
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.boxes import Boxes
from verifolio.plugins.crown.kernel import boxes
from verifolio.plugins.crown.kernel.blocks import KEPT, make_blocks, make_kernel, rows_form
from verifolio.plugins.crown.kernel.boxes import BoxBatch, BoxEngine, KernelEngine
from verifolio.plugins.crown.search.inputs.input_search import InputSearch
from verifolio.plugins.crown.search.inputs.tensor_engine import TensorEngine, make_engine
from verifolio.plugins.crown.verifier import absorb_input_rows
from verifolio.run.budget import Budget
from verifolio.testing.generate import KINDS, Shape, generate
from verifolio.testing.realistic import NETWORKS
from verifolio.testing.realistic import boxes as some_boxes
from verifolio.testing.trial import evaluate, miss, sample
from verifolio.vnnlib import Rows, make_rows

needs_kernel = pytest.mark.skipif(boxes._boxes is None, reason="the compiled kernel was not built here")
DISTANCES = (-1.0, -0.1, -1e-2, -1e-4, 1e-4, 1e-2, 0.1, 1.0)


@cache
def problems(count: int, first: int = 0) -> list[tuple[Problem, float]]:
    """Random problems of every kind with their true margins; disjuncts, conjunctions, input rows, strict rows."""
    found = []
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        kind = KINDS[seed % 4]
        shape = Shape(kind, inputs=4 if kind == "conv" else 2 + seed % 2, width=3, depth=1 + seed % 2)
        made = generate(
            rng,
            shape,
            DISTANCES[seed % 8],
            1 + seed % 3,
            1 + seed // 2 % 2,
            seed // 4 % 2,
            mixed=seed % 5 == 0,
        )
        if made.margin is None:
            continue
        problem = made.problem
        if seed % 3 == 0:
            rows = tuple(replace(r, strict=np.ones_like(r.strict)) for r in problem.disjuncts)
            problem = replace(problem, disjuncts=rows)
        found.append((absorb_input_rows(problem), made.margin))
    return found


def engines(problem: Problem) -> list[BoxEngine]:
    found: list[BoxEngine] = [TensorEngine(problem, Budget())]
    return [*found, KernelEngine(problem, 1)] if boxes._boxes is not None else found


def random_boxes(rng: np.random.Generator, problem: Problem, count: int, neurons: int) -> BoxBatch:
    """Boxes of all sizes inside the problem's, some of them flat."""
    low, high = problem.domain.lower, problem.domain.upper
    ends = np.sort(rng.uniform(low, high, (2, count, len(low))), axis=0)
    shrink = rng.choice([1.0, 0.1, 1e-3, 1e-7, 0.0], size=(count, 1))
    centre, radius = ends.mean(axis=0), (ends[1] - ends[0]) / 2 * shrink
    lower, upper = np.maximum(centre - radius, low), np.minimum(centre + radius, high)
    lower[0], upper[0] = low, high
    return BoxBatch(lower, upper, np.zeros((count, neurons), np.int8))


def holds(problem: Problem, points: np.ndarray) -> np.ndarray:
    """Where the condition holds, in float64."""
    y = evaluate(problem.graph, points)[problem.graph.output]
    found = np.zeros(len(points), bool)
    for rows in problem.disjuncts:
        a, b, rhs = dense_rows(rows, points.shape[1], y.shape[1])
        found |= (points @ a.T + y @ b.T <= rhs - 1e-12).all(axis=1)
    return found


def test_closed_and_cut_off_parts_are_empty() -> None:
    closed = narrowed = 0
    for seed, (problem, _) in enumerate(problems(24)):
        for engine in engines(problem):
            rng = np.random.default_rng(seed)
            batch = random_boxes(rng, problem, 24, len(engine.phase))
            before = BoxBatch(batch.lower.copy(), batch.upper.copy(), batch.phase.copy())
            found = engine.bound(batch)
            for k in range(len(batch)):
                points = rng.uniform(before.lower[k], before.upper[k], (120, problem.domain.size))
                points[0], points[1] = before.lower[k], before.upper[k]
                good = points[holds(problem, points)]
                assert not (found.closed[k] and len(good)), "closed a box that holds a solution"
                if not found.closed[k]:
                    kept = (good >= batch.lower[k]).all(axis=1) & (good <= batch.upper[k]).all(axis=1)
                    assert kept.all(), "cut off a solution"
                    assert (batch.lower[k] >= before.lower[k]).all() and (
                        batch.upper[k] <= before.upper[k]
                    ).all()
                    assert (batch.lower[k] <= batch.upper[k]).all()
            closed += int(found.closed.sum())
            narrowed += int(((batch.lower > before.lower) | (batch.upper < before.upper)).any(axis=1).sum())
    assert closed > 30
    assert narrowed > 10 or boxes._boxes is None


@needs_kernel
def test_phases_are_those_of_the_network() -> None:
    """A phase that children inherit must be right on the whole box."""
    for seed, (problem, _) in enumerate(problems(12)):
        rng = np.random.default_rng(seed)
        engine = KernelEngine(problem, 1)
        batch = random_boxes(rng, problem, 12, len(engine.phase))
        before = BoxBatch(batch.lower.copy(), batch.upper.copy(), batch.phase.copy())
        engine.bound(batch)
        relus = problem.graph.relus
        for k in range(len(batch)):
            points = rng.uniform(before.lower[k], before.upper[k], (60, problem.domain.size))
            values = evaluate(problem.graph, points)
            z = np.concatenate([values[problem.graph.nodes[i].parents[0]] for i in relus], axis=1)
            assert (z[:, batch.phase[k] > 0] >= -1e-12).all() and (z[:, batch.phase[k] < 0] <= 1e-12).all()


@needs_kernel
def test_no_phase_is_fixed_that_one_point_contradicts() -> None:
    """Least and greatest values are 2^-44 beyond nought in exact arithmetic: far less than rounding is charged."""
    rng, n, delta = np.random.default_rng(3), 30, 2.0**-44
    low = rng.integers(-64, 64, n) / 64
    domain = Domain(low, low + rng.integers(1, 64, n) / 64)
    weight = rng.integers(-4, 5, (40, n)) / 4
    least = np.where(weight > 0, weight * domain.lower, weight * domain.upper).sum(1)  # exact: few bits
    most = np.where(weight > 0, weight * domain.upper, weight * domain.lower).sum(1)
    bias = np.where(np.arange(40) % 2 == 0, -least - delta, -most + delta)
    builder = GraphBuilder(n)
    hidden = builder.add(Relu(40), builder.add(Dense(40, bias, weight), 0))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 40))), hidden))
    problem = Problem(graph, domain, (make_rows([({n: 1.0}, 1e6)]),))
    engine = KernelEngine(problem, 1)
    batch = BoxBatch(domain.lower[None].copy(), domain.upper[None].copy(), engine.phase[None].copy())
    engine.bound(batch)
    assert (batch.phase[0] == 0).all()


@pytest.mark.parametrize("name", ["dense", "products_last", "quadratic"])
def test_noise_covers_the_rounding_of_every_sum(name: str) -> None:
    """A rounding per feature of the sum of absolute values, at every point that was tried."""
    graph = NETWORKS[name](np.random.default_rng(1))
    n = graph.input_size
    (domain,) = some_boxes(np.random.default_rng(2), n, (0.5,))
    problem = Problem(graph, domain, (make_rows([({n: 1.0}, 0.0)]),))
    blocks = make_blocks(graph)
    assert blocks is not None
    forms = [*blocks.hidden, rows_form(blocks, problem)]
    noise = np.split(make_kernel(blocks, problem).noise, np.cumsum([len(f.bias) for f in forms])[:-1])
    features = forms[0].matrix.shape[1]
    for x in sample(domain, 60, 0):
        values, at = np.zeros(features), n
        values[:n] = x
        for k, form in enumerate(forms):
            size = abs(form.matrix) @ np.abs(values) + np.abs(form.bias)
            assert (noise[k] >= features * 2.0**-53 * size * (1 - 1e-9)).all()
            if k < len(blocks.kinds):
                z = form.matrix @ values + form.bias
                half = len(z) // 2
                made = z[:half] * z[half:] if blocks.kinds[k].any() else np.maximum(z, 0)
                values[at : at + len(made)] = made
                at += len(made)


def search(problem: Problem, engine: BoxEngine, seconds: float = 3.0) -> Verdict:
    context = Context(Budget(seconds), check=lambda x: miss(problem, x) <= 0)
    return InputSearch(problem, engine, context, 64).run().verdict


@needs_kernel
def test_engines_agree_with_the_truth_and_each_other() -> None:
    cases = problems(24, first=100)
    decided = np.zeros(2)
    for problem, margin in cases:
        verdicts = [search(problem, e, 1.0) for e in engines(problem)]
        truth = Verdict.SAT if margin < 0 else Verdict.UNSAT
        assert set(verdicts) <= {truth, Verdict.UNKNOWN}
        decided += [v is truth for v in verdicts]
    assert decided[0] >= 0.7 * len(cases) and decided[1] >= 0.9 * len(cases)


@needs_kernel
@pytest.mark.parametrize("seed", range(3))
def test_threads_change_nothing(seed: int) -> None:
    ((problem, _),) = problems(1, first=seed)
    found = []
    for threads in (1, 2):
        engine = KernelEngine(problem, threads)
        batch = random_boxes(np.random.default_rng(seed), problem, 200, len(engine.phase))
        result = engine.bound(batch)
        found.append(
            (result.closed, result.score, result.corner, result.margin, batch.lower, batch.upper, batch.phase)
        )
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def wide_net(rng: np.random.Generator, scale: float) -> Graph:
    builder = GraphBuilder(2)
    hidden = builder.add(
        Relu(5), builder.add(Dense(5, rng.normal(size=5) * scale, rng.normal(size=(5, 2)) * scale), 0)
    )
    return builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 5)) * scale), hidden))


@pytest.mark.parametrize("scale", [1e-160, 1e-100, 1e100, 1e155, 1e250])
def test_numbers_out_of_range_prove_nothing_wrong(scale: float) -> None:
    """Products that underflow or overflow close no box that holds a solution."""
    for seed in range(5):
        graph = wide_net(np.random.default_rng(seed), scale)
        domain = Domain(-np.ones(2), np.ones(2))
        with np.errstate(all="ignore"):
            y = evaluate(graph, np.random.default_rng(1).uniform(-1, 1, (200, 2)))[graph.output]
            for rhs in (float(np.nan_to_num(y).min()), 0.0):
                problem = Problem(graph, domain, (make_rows([({2: 1.0}, rhs)]),))
                for engine in engines(problem):
                    found = engine.bound(
                        BoxBatch(-np.ones((1, 2)), np.ones((1, 2)), engine.phase[None].copy())
                    )
                    assert not found.closed[0] or not (y <= rhs).any()


def test_infinite_box_cut_by_a_cube() -> None:
    """The cube makes the set finite; both engines use it."""
    graph = wide_net(np.random.default_rng(0), 1.0)
    endless = np.full(2, np.inf)
    domain = Domain(-endless, endless, ball=Ball(np.zeros(2), 1.0, np.inf))
    y = evaluate(graph, np.random.default_rng(1).uniform(-1, 1, (500, 2)))[graph.output]
    problem = Problem(graph, domain, (make_rows([({2: 1.0}, float(y.min()) - 0.5)]),))
    assert {search(problem, e) for e in engines(problem)} == {Verdict.UNSAT}


def test_copies_are_not_taken_for_exact() -> None:
    """Composing with a selection that repeats an entry adds weights up, which rounds."""
    builder = GraphBuilder(1)
    copies = builder.add(Select(3, np.zeros(3, np.int64)), 0)
    weight = np.array([[1.0, 2.0**-60, -1.0]])
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), weight), copies))
    blocks = make_blocks(graph)
    assert blocks is not None
    off = abs(float(blocks.output.matrix.toarray()[0, 0]) - 2.0**-60)
    assert float(blocks.output.matrix_error.toarray()[0, 0]) >= off


@needs_kernel
@pytest.mark.parametrize("disjuncts", [(), (make_rows([]),)])
def test_conditions_without_rows_are_no_work_for_the_kernel(disjuncts: tuple[Rows, ...]) -> None:
    builder = GraphBuilder(2)
    problem = Problem(
        builder.finish(builder.add(Product(2), 0, 0)), Domain(-np.ones(2), np.ones(2)), disjuncts
    )
    assert Boxes().refuses(problem) is None
    verdict = Boxes().run(problem, Context(Budget(1.0), check=lambda _: True)).verdict
    assert verdict is (Verdict.SAT if disjuncts else Verdict.UNSAT)


@needs_kernel
def test_every_neuron_may_round_the_constant_and_the_coefficients_of_a_row() -> None:
    """What 1000 neurons add to a row vanishes next to 1, and its bound stays below what the corner (1, 1) attains."""
    count, lost = 1000, 0.98 * 2.0**-53
    # inputs of neurons reach from -1 to 5, so the upper line is 5/6 (z + 1): it adds `lost` to three numbers
    slope, one = 6 / 5 * lost, 1 + 2.0**-23
    builder = GraphBuilder(2)
    hidden = Dense(count, np.ones(count), np.tile([1.0, 3.0], (count, 1)))
    active = builder.add(Relu(count), builder.add(hidden, 0))
    sums = builder.add(Dense(1, np.zeros(1), np.full((1, count), -slope)), active)
    direct = builder.add(Dense(1, np.array([one]), np.array([[-one, 0.0]])), 0)
    graph = builder.finish(builder.add(Sum(1, (1.0, 1.0)), direct, sums))
    attained = float(-5 * count * Fraction(slope))
    domain = Domain(np.array([1.0, -1.0]), np.ones(2))
    problem = Problem(graph, domain, (make_rows([({2: 1.0}, math.nextafter(attained, 0.0))]),))
    engine = KernelEngine(problem, 1)
    batch = BoxBatch(domain.lower[None].copy(), domain.upper[None].copy(), engine.phase[None].copy())
    assert not engine.bound(batch).closed[0]


@needs_kernel
@pytest.mark.parametrize("equal", [False, True])
def test_only_the_square_of_one_form_is_taken_for_a_square(equal: bool) -> None:
    """x y on [-1, 1]^2 reaches -1; x x does not go below 0."""
    builder = GraphBuilder(2)
    columns = (0, 0) if equal else (0, 1)
    factors = [builder.add(Dense(1, np.zeros(1), np.eye(2)[None, c]), 0) for c in columns]
    graph = builder.finish(builder.add(Product(1), *factors))
    domain = Domain(-np.ones(2), np.ones(2))
    problem = Problem(graph, domain, (make_rows([({2: 1.0}, -0.5)]),))
    engine = KernelEngine(problem, 1)
    batch = BoxBatch(domain.lower[None].copy(), domain.upper[None].copy(), engine.phase[None].copy())
    assert bool(engine.bound(batch).closed[0]) is equal


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_errors_of_stored_weights_reach_the_biases_behind_them(sign: float) -> None:
    """A layer whose weights may be off, of one whose biases are large: their product is an error too."""
    builder = GraphBuilder(2)
    first = builder.add(Dense(3, sign * np.full(3, 50.0), np.ones((3, 2))), 0)
    stated = Dense(4, np.zeros(4), np.ones((4, 3)), np.full((4, 3), 1e-3), np.full(4, 1e-4))
    blocks = make_blocks(builder.finish(builder.add(stated, first)))
    assert blocks is not None
    assert (blocks.output.bias_error >= 3 * 1e-3 * 50 + 1e-4).all()
    assert (blocks.output.matrix_error.toarray() >= 3 * 1e-3).all()


def test_kernel_rows_match_the_condition() -> None:
    """The compiled arrays evaluate to the network's rows minus their right-hand sides."""
    for problem, _ in problems(8):
        blocks = make_blocks(problem.graph)
        assert blocks is not None
        kernel = make_kernel(blocks, problem, dense=True)
        x = np.random.default_rng(0).uniform(problem.domain.lower, problem.domain.upper)
        features, start = x, 0
        for k, size in enumerate(kernel.size):
            first, last = kernel.first[k], kernel.last[k]
            weight = kernel.weight[kernel.offset[k] :][: size * (last - first)].reshape(size, last - first)
            z = weight @ features[first:last] + kernel.bias[start : start + size]
            features = np.concatenate([features, np.maximum(z, 0)])
            start += size
        y = evaluate(problem.graph, x[None])[problem.graph.output][0]
        parts = [dense_rows(r, len(x), len(y)) for r in problem.disjuncts]
        assert np.allclose(z, np.concatenate([a @ x + b @ y - rhs for a, b, rhs in parts]), atol=1e-12)


def test_without_the_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "_boxes", None)
    decided = 0
    for problem, margin in problems(12, first=300):
        engine = make_engine(problem, Budget())
        assert isinstance(engine, TensorEngine)
        verdict = search(problem, engine, 2.0)
        assert verdict in (Verdict.SAT if margin < 0 else Verdict.UNSAT, Verdict.UNKNOWN)
        decided += verdict.decided
    assert decided >= 8


def test_strict_rows_at_equality() -> None:
    """A strict row that is at best nought is impossible; the same row without strictness is not."""
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Relu(1), 0))
    for strict, allowed in (
        (True, {Verdict.UNSAT, Verdict.UNKNOWN}),
        (False, {Verdict.SAT, Verdict.UNKNOWN}),
    ):
        rows: Rows = make_rows([({1: 1.0}, 0.0)], strict=strict)
        problem = Problem(graph, Domain(-np.ones(1), np.ones(1)), (rows,))

        def check(x: np.ndarray, strict: bool = strict) -> bool:
            y = max(float(x[0]), 0.0)
            return y < 0 if strict else y <= 0

        for engine in engines(problem):
            outcome = InputSearch(problem, engine, Context(Budget(0.2), check=check), 64).run()
            assert outcome.verdict in allowed


def lattice(rng: np.random.Generator, functions: int, sets: int) -> Graph:
    """The largest of least values of linear functions, by gates of four ReLUs, two and two opposite."""
    builder = GraphBuilder(2)
    count = functions * sets
    node = builder.add(Dense(count, rng.normal(size=count), rng.normal(size=(count, 2))), 0)
    while count > 1:
        sign = -1.0 if count > sets else 1.0  # min (a, b) = ((a + b) - |a - b|) / 2
        before, after = np.zeros((2 * count, count)), np.zeros((count // 2, 2 * count))
        for k in range(count // 2):
            gate = slice(4 * k, 4 * k + 4)
            before[gate, 2 * k : 2 * k + 2] = [[1, 1], [-1, -1], [1, -1], [-1, 1]]
            after[k, gate] = 0.5, -0.5, 0.5 * sign, 0.5 * sign
        inner = builder.add(Relu(2 * count), builder.add(Dense(2 * count, np.zeros(2 * count), before), node))
        count //= 2
        node = builder.add(Dense(count, np.zeros(count), after), inner)
    return builder.finish(node)


@needs_kernel
@pytest.mark.parametrize("seed", range(2))
def test_sparse_rows_say_what_dense_rows_say(seed: int) -> None:
    graph = lattice(np.random.default_rng(seed), 8, 8)
    middle = float(np.median(evaluate(graph, np.random.default_rng(0).uniform(-1, 1, (99, 2)))[graph.output]))
    problem = Problem(graph, Domain(-np.ones(2), np.ones(2)), (make_rows([({2: 1.0}, middle)]),))

    class DenseEngine(KernelEngine):
        dense = True

    found = []
    for kind in (KernelEngine, DenseEngine):
        engine = kind(problem, 1)
        batch = random_boxes(np.random.default_rng(seed), problem, 60, len(engine.phase))
        result = engine.bound(batch)
        found.append((result.closed, result.margin, batch.lower, batch.upper, batch.phase))
        assert bool((engine.kernel.offset < 0).any()) is not kind.dense
    assert found[0][0].any() and not found[0][0].all()
    assert all(np.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(*found, strict=True))


@needs_kernel
@pytest.mark.parametrize("seed", range(3))
def test_lattices_are_decided_without_their_opposite_neurons(seed: int) -> None:
    """One ReLU of four is left to bound, and a few boxes decide what the graph as it is needs thousands for."""
    graph = lattice(np.random.default_rng(seed), 16, 8)
    ends = np.linspace(-1, 1, 301)
    values = evaluate(graph, np.stack(np.meshgrid(ends, ends), -1).reshape(-1, 2))[graph.output]
    for sign, extreme in ((1.0, float(values.min())), (-1.0, float(-values.max()))):
        for level, truth in ((extreme + 1e-6, Verdict.SAT), (extreme - 0.1, Verdict.UNSAT)):
            problem = Problem(graph, Domain(-np.ones(2), np.ones(2)), (make_rows([({2: sign}, level)]),))
            engine = make_engine(problem, Budget(cores=1))
            assert isinstance(engine, KernelEngine)
            assert int((engine.phase == 0).sum()) * 4 == graph.neurons
            assert search(problem, engine) is truth
    assert len(make_engine(problem, Budget(cores=1), plain=True).phase) == graph.neurons


def decide(problem: Problem, seconds: float = 1.0) -> Verdict:
    context = Context(Budget(seconds), check=lambda x: miss(problem, x) <= 0)
    return Boxes().run(problem, context).verdict


@needs_kernel
def test_the_verifier_agrees_with_the_truth() -> None:
    cases = [(p, m) for p, m in problems(24, first=200) if Boxes().refuses(p) is None]
    right = 0
    for problem, margin in cases:
        truth = Verdict.SAT if margin < 0 else Verdict.UNSAT
        verdict = decide(problem)
        assert verdict in (truth, Verdict.UNKNOWN)
        right += verdict is truth
    assert len(cases) >= 20
    assert right >= 0.9 * len(cases)


@needs_kernel
@pytest.mark.parametrize("seed", range(4))
def test_the_verifier_refutes_nothing_that_a_point_attains(seed: int) -> None:
    """Forty neurons wide, with a threshold that is the least of many outputs: it is attained, so never unsat."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(5)
    last = builder.add(Relu(40), builder.add(Dense(40, rng.normal(size=40), rng.normal(size=(40, 5))), 0))
    last = builder.add(
        Relu(40), builder.add(Dense(40, rng.normal(size=40), rng.normal(size=(40, 40)) / 6), last)
    )
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 40))), last))
    least = float(evaluate(graph, rng.uniform(-0.1, 0.1, (2000, 5)))[graph.output].min())
    domain = Domain(np.full(5, -0.1), np.full(5, 0.1))
    assert decide(Problem(graph, domain, (make_rows([({5: 1.0}, least)]),))) is not Verdict.UNSAT
    assert decide(Problem(graph, domain, (make_rows([({5: 1.0}, least - 10.0)]),)), 5.0) is Verdict.UNSAT


@needs_kernel
def test_the_verifier_refuses_what_the_kernel_cannot_bound() -> None:
    smooth = GraphBuilder(2)
    tanh = smooth.finish(smooth.add(Elementwise(2, "tanh"), 0))
    box = Domain(-np.ones(2), np.ones(2))
    rows = (make_rows([({2: 1.0}, 0.0)]),)
    assert "kernel" in str(Boxes().refuses(Problem(tanh, box, rows)))
    round_ = replace(box, ball=Ball(np.zeros(2), 1.0, 2.0))
    plain = wide_net(np.random.default_rng(0), 1.0)
    assert "kernel" in str(Boxes().refuses(Problem(plain, round_, rows)))
    assert "finite" in str(Boxes().refuses(Problem(plain, Domain(-np.ones(2), np.full(2, np.inf)), rows)))
    assert Boxes().refuses(Problem(plain, box, rows)) is None


def test_what_is_kept_of_a_network_changes_no_kernel() -> None:
    """Many conditions and boxes on one network, each compiled with what earlier ones left and from nothing."""
    rng = np.random.default_rng(3)
    graph = wide_net(rng, 1.0)
    kept = make_blocks(graph)
    assert kept is not None
    for k in range(2 * KEPT + 3):
        # a few conditions come again, some of them at other distances or in other orders
        rows = [({2: float(k % 40 + 1), 0: float(k % 3)}, float(k % 5)), ({2: -1.0}, 0.5)]
        domain = Domain(-rng.uniform(0.1, 1, 2), rng.uniform(0.1, 1, 2))
        problem = Problem(graph, domain, (make_rows(rows[:: 1 - 2 * (k % 2)]),))
        fresh = make_blocks.__wrapped__(graph)
        assert fresh is not None
        for dense in (False, True):
            ours, plain = (make_kernel(b, problem, dense) for b in (kept, fresh))
            for name in type(plain).__dataclass_fields__:
                assert np.array_equal(getattr(ours, name), getattr(plain, name)), name
    assert len(kept.conditions) <= KEPT
