"""Zonotopes and the sums of softmaxes against the plain reference and against values that points attain."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from verifolio.graph import Elementwise, Graph, GraphBuilder, Relu, Sparse
from verifolio.graph.softmax import simplices
from verifolio.model.problem import Domain
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate import zonotopes
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.base import Lines
from verifolio.plugins.crown.propagate.zonotopes import Zonotopes
from verifolio.testing.realistic import BRANCHED, NETWORKS, SMOOTH, boxes
from verifolio.testing.reference import Reference, attained, zonotope_intervals
from verifolio.testing.trial import evaluate, sample

EFFORT = Effort(tighten=False, zonotopes=True)
NAMES = ["dense", "deep", "many_inputs", "scale_around", "clip", "max", *BRANCHED, *SMOOTH]
COMPARED = ["dense", "scale_around", "clip", "conv_norm", "conv_max_pool", "residual", "upsampled", "joined"]
COMPARED += ["Tanh", "Sigmoid", "gate", "quadratic", "softmax", "attention"]


def made(name: str, radius: float, dtype: torch.dtype = torch.float64) -> tuple[Graph, Program, State]:
    graph = NETWORKS[name](np.random.default_rng(3))
    program = Program(graph, Space(dtype))
    region = Region.of(boxes(np.random.default_rng(4), graph.input_size, (radius,)), program.space)
    with torch.no_grad():
        return graph, program, intermediate_bounds(program, region, EFFORT)


def check_attained(seen: Any, graph: Graph, program: Program, state: State) -> None:
    """No point lies outside of an interval; the output's meets the values that a descent finds."""
    domain = seen(Reference(graph), program, state, 0).domain
    values = evaluate(graph, sample(domain, 40, seed=1))
    for i, (low, high) in state.interval.items():
        room = 1e-12 * (1 + np.abs(values[i]).max())
        assert not (values[i] < low[0].double().numpy() - room).any(), f"node {i}"
        assert not (values[i] > high[0].double().numpy() + room).any(), f"node {i}"
    one = np.eye(graph.output_size)
    least, most = (end[0].double().numpy() for end in state.interval[graph.output])
    assert not (least > attained(graph, domain, one)).any()
    assert not (most < -attained(graph, domain, -one)).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_attained_lies_outside(seen: Any, name: str, dtype: torch.dtype) -> None:
    for radius in (1e-6, 0.1, 1.0):
        check_attained(seen, *made(name, radius, dtype))


@pytest.mark.parametrize("name", COMPARED)
def test_equal_to_the_reference(seen: Any, name: str) -> None:
    """Intervals are the reference's, or interval arithmetic's: no narrower, and no wider than rounding explains."""
    graph, program, state = made(name, 0.1)
    reference = Reference(graph)
    known = seen(reference, program, state, 0)
    plain = zonotope_intervals(reference, known.domain, known.intervals)
    for i in (*program.before, graph.output):
        low, high = known.intervals[i]
        around = reference.forward(i, known.intervals) if i else known.intervals[0]
        best = np.fmax(around[0], plain[i][0]), np.fmin(around[1], plain[i][1])
        room = (1e-9 if graph.piecewise_linear else 1e-3) * (1 + np.abs(best[0]) + np.abs(best[1]))
        assert (np.abs(low - best[0]) <= room).all(), f"node {i}: low end"
        assert (np.abs(high - best[1]) <= room).all(), f"node {i}: high end"


