"""Bounds hold where rounding is as bad as it gets: an analysis that forgets one of these sums fails here."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from verifolio.graph import (
    Conv,
    Dense,
    Elementwise,
    Graph,
    GraphBuilder,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
)
from verifolio.graph.matrix import conv_matrix
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.forward import AffineEnclosure, ForwardBounds
from verifolio.plugins.crown.propagate.layers import ConvLayer, Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax import Lines
from verifolio.plugins.crown.propagate.relax.relu import ReluRelaxation
from verifolio.plugins.crown.propagate.relax.smooth import SmoothRelaxation
from verifolio.plugins.crown.reduce.compress import compress
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.vnnlib import make_rows

LOST = 2.0**-25  # added to 1 in float32, it vanishes


def lower(graph: Graph, domain: Domain, rows: np.ndarray, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """The bounds of rows over the output, by intervals and one backward pass."""
    space = Space(dtype)
    program = Program(graph, space)
    with torch.no_grad():
        state = intermediate_bounds(program, Region.of([domain], space), Effort(tighten=False))
        bound = program.lower(state, graph.output, space.tensor(rows)[None])
        return np.asarray(bound[0].double())


def point(*values: float) -> Domain:
    return Domain(np.array(values), np.array(values))


def fading(count: int) -> np.ndarray:
    """1 and then many numbers that float32 loses when they are added to it one by one."""
    return np.concatenate([[1.0], np.full(count - 1, LOST)])


@pytest.mark.parametrize("sparse", [False, True])
def test_sum_over_many_outputs_is_charged(sparse: bool) -> None:
    """Backward, a layer with few inputs adds as many terms as it has outputs."""
    from scipy.sparse import csr_array

    weight = np.repeat(fading(8192)[:, None], 16, axis=1)
    op = Sparse(8192, np.zeros(8192), csr_array(weight)) if sparse else Dense(8192, np.zeros(8192), weight)
    builder = GraphBuilder(16)
    graph = builder.finish(builder.add(op, 0))
    truth = -16 * float(sum(map(Fraction, fading(8192))))
    assert lower(graph, point(*np.ones(16)), -np.ones((1, 8192)))[0] <= truth


@pytest.mark.parametrize("batch", [1, 2])
def test_biases_of_smooth_functions_are_charged(batch: int) -> None:
    """A saturated function has slope nought, so the layer before it charges nothing."""
    n = 1 << 11
    builder = GraphBuilder(1)
    wide = builder.add(Dense(n, np.full(n, 50.0), np.zeros((n, 1))), 0)
    graph = builder.finish(builder.add(Elementwise(n, "sigmoid"), wide))
    assert (lower(graph, point(0.0), np.tile(-fading(n), (batch, 1))) <= -fading(n).sum()).all()


def test_biases_of_products_are_charged() -> None:
    n = 1 << 16
    builder = GraphBuilder(1)
    a = builder.add(Dense(n, np.ones(n), np.zeros((n, 1))), 0)
    b = builder.add(Dense(n, np.ones(n), np.zeros((n, 1))), 0)
    graph = builder.finish(builder.add(Product(n), a, b))
    assert lower(graph, point(0.0), -fading(n)[None])[0] <= -fading(n).sum()


def test_long_sums_of_biases_are_charged() -> None:
    n = 1 << 18
    builder = GraphBuilder(n)
    graph = builder.finish(builder.add(Scale(n, -fading(n), np.full(n, 2.0**-40)), 0))
    truth = -fading(n).sum() + 2.0**-40 * 1e-3 * n
    assert lower(graph, point(*np.full(n, 1e-3)), np.ones((1, n)))[0] <= truth


def test_fan_out_is_charged() -> None:
    """Several copies of one value meet again; what they lose on the way cancels and leaves no trace."""
    builder = GraphBuilder(1)
    hidden = builder.add(Dense(1, np.zeros(1), np.array([[1024.0]])), 0)
    graph = builder.finish(builder.add(Select(3, np.zeros(3, np.int64)), hidden))
    rows = np.array([[1.0, -LOST * 1.5, -1.0]])
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        assert lower(graph, point(1.0), rows[:, order])[0] <= -LOST * 1.5 * 1024


def crown(problem: Problem, split: str, seconds: float = 0.5) -> Verdict:
    options = CrownOptions(split=split)  # type: ignore[arg-type]
    return Crown(options).run(problem, Context(Budget(seconds))).verdict


def test_a_bias_that_swallows_the_columns_of_a_form_is_charged() -> None:
    """Forward, columns are made with the bias and without it: float32 loses 200 numbers beside a large one.

    The next bias takes the large number away again, and with it all that the size of the form charges.
    """
    inputs, space = 200, Space(torch.float32)
    builder = GraphBuilder(inputs)
    node = builder.add(Dense(4, np.zeros(4), np.full((4, inputs), 1.2e-4)), 0)
    node = builder.add(Dense(1, np.array([1e4]), np.ones((1, 4))), node)
    graph = builder.finish(builder.add(Dense(1, np.array([-1e4]), np.ones((1, 1))), node))
    state = State(Region.of([Domain(-np.ones(inputs), np.ones(inputs))], space))
    state.interval = {i: (torch.full((1, 1), -1e9), torch.full((1, 1), 1e9)) for i in range(4)}
    forward = ForwardBounds(Program(graph, space), state)
    for i in (1, 2, 3):
        forward.add(i)
    low, high = (float(end.double()) for end in state.interval[graph.output])
    reach = inputs * 4 * 1.2e-4 * (1 - 1e-6)  # weights are rounded to float32 by less than that
    assert low <= -reach and high >= reach


CONV = {"plain": (9, 2, 1, False), "narrow": (2, 9, 1, False), "groups": (8, 8, 4, False)}
CONV |= {"transposed": (2, 9, 1, True), "wide transposed": (9, 2, 1, True), "both": (8, 4, 2, True)}


@pytest.mark.parametrize("kind", CONV)
def test_no_sum_of_a_convolution_is_longer_than_its_terms(kind: str) -> None:
    """Forward, a sum has as many terms as a row of the matrix; backward, as a column."""
    channels, outputs, groups, transposed = CONV[kind]
    shape = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    size = (9, 8) if transposed else (5, 4)
    op = Conv(
        outputs * size[0] * size[1],
        np.zeros(outputs),
        np.ones((*shape, 3, 3)),
        (channels, 7, 6),
        (outputs, *size),
        groups=groups,
        transposed=transposed,
    )
    entries = conv_matrix(op, op.weight).tocsr()
    longest = max(np.diff(entries.indptr).max(), np.diff(entries.tocsc().indptr).max())
    assert ConvLayer(op, Space(torch.float64)).terms >= longest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lifts_of_many_neurons_have_room_for_their_sum(dtype: torch.dtype) -> None:
    """Added up one after the other they lose at most a unit each, which every lift has in reserve."""
    rng, size = np.random.default_rng(8), 3000
    low, high = (
        torch.from_numpy(v)[None].to(dtype) for v in (-rng.uniform(0.5, 1, size), rng.uniform(0.5, 1, size))
    )
    lines = ReluRelaxation().lines(None, (low, high))
    assert lines.upper_bias is not None
    slope, lift, unit = lines.upper_slope[0].double(), lines.upper_bias.double(), torch.finfo(dtype).eps
    needed = -slope * low.double() * (1 + 0.99 * size * unit)
    assert bool((lift >= needed).all())


def test_the_error_of_a_form_is_not_rounded_down_by_a_relaxation() -> None:
    """A form that is nothing but error: it grows by the larger slope, in exact arithmetic."""
    rng, size, space = np.random.default_rng(5), 400, Space(torch.float64)
    builder = GraphBuilder(size)
    graph = builder.finish(builder.add(Relu(size), 0))
    state = State(Region.of([Domain(-np.ones(size), np.ones(size))], space))
    state.interval = {i: (torch.full((1, size), -1.0), torch.full((1, size), 1.0)) for i in range(2)}
    slope = torch.from_numpy(rng.uniform(0.5, 1.0, (1, size)))
    state.lines = {1: Lines((slope / 2,), (slope,), None, None)}
    forward = ForwardBounds(Program(graph, space), state)
    error = torch.from_numpy(rng.uniform(0.5, 1.0, (1, size)))
    columns = torch.zeros_like(forward.forms[0].centre)
    forward.forms[0] = AffineEnclosure(columns, columns, error)
    forward.add(1)
    made = forward.forms[1].error[0].tolist()
    for value, s, e in zip(made, slope[0].tolist(), error[0].tolist(), strict=True):
        assert Fraction(value) >= Fraction(s) * Fraction(e)


@pytest.mark.parametrize("split", ["neuron", "none", "input"])
def test_overflown_neurons_are_not_dropped(split: str) -> None:
    """float32 cannot hold 1e50; the network's output is at least that, and so at least 1."""
    builder = GraphBuilder(1)
    node = 0
    for weight, bias in ((1e25, 2e25), (1e25, 0.0)):
        node = builder.add(Relu(1), builder.add(Dense(1, np.array([bias]), np.array([[weight]])), node))
    problem = Problem(
        builder.finish(node), Domain(-np.ones(1), np.ones(1)), (make_rows([({1: -1.0}, -1.0)]),)
    )
    assert crown(problem, split) is not Verdict.UNSAT


