"""Intermediate bounds, chains, forward bounds and bounders against the reference, on networks of realistic size.

A fast path that is given the reference's slopes and intermediate intervals must give its bounds: never tighter ones,
and no looser ones than rounding explains. No bound may exceed a value that a point attains.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.graph import Graph
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Bounds
from verifolio.plugins.crown.bounder import AlphaBounder, CrownBounder, IntervalBounder
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.arrays import all_rows
from verifolio.plugins.crown.propagate.chain import is_chain
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.training import crown_margins, interval_margins
from verifolio.testing.networks import dense_graph
from verifolio.testing.realistic import BRANCHED, CHAINS, NETWORKS, SMOOTH, balls, boxes
from verifolio.testing.reference import Bounded, Reference, attained, default_slopes
from verifolio.testing.reference.sets import least_over
from verifolio.testing.trial import evaluate, sample, untrue
from verifolio.vnnlib import make_rows

DOUBLE, SINGLE = torch.float64, torch.float32
BATCHES: dict[int, tuple[float, ...]] = {
    1: (0.1,),
    2: (0.3, 0.01),
    7: (1e-6, 0.01, 0.03, 0.1, 0.2, 0.5, 2.0),
}
# what rounding may cost a bound, relative to the terms that it adds up
LOOSE = {DOUBLE: 1e-10, SINGLE: 2e-2}
OTHERS = [*((name, DOUBLE) for name in [*BRANCHED, *SMOOTH]), *((name, SINGLE) for name in BRANCHED)]
OTHERS += [(name, SINGLE) for name in ("sigmoid_deep", "Exp", "gate")]
EFFORTS = {
    "interval": Effort(tighten=False),
    "backward": Effort(),
    "forward": Effort(tighten=False, forward=True),
}


def rows_of(rng: np.random.Generator, graph: Graph) -> tuple[Array, Array]:
    """Single outputs, differences, any row, and rows that mix inputs and outputs."""
    m = graph.output_size
    outputs = np.concatenate(
        [np.eye(m), -np.eye(m), np.eye(m) - np.roll(np.eye(m), 1, 0), rng.normal(size=(2, m))]
    )
    inputs = np.zeros((len(outputs), graph.input_size))
    inputs[-1] = rng.normal(size=graph.input_size)
    return outputs, inputs


def run(
    graph: Graph, domains: list[Domain], effort: Effort, dtype: torch.dtype
) -> tuple[Program, State, Array, Array, Array]:
    """The intermediate bounds, rows over outputs and inputs, and the bounds (boxes, rows) that it gives them."""
    program = Program(graph, Space(dtype))
    outputs, inputs = rows_of(np.random.default_rng(1), graph)
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of(domains, program.space), effort)
        extra = {0: program.space.tensor(inputs)[None]}
        bound = program.lower(state, graph.output, program.space.tensor(outputs)[None], extra)
    return program, state, outputs, inputs, bound.double().numpy()


def finite(known: Any) -> bool:
    """Whether every function is defined on what is known of its inputs; where one is not, nothing is proved."""
    return all(bool(np.isfinite(ends).all()) for ends in known.intervals.values())


def check_rows(seen: Any, reference: Reference, made: tuple[Program, State, Array, Array, Array]) -> None:
    """Rows of the condition: equal to the reference's up to rounding, for every box."""
    program, state, outputs, inputs, bound = made
    dtype = program.space.dtype
    for k in range(len(bound)):
        known = seen(reference, program, state, k)
        if not finite(known):
            continue
        rows = {program.graph.output: outputs, 0: inputs}
        wanted = reference.lower(known.domain, known.intervals, known.lines, rows)
        size = np.abs(wanted.low) + np.abs(wanted.constant) + np.abs(wanted.rows).sum(1) + 1
        assert (bound[k] <= wanted.high).all(), (
            f"box {k}: above the reference by {(bound[k] - wanted.high).max()}"
        )
        lost = (wanted.low - bound[k]) / size
        assert (lost <= LOOSE[dtype]).all(), (
            f"box {k}: looser than the reference by {lost.max()} of its terms"
        )