@pytest.mark.parametrize("name", ["conv_norm", "residual", "attention", "joined"])
def test_without_room(seen: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rows that are not kept are computed again: errors stay by themselves, and all bounds hold."""
    _, program, roomy = made(name, 0.1)
    monkeypatch.setattr(zonotopes, "STORED", 0)
    monkeypatch.setattr(zonotopes, "CHUNK", 100)
    graph, _, tight = made(name, 0.1)
    check_attained(seen, graph, program, tight)
    widths = [
        sum(float((s.interval[p][1] - s.interval[p][0]).sum()) for p in program.before)
        for s in (roomy, tight)
    ]
    assert widths[0] <= widths[1] * (1 + 1e-9)


def test_few_symbols(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zonotopes, "MOST_SYMBOLS", 40)
    for name in ("dense", "attention"):
        check_attained(seen, *made(name, 0.1))


def test_several_threads_give_the_same() -> None:
    graph, program, state = made("attention", 0.1)
    other = program.enter(state.region)
    forms = Zonotopes(program, other, cores=3)
    for node in range(1, graph.output + 1):
        program.forward(other, node)
        program.relax(other, node)
        forms.add(node)
    for i, ends in state.interval.items():
        for mine, theirs in zip(ends, other.interval[i], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_an_undefined_function_leaves_the_rest_alone(seen: Any) -> None:
    """On a wide box the logarithm's argument may be negative: nothing is said after it, and nothing wrong."""
    for name in ("Log", "Reciprocal", "Sqrt"):
        _, program, state = made(name, 50.0)
        low, high = state.interval[program.graph.output]
        assert not bool((low > high).any())


def softmax(members: int, groups: int = 1, skip: int = -1, weight: float = 1.0) -> Graph:
    """Softmaxes side by side, as the importer writes them; `skip`: one entry is left out."""
    builder = GraphBuilder(members * groups)
    rows = [g * members + k for g in range(groups) for k in range(members)]
    rows = [r for k, r in enumerate(rows) if k != skip]
    gaps: list[tuple[int, int]] = []
    total: list[tuple[int, int]] = []
    for k, r in enumerate(rows):
        first = r // members * members
        for other in range(first, first + members):
            if other != r:
                total.append((k, len(gaps)))
                gaps.append((other, r))
    difference = np.zeros((len(gaps), members * groups))
    for k, (plus, minus) in enumerate(gaps):
        difference[k, plus], difference[k, minus] = weight, -1.0
    sums = np.zeros((len(rows), len(gaps)))
    for k, g in total:
        sums[k, g] = 1.0
    x = builder.add(Sparse(len(gaps), np.zeros(len(gaps)), sparse.csr_array(difference)), 0)
    x = builder.add(Elementwise(len(gaps), "exp"), x)
    x = builder.add(Sparse(len(rows), np.ones(len(rows)), sparse.csr_array(sums)), x)
    return builder.finish(builder.add(Elementwise(len(rows), "reciprocal"), x))


def test_whole_softmaxes_are_found() -> None:
    graph = softmax(5, 3)
    assert [g.tolist() for g in simplices(graph)[graph.output]] == np.arange(15).reshape(3, 5).tolist()
    values = evaluate(graph, np.random.default_rng(0).normal(size=(4, 15)) * 3)[graph.output]
    assert np.allclose(values.reshape(4, 3, 5).sum(2), 1)


def test_parts_of_a_softmax_are_not_taken_for_one() -> None:
    assert simplices(softmax(5, 1, skip=2)) == {}
    assert [g.tolist() for g in simplices(softmax(3, 2, skip=0)).values()] == [[[2, 3, 4]]]
    assert simplices(softmax(4, weight=1.5)) == {}


def test_a_sum_of_one_softmax_is_known_exactly() -> None:
    """All entries together are one, whatever the box; without the sum their lines would leave a wide gap."""
    graph = softmax(32)
    program = Program(graph, Space(torch.float64))
    region = Region(-torch.ones(1, 32, dtype=torch.float64), torch.ones(1, 32, dtype=torch.float64))
    with torch.no_grad():
        state = intermediate_bounds(program, region, Effort())
        rows = torch.ones(1, 1, 32, dtype=torch.float64)
        bound = torch.cat([program.lower(state, graph.output, sign * rows) for sign in (1, -1)])
    assert bool((bound[0] <= 1).all() and (bound[0] >= 1 - 1e-9).all())
    assert bool((bound[1] <= -1).all() and (bound[1] >= -1 - 1e-9).all())


@pytest.mark.parametrize("name", ["softmax", "attention"])
def test_rows_that_many_levels_move(seen: Any, name: str) -> None:
    """Large common parts of the rows over a softmax: the bound stays below what points attain."""
    graph, program, state = made(name, 0.1)
    reference = Reference(graph)
    node = next(iter(program.simplices))
    rows = np.random.default_rng(2).normal(size=(6, program.sizes[node])) + 1e4 * np.arange(6)[:, None]
    with torch.no_grad():
        bound = program.lower(state, node, torch.tensor(rows)[None])[0].numpy()
    known = seen(reference, program, state, 0)
    wanted = reference.lower(known.domain, known.intervals, known.lines, {node: rows})
    assert (bound <= wanted.high).all()
    assert (bound >= wanted.low - 1e-8 * np.abs(wanted.low)).all()
    values = evaluate(graph, sample(known.domain, 200, seed=5))[node]
    assert (bound <= (values @ rows.T).min(0) + 1e-9 * np.abs(rows).max(1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_lines_of_one_slope_enclose_any_two_lines(seed: int) -> None:
    """Lines of two slopes, rising and falling, at both ends of intervals on either side of nought, exactly."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.normal(size=(2, 2, 40)), 1)  # of two inputs
    slopes, biases = rng.normal(size=(2, 2, 40)), rng.normal(size=(2, 40))
    inputs = [(torch.tensor(low)[None], torch.tensor(high)[None]) for low, high in ends]
    below, above = ([torch.tensor(s)[None] for s in part] for part in slopes)
    given = Lines(tuple(below), tuple(above), torch.tensor(biases[0])[None], torch.tensor(biases[1])[None])
    chosen, low, high = zonotopes.parallel(given, inputs, 2.0**-53)
    exact = np.vectorize(Fraction)
    k = [exact(c[0].numpy()) for c in chosen]
    for corner in itertools.product((0, 1), repeat=2):
        z = [exact(ends[i, at]) for i, at in enumerate(corner)]
        flat = k[0] * z[0] + k[1] * z[1]
        lines = [
            exact(s[0]) * z[0] + exact(s[1]) * z[1] + exact(b) for s, b in zip(slopes, biases, strict=True)
        ]
        assert (flat + exact(low[0].numpy()) <= lines[0]).all()
        assert (flat + exact(high[0].numpy()) >= lines[1]).all()


def test_rows_stay_while_others_are_computed_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed anew they might be rounded differently, which an error that got a number of its own does not allow."""
    monkeypatch.setattr(zonotopes, "STORED", 0)
    graph, program, state = made("residual", 0.1)
    other = program.enter(state.region)
    forms = Zonotopes(program, other)
    for node in range(1, graph.output + 1):
        program.forward(other, node)
        program.relax(other, node)
        forms.add(node)
    assert all(forms.last[p] >= forms.last[i] for i, parents in enumerate(program.parents) for p in parents)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_relaxed_value_is_within_its_error(dtype: torch.dtype) -> None:
    """At both ends of every interval, with the stored numbers as fractions: what their sums lose is in the error."""
    count, rng = 5000, np.random.default_rng(0)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    low, high = (sign * (10.0 ** rng.uniform(-6, 3, count)).astype(kind).astype(float) for sign in (-1, 1))
    builder = GraphBuilder(count)
    program = Program(builder.finish(builder.add(Relu(count), 0)), Space(dtype))
    state = intermediate_bounds(program, Region.of([Domain(low, high)], program.space), EFFORT)
    forms = Zonotopes(program, state)
    forms.add(1)
    first, made, slope = forms.nodes[0], forms.nodes[1], forms.slopes[1][0]
    assert first.own is not None and first.values is not None and len(first.own) == count
    numbers = (first.centre, first.values, made.centre, made.error, slope)
    for *ends, middle, reach, centre, error, k in zip(low, high, *(n.tolist() for n in numbers), strict=True):
        for x in map(Fraction, ends):
            t = (x - Fraction(middle)) / Fraction(reach)
            at = Fraction(centre) + Fraction(k) * Fraction(reach) * t
            assert abs(t) <= 1 and abs(max(x, Fraction(0)) - at) <= Fraction(error)