def test_compress_keeps_neurons_without_bounds() -> None:
    builder = GraphBuilder(1)
    hidden = builder.add(Dense(1, np.ones(1), np.ones((1, 1))), 0)
    graph = builder.finish(builder.add(Relu(1), hidden))
    region = Region.of([Domain(np.zeros(1), np.ones(1))], Space(torch.float64))
    nowhere = torch.full((1, 1), torch.nan, dtype=torch.float64)
    small = compress(graph, region, {hidden: (nowhere, nowhere)}, torch.ones(1, 1), torch.zeros(1, 1))
    assert small.graph.neurons == 1


@pytest.mark.parametrize("split", ["neuron", "none", "input", "auto"])
@pytest.mark.parametrize("mixed", [False, True])
def test_rows_that_float32_cannot_hold(split: str, mixed: bool) -> None:
    """0.3 y_1 - 0.1 y_0 is nought where y_0 = 3 y_1; with the coefficients rounded it is not."""
    n = 13
    weight = np.zeros((2, n))
    weight[:, 0] = 3.0, 1.0
    builder = GraphBuilder(n)
    graph = builder.finish(builder.add(Dense(2, np.zeros(2), weight), 0))
    terms = {n: -0.1, 0: 0.3} if mixed else {n: -0.1, n + 1: 0.3}
    upper = np.full(n, 0.75)
    upper[0] = 1.0
    problem = Problem(graph, Domain(np.full(n, 0.5), upper), (make_rows([(terms, 1e-9)]),))
    assert crown(problem, split) is not Verdict.UNSAT