def check_intervals(
    seen: Any, reference: Reference, program: Program, state: State, effort: Effort, complete: bool
) -> None:
    """Every node's interval: no narrower than the reference's; `complete`: not wider either."""
    dtype, chain = program.space.dtype, is_chain(program)
    for k in range(state.region.batch):
        known = seen(reference, program, state, k)
        if not finite(known):
            continue
        for i, (low, high) in known.intervals.items():
            if i == 0:
                continue
            inner, outer = (reference.forward(i, known.intervals, inner=side) for side in (True, False))
            best, wide = [*inner], [*outer]
            if effort.tighten and i in program.before and program.mixing[i] > 1:
                below, above = reference.both_ends(known.domain, known.intervals, known.lines, i)
                best = [np.fmax(best[0], below.high), np.fmin(best[1], -above.high)]
                if chain:  # that a neuron is nought may be known halfway
                    halfway = above.early + 1e-10 * (1 + np.abs(outer[0]) + np.abs(outer[1]))
                    best[1] = np.where(halfway >= 0, np.fmin(best[1], -halfway), best[1])
                open_ = reference.loose(i, outer)
                wide[0] = np.where(open_, np.fmax(wide[0], below.low), wide[0])
                wide[1] = np.where(open_, np.fmin(wide[1], -above.low), wide[1])
            assert (low <= best[0]).all(), f"box {k}, node {i}: low end too high by {(low - best[0]).max()}"
            assert (high >= best[1]).all(), f"box {k}, node {i}: high end too low by {(best[1] - high).max()}"
            if complete:
                room = LOOSE[dtype] * (1 + np.abs(outer[0]) + np.abs(outer[1]))
                # a chain says of a neuron that is nought no more than that
                done = (high <= room) & chain
                assert ((high <= wide[1] + room) | done).all(), f"box {k}, node {i}: high end"
                assert ((low >= wide[0] - room) | done).all(), f"box {k}, node {i}: low end"


def check_attained(
    graph: Graph, domains: list[Domain], state: State, bound: Array, rows: tuple[Array, Array]
) -> None:
    """Nothing that points attain lies outside."""
    for k, domain in enumerate(domains):
        values = evaluate(graph, sample(domain, 30, seed=k))
        for i, (low, high) in state.interval.items():
            room = 1e-12 * (1 + np.abs(values[i]).max())
            at = min(k, len(low) - 1)  # what is not a number says nothing
            assert not (values[i] < low[at].double().numpy() - room).any(), f"box {k}, node {i}"
            assert not (values[i] > high[at].double().numpy() + room).any(), f"box {k}, node {i}"
        if k % 3:  # a descent is dear
            continue
        found = attained(graph, domain, *rows, seed=k)
        assert not (bound[k] > found).any(), f"box {k}: above an attained value by {(bound[k] - found).max()}"


def check(seen: Any, name: str, domains: list[Domain], effort: Effort, dtype: torch.dtype, seed: int) -> None:
    graph = network(name, seed)
    reference = Reference(graph)
    made = run(graph, domains, effort, dtype)
    program, state, outputs, inputs, bound = made
    check_attained(graph, domains, state, bound, (outputs, inputs))
    check_rows(seen, reference, made)
    if not effort.forward and not effort.steps:
        # without a chain, a neuron that is open on one box is bounded on all
        complete = name not in SMOOTH and (state.region.batch == 1 or is_chain(program))
        check_intervals(seen, reference, program, state, effort, complete)


@cache
def network(name: str, seed: int) -> Graph:
    return NETWORKS[name](np.random.default_rng(seed))


@pytest.mark.parametrize(("count", "dtype"), [(1, SINGLE), (7, DOUBLE)])
@pytest.mark.parametrize("name", CHAINS)
def test_chains(seen: Any, name: str, count: int, dtype: torch.dtype) -> None:
    domains = boxes(np.random.default_rng(count), network(name, count).input_size, BATCHES[count])
    check(seen, name, domains, Effort(), dtype, seed=count)


@pytest.mark.parametrize("seed", range(9))
def test_mixtures(seen: Any, seed: int) -> None:
    """Chains whose scalings, limits and ReLUs stand anywhere."""
    count = (1, 2, 7)[seed % 3]
    domains = boxes(np.random.default_rng(seed), network("mixture", seed).input_size, BATCHES[count])
    check(seen, "mixture", domains, Effort(), (DOUBLE, SINGLE)[seed % 2], seed)


@pytest.mark.parametrize(("name", "dtype"), OTHERS)
def test_other_graphs(seen: Any, name: str, dtype: torch.dtype) -> None:
    domains = boxes(np.random.default_rng(5), network(name, 5).input_size, (0.3, 0.02))
    check(seen, name, domains, Effort(), dtype, seed=5)


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("name", ["dense", "scale_after", "conv", "residual", "sigmoid_deep", "gate"])
def test_balls(seen: Any, name: str, norm: float) -> None:
    domains = balls(np.random.default_rng(3), network(name, 3).input_size, (0.02, 0.5), norm)
    check(seen, name, domains, Effort(), DOUBLE if norm == 2 else SINGLE, seed=3)


@pytest.mark.parametrize("effort", ["interval", "forward"])
@pytest.mark.parametrize(
    "name", ["clip", "many_inputs", "conv_max_pool", "residual", "joined", "Sin", "gate"]
)
def test_cheap_efforts(seen: Any, name: str, effort: str) -> None:
    domains = boxes(np.random.default_rng(4), network(name, 4).input_size, (0.05, 1.0))
    check(seen, name, domains, EFFORTS[effort], DOUBLE, seed=4)


@pytest.mark.parametrize(
    "name", ["dense", "scale_around", "conv_norm", "residual", "Tanh", "gate", "attention"]
)
def test_forward_forms(seen: Any, name: str) -> None:
    """Linear bounds from the inputs forward give the reference's intervals, or interval arithmetic's."""
    graph = network(name, 6)
    reference = Reference(graph)
    domains = boxes(np.random.default_rng(6), graph.input_size, (0.05, 0.5))
    program, state, *_ = run(graph, domains, EFFORTS["forward"], DOUBLE)
    for k in range(len(domains)):
        known = seen(reference, program, state, k)
        forms = reference.forward_linear(known.domain, Bounded(known.intervals, known.lines))
        for i, (low, high) in known.intervals.items():
            plain = known.intervals[0] if i == 0 else reference.forward(i, known.intervals)
            best = np.fmax(plain[0], forms[i][0]), np.fmin(plain[1], forms[i][1])
            room = (1e-8 if graph.piecewise_linear else 1e-3) * (1 + np.abs(best[0]) + np.abs(best[1]))
            assert (np.abs(low - best[0]) <= room).all(), f"box {k}, node {i}: low end"
            assert (np.abs(high - best[1]) <= room).all(), f"box {k}, node {i}: high end"


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
@pytest.mark.parametrize(
    "name", ["dense", "clip", "conv_max_pool", "sigmoid_deep", "Reciprocal", "gate", "elu"]
)
def test_any_parameter(seen: Any, name: str, dtype: torch.dtype, per_row: bool) -> None:
    """Whatever parameters an optimiser chooses, the bound is the reference's for the slopes they stand for."""
    graph = network(name, 7)
    reference, program = Reference(graph), Program(graph, Space(dtype))
    domain = boxes(np.random.default_rng(7), graph.input_size, (0.1,))[0]
    rows = np.random.default_rng(8).normal(size=(3, graph.output_size))
    torch.manual_seed(0)
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of([domain], program.space), EFFORTS["interval"])
        for i in program.nonlinear:
            rule = program.relaxations[i]
            assert rule is not None
            width = rule.start(*state.inputs(program, i)).shape[-1]
            program.relax(state, i, torch.rand(1, *([3] if per_row else []), width, dtype=dtype))
        bound = program.lower(state, graph.output, program.space.tensor(rows)[None])[0].double().numpy()
    found = attained(graph, domain, rows)
    for r in range(3):
        known = seen(reference, program, state, 0, r)
        wanted = reference.lower(known.domain, known.intervals, known.lines, {graph.output: rows[r : r + 1]})
        assert bound[r] <= min(wanted.high[0], found[r])
        assert bound[r] >= wanted.low[0] - LOOSE[dtype] * (1 + abs(wanted.low[0]))