@pytest.mark.parametrize("function", ["sin", "cos"])
@pytest.mark.parametrize("size", [1e3, 1e8, 1e12, 1e15])
def test_waves_far_from_nought(function: str, size: float) -> None:
    """Critical points are only known up to the rounding of multiples of 2 pi."""
    low = torch.tensor([[size]], dtype=torch.float64)
    high = low + 16.0
    x = torch.linspace(0, 1, 4001, dtype=torch.float64)[:, None] * (high - low) + low
    rule = SmoothRelaxation(function, 0.0)
    value = rule.function.value(x, 0.0)
    below, above = rule.interval((low, high))
    assert float(below) <= float(value.min()) and float(above) >= float(value.max())


def test_tiny_rows_over_a_round_ball() -> None:
    """Squares of entries below 1e-23 vanish in float32, the entries do not."""
    builder = GraphBuilder(2)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[1e-24, 1e-24]])), 0))
    domain = Domain(-np.full(2, 2.0), np.full(2, 2.0), ball=Ball(np.zeros(2), 1.0, 2.0))
    assert lower(graph, domain, np.ones((1, 1)))[0] <= -1e-24 * np.sqrt(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_overflow_proves_nothing(dtype: torch.dtype) -> None:
    most = float(torch.finfo(dtype).max)
    builder = GraphBuilder(4)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[0.9, 0.9, -0.9, -0.9]]) * most), 0))
    assert not lower(graph, point(1.0, 1.0, 1.0, 1.0), np.ones((1, 1)), dtype)[0] > 0


def test_underflow_is_charged() -> None:
    """A row of 1e-30 over weights of 1.3e-14 leaves float32's normal numbers."""
    builder = GraphBuilder(1)
    weight = 1.3 * 2.0**-47
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[weight]])), 0))
    for scale in (1.0, -1.0):
        row = scale * float(np.float32(2.0**-100))
        assert lower(graph, point(1000.0), np.array([[row]]))[0] <= row * weight * 1000


def test_underflow_is_charged_for_the_far_end_of_a_box() -> None:
    """-2^-100 times 5.2 * 2^-49 is rounded to -5 * 2^-149 in float32; at 2^30 that is more than any other charge."""
    builder = GraphBuilder(1)
    weight = float(np.float32(1.3)) * 2.0**-47
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[weight]])), 0))
    for ends, sign in (((0.0, 2.0**30), -1.0), ((-(2.0**30), 0.0), 1.0)):
        found = lower(graph, Domain(np.array(ends[:1]), np.array(ends[1:])), np.array([[sign * 2.0**-100]]))
        assert found[0] <= -(2.0**-100) * weight * 2.0**30


@pytest.mark.parametrize("rows", [0, 5])
def test_the_noise_of_a_line_is_at_least_that_of_its_terms(rows: int) -> None:
    """|k x| + |b| for every input of a function or product, either line, every row of its own, at both ends."""
    rng, width = np.random.default_rng(3), 32
    builder = GraphBuilder(width)
    smooth = builder.add(Elementwise(width, "sigmoid"), 0)
    graph = builder.finish(builder.add(Product(width), smooth, 0))
    program = Program(graph, Space(torch.float32))
    low = rng.normal(size=width) * 3
    region = Region.of([Domain(low, low + rng.uniform(0, 4, width))], program.space)
    with torch.no_grad():
        state = intermediate_bounds(program, region, Effort(tighten=False))
        for node in (smooth, graph.output):
            assert node in program.charged
            rule = program.relaxations[node]
            assert rule is not None
            start = rule.start(*state.inputs(program, node))
            shape = (1, rows, start.shape[-1]) if rows else start.shape
            program.relax(state, node, torch.as_tensor(rng.uniform(size=shape), dtype=torch.float32))
            lines, noise = state.lines[node], state.noise[node][0].double()
            for slopes, bias in (
                (lines.lower_slope, lines.lower_bias),
                (lines.upper_slope, lines.upper_bias),
            ):
                assert bias is not None
                size = bias.double().abs()
                for slope, ends in zip(slopes, state.inputs(program, node), strict=True):
                    furthest = torch.stack(ends).double().abs().amax(0)
                    size = size + slope.double().abs() * furthest
                assert bool((noise >= program.extra * program.space.unit * size).all())


def test_optimised_slopes_leave_the_noise_of_the_lines_in_use() -> None:
    from verifolio.plugins.crown.optimise.row_slopes import ascend_rows

    rng = np.random.default_rng(0)
    builder = GraphBuilder(2)
    first = builder.add(Dense(4, rng.normal(size=4), rng.normal(size=(4, 2))), 0)
    smooth = builder.add(Elementwise(4, "tanh"), first)
    graph = builder.finish(builder.add(Dense(3, rng.normal(size=3), rng.normal(size=(3, 4))), smooth))
    program = Program(graph, Space(torch.float32))
    state = intermediate_bounds(
        program, Region.of([Domain(-np.ones(2), np.ones(2))], program.space), Effort()
    )
    before = {i: n.clone() for i, n in state.noise.items()}
    ascend_rows(program, state, graph.output, torch.eye(3)[None], 3, None)
    for i, noise in before.items():
        assert torch.equal(state.noise[i], noise)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [None, 1.0, 2.0])