@pytest.mark.parametrize(
    "name", ["dense", "deep", "scale_around", "residual", "conv_norm", "conv_average_pool"]
)
def test_charges(seen: Any, name: str) -> None:
    """What float32 rounds on the way back is no more than what it charges, at every point and for every row.

    On a tiny box nearly all neurons are stable, so that no lift hides a rounding error.
    """
    graph = network(name, 9)
    reference, program = Reference(graph), Program(graph, Space(SINGLE))
    domain = boxes(np.random.default_rng(9), graph.input_size, (1e-5,))[0]
    rows = np.random.default_rng(1).normal(size=(40, graph.output_size)).astype(np.float32).astype(np.float64)
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of([domain], program.space), EFFORTS["interval"])
        pushed = program.backward(state, graph.output, program.space.tensor(rows)[None])
    known, points = seen(reference, program, state, 0), sample(domain, 10)
    exact = reference.lower(known.domain, known.intervals, known.lines, {graph.output: rows})
    found, constant, charge = (t[0].double().numpy() for t in (pushed.rows, pushed.constant, pushed.charge))
    error = points @ (found - exact.rows).T + constant - exact.constant
    assert (error <= charge).all()
    assert (error > 0).any(), "nothing was rounded: this test would see nothing"


def problem_of(graph: Graph, domain: Domain) -> Problem:
    """Two disjuncts, of one row and of two; one row mixes inputs and outputs."""
    n = graph.input_size
    first = make_rows([({n: 1.0, n + 1: -1.0}, 0.25)])
    second = make_rows([({n + 2: -1.5}, -0.5), ({0: 0.5, n - 1: -2.0, n + 1: 1.0}, 0.125)])
    return Problem(graph, domain, (first, second))


def margins_of(reference: Reference, problem: Problem, chain: bool) -> Array:
    """What the bounder `crown` should find."""
    inputs, outputs, rhs = all_rows(problem)
    bounded = reference.crown(problem.domain, early=chain)
    rows = {problem.graph.output: outputs, 0: inputs}
    return np.asarray(reference.lower(problem.domain, bounded.intervals, bounded.lines, rows).low - rhs)


@pytest.mark.parametrize("name", [*CHAINS, "abs", "residual", "conv_norm", "conv_max_pool", "joined"])
def test_crown_bounder(name: str) -> None:
    """From nothing to margins: the reference's own bounds, on a single problem and in a batch."""
    graph = network(name, 2)
    problems = [
        problem_of(graph, d) for d in boxes(np.random.default_rng(9), graph.input_size, BATCHES[7][1:])
    ]
    reference, together = Reference(graph), CrownBounder().bound(problems)
    for k, problem in enumerate(problems):
        inputs, outputs, rhs = all_rows(problem)
        found = attained(graph, problem.domain, outputs, inputs) - rhs
        assert (claimed(together[k], problem) <= found).all(), f"problem {k} of the batch"
        if k not in (0, 3):
            continue
        wanted = margins_of(reference, problem, name in CHAINS)
        alone = claimed(CrownBounder().bound([problem])[0], problem)
        room = 1e-7 * (1 + np.abs(wanted))
        assert (np.abs(alone - wanted) <= room).all(), f"problem {k}: {np.abs(alone - wanted).max()}"
        batch = claimed(together[k], problem)
        assert (batch >= alone - room).all(), f"problem {k}: looser in a batch"
        if name in CHAINS:
            assert (batch <= alone + room).all(), f"problem {k}: tighter in a batch"


def claimed(bounds: Bounds, problem: Problem) -> Array:
    """The margins of all rows, one after the other."""
    return np.concatenate(bounds.margins_of(problem))


@pytest.mark.parametrize("name", ["dense", "clip_second_many_inputs"])
def test_many_boxes(seen: Any, name: str) -> None:
    """Sixty-four boxes, the widest ten thousand times as wide as the narrowest."""
    graph = network(name, 8)
    domains = boxes(np.random.default_rng(8), graph.input_size, tuple(np.geomspace(1e-4, 1, 64)))
    reference, made = Reference(graph), run(graph, domains, Effort(), DOUBLE)
    program, state, outputs, inputs, bound = made
    check_rows(seen, reference, made)
    for k in range(0, 64, 3):
        assert (bound[k] <= attained(graph, domains[k], outputs, inputs)).all(), f"box {k}"
    check_intervals(seen, reference, program, state, Effort(), complete=True)


@pytest.mark.parametrize("maker", [IntervalBounder, CrownBounder, AlphaBounder])
@pytest.mark.parametrize("name", ["scale_after_second", "clip", "residual", "gate"])
def test_bounders_and_attained_values(maker: type[IntervalBounder], name: str) -> None:
    """Optimised slopes are nobody's but the optimiser's: values that points attain are what is left to compare."""
    graph = network(name, 4)
    domains = boxes(np.random.default_rng(10), graph.input_size, (0.02, 0.2))
    domains += balls(np.random.default_rng(11), graph.input_size, (0.3,), 2.0)
    problems = [problem_of(graph, d) for d in domains]
    for problem, bounds in zip(problems, maker().bound(problems), strict=True):
        inputs, outputs, rhs = all_rows(problem)
        assert not untrue(bounds, problem, sample(problem.domain, 60))
        assert (claimed(bounds, problem) <= attained(graph, problem.domain, outputs, inputs) - rhs).all()


def test_training_bounds() -> None:
    """The differentiable margins are those of interval arithmetic, and of one backward pass over it."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(32, 40), torch.nn.ReLU(), torch.nn.Linear(40, 30), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(30, 3)).double()
    parts = [m for m in module if isinstance(m, torch.nn.Linear)]
    graph = dense_graph([(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in parts])
    domains = boxes(np.random.default_rng(0), 32, (0.05, 0.4))
    low, high = (torch.as_tensor(np.stack([getattr(d, end) for d in domains])) for end in ("lower", "upper"))
    rows = np.random.default_rng(1).normal(size=(4, 3))
    spread = torch.as_tensor(rows).expand(2, -1, -1)
    with torch.no_grad():
        plain, linear = (f(module, low, high, spread).numpy() for f in (interval_margins, crown_margins))
    reference = Reference(graph)
    for k, domain in enumerate(domains):
        intervals = reference.intervals(domain)
        lines = {
            i: reference.lines(i, intervals, *default_slopes(graph.nodes[i].op, [intervals[i - 1]]))
            for i in graph.relus
        }
        assert np.allclose(linear[k], reference.lower(domain, intervals, lines, {graph.output: rows}).low)
        last = reference.maps[graph.output]
        inside = Domain(*intervals[graph.output - 1])
        assert np.allclose(plain[k], least_over(inside, rows @ last.matrices[0]) + rows @ last.bias)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 26))
@pytest.mark.parametrize("name", NETWORKS)
def test_wide(seen: Any, name: str, seed: int) -> None:
    """More seeds, seven boxes each, both types, all efforts."""
    graph = network(name, seed)
    domains = boxes(np.random.default_rng(seed), graph.input_size, BATCHES[7])
    for effort in (Effort(), EFFORTS["interval"], EFFORTS["forward"], Effort(steps=3)):
        for dtype in (DOUBLE, SINGLE):
            check(seen, name, domains, effort, dtype, seed)