def test_the_minimum_over_a_set_is_charged(dtype: torch.dtype, norm: float | None) -> None:
    """A set of one point: about half of all sums are rounded up, and none of them may be believed."""
    rng = np.random.default_rng(0)
    n, count, space = 50, 200, Space(dtype)
    x = rng.normal(size=n).astype(np.float32).astype(np.float64)
    rows = rng.normal(size=(count, n)).astype(np.float32).astype(np.float64)
    ball = None if norm is None else Ball(x, 0.0, norm)
    region = Region.of([Domain(x, x, None, ball)], space)
    found = region.minimise(space.tensor(rows)[None], 0)[0].double().tolist()
    point_of = [Fraction(v) for v in x]
    for row, bound in zip(rows, found, strict=True):
        assert Fraction(bound) <= sum(Fraction(a) * b for a, b in zip(row, point_of, strict=True))


def test_the_charge_over_a_box_is_that_of_the_longest_sum() -> None:
    """A sum of n products may be off by n units of its size: no less is charged, however it was summed here."""
    rng, n = np.random.default_rng(1), 784
    x = rng.normal(size=n).astype(np.float32).astype(np.float64)
    rows = rng.normal(size=(20, n)).astype(np.float32).astype(np.float64)
    space = Space(torch.float32)
    found = Region.of([Domain(x, x)], space).minimise(space.tensor(rows)[None], 0)[0].double().numpy()
    # what the sum itself is off here is far below a tenth of the charge
    assert (found <= rows @ x - 0.9 * n * space.unit * (np.abs(rows) @ np.abs(x))).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_chord_of_a_relu_lies_above_both_ends(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    low = torch.as_tensor(-(10.0 ** rng.uniform(-6, 6, (1, 500))), dtype=dtype)
    high = torch.as_tensor(10.0 ** rng.uniform(-6, 6, (1, 500)), dtype=dtype)
    lines = ReluRelaxation().lines(None, (low, high))
    assert lines.upper_bias is not None
    for a, b, slope, lift in zip(low[0], high[0], lines.upper_slope[0][0], lines.upper_bias[0], strict=True):
        s, t = Fraction(slope.item()), Fraction(lift.item())
        assert s * Fraction(a.item()) + t >= 0
        assert s * Fraction(b.item()) + t >= Fraction(b.item())


@pytest.mark.parametrize("split", ["input", "neuron", "none", "auto"])
def test_what_a_stored_bias_may_be_off_is_charged(split: str) -> None:
    """The bias is 1 up to 1/4: relu(x + bias) may be 0.75, below the 0.9 that is asked for."""
    builder = GraphBuilder(2)
    off = Dense(2, np.ones(2), np.eye(2), None, np.full(2, 0.25))
    graph = builder.finish(
        builder.add(Dense(1, np.zeros(1), np.ones((1, 2)) / 2), builder.add(Relu(2), builder.add(off, 0)))
    )
    problem = Problem(graph, Domain(np.zeros(2), np.ones(2)), (make_rows([({2: 1.0}, 0.9)]),))
    assert crown(problem, split) is not Verdict.UNSAT
    impossible = Problem(graph, problem.domain, (make_rows([({2: 1.0}, 0.7)]),))
    assert crown(impossible, split) is Verdict.UNSAT


def test_weights_too_small_for_single_precision_are_not_nought() -> None:
    """10^10 x, times 5 10^-46, times 10^30 reaches 5 10^-6."""
    builder, value = GraphBuilder(1), 0
    for weight in (1e10, 5e-46, 1e30):
        value = builder.add(Dense(1, np.zeros(1), np.full((1, 1), weight)), value)
    graph = builder.finish(value)
    low, negative = lower(graph, point(1.0), np.array([[1.0], [-1.0]]))
    assert low <= 5e-6 <= -negative
