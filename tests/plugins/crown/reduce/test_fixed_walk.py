"""Large networks with few varying inputs: forms hold exact values within their errors, whatever is rounded or cut."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch

from verifolio.graph import Conv, Dense, Graph, GraphBuilder, Relu, Select, Sum
from verifolio.graph.ops import Array, Op
from verifolio.plugins.crown.propagate.limbs import Limbs, added, split
from verifolio.plugins.crown.reduce import fixed_walk, limb_layers
from verifolio.plugins.crown.reduce.fixed_walk import FixedWalk
from verifolio.plugins.crown.reduce.kept import Forms
from verifolio.plugins.crown.reduce.limb_layers import Convolution, dense_base
from verifolio.run.budget import Budget
from verifolio.testing.attained import attained as exactly
from verifolio.testing.realistic import NETWORKS

NAMES = ("dense", "residual", "conv", "conv_max_pool", "strided")
REACH = 0.25
Coefficients = tuple[float, ...]


def strided(rng: np.random.Generator) -> Graph:
    """Two strided convolutions with padding, a residual sum, and a selection of pixels, on a wide image."""
    builder = GraphBuilder(2 * 9 * 14)
    x, shape = 0, (2, 9, 14)
    for channels, kernel, stride in ((4, 3, 2), (6, 4, 1)):
        size = tuple((s + 2 - kernel) // stride + 1 for s in shape[1:])
        out = (channels, size[0], size[1])
        weight = rng.normal(size=(channels, shape[0], kernel, kernel)) / kernel
        op = Conv(
            int(np.prod(out)), rng.normal(size=channels), weight, shape, out, (stride, stride), (1, 1, 1, 1)
        )
        z, shape = builder.add(op, x), out
        x = builder.add(Sum(op.size, (1.0, -2.0)), builder.add(Relu(op.size), z), z)
    pixels = np.arange(int(np.prod(shape))).reshape(shape)[:, 1::2, ::3]
    x = builder.add(Relu(pixels.size), builder.add(Select(pixels.size, pixels.ravel()), x))
    return builder.finish(x)


def branches(rng: np.random.Generator) -> Graph:
    """Two branches with unstable neurons of their own, each with a dense layer."""
    builder, parts = GraphBuilder(2 * 6 * 6), []
    for channels in (3, 4):
        size = channels * 36
        weight = rng.normal(size=(channels, 2, 3, 3)) / 3
        conv = Conv(
            size, rng.normal(size=channels), weight, (2, 6, 6), (channels, 6, 6), (1, 1), (1, 1, 1, 1)
        )
        z = builder.add(Relu(size), builder.add(conv, 0))
        parts.append(builder.add(Dense(3, rng.normal(size=3), rng.normal(size=(3, size)) / 5), z))
    return builder.finish(builder.add(Sum(3, (1.0, -1.0)), *parts))


def repeated(
    rng: np.random.Generator,
    image: bool,
    factor: float = 2.0**-60,
    coefficients: Coefficients = (1.0, 1.0, -1.0),
) -> Graph:
    """h + 2^-60 h - h, or so: the terms of the sum cancel but for what doubles round."""
    tiny, builder = factor * np.eye(8), GraphBuilder(8)
    first = Dense(8, rng.normal(size=8) / 10, rng.normal(size=(8, 8)))
    last = Dense(8, np.zeros(8), tiny)
    shape, pixel = (8, 1, 1), (8, 8, 1, 1)
    ops: list[Op] = [first, last]
    if image:
        ops = [Conv(8, op.bias, op.weight.reshape(pixel), shape, shape) for op in (first, last)]
    h = builder.add(Relu(8), builder.add(ops[0], 0))
    return builder.finish(
        builder.add(Sum(8, coefficients), *[h, builder.add(ops[1], h), h][: len(coefficients)])
    )


@cache
def network(name: str) -> Graph:
    rng = np.random.default_rng(0)
    return strided(rng) if name == "strided" else NETWORKS[name](rng)


def around(graph: Graph, vary: int, seed: int) -> tuple[Array, list[int], FixedWalk]:
    """A point whose coordinates have few bits, so that it and the corners are doubles; and the walk around it."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=graph.input_size) * 2**20) / 2**20
    free = sorted(rng.choice(graph.input_size, vary, replace=False).tolist())
    lower, upper = [Fraction(v) for v in x], [Fraction(v) for v in x]
    for i in free:
        lower[i], upper[i] = lower[i] - Fraction(REACH), upper[i] + Fraction(REACH)
    return x, free, FixedWalk(graph, Budget(), lower, upper)


def check_forms(forms: Forms, columns: list[Fraction], wanted: list[Fraction]) -> float:
    """The largest difference of exact values and forms; all of them are within their errors."""
    gaps = []
    for row, bias, error, value in zip(forms.rows, forms.bias, forms.error, wanted, strict=True):
        terms = zip(row.tolist(), columns, strict=False)
        found = sum((Fraction(a) * c for a, c in terms), Fraction(float(bias)))
        gaps.append(abs(found - value))
        assert gaps[-1] <= Fraction(float(error))
    return float(max(gaps, default=Fraction(0)))


def check_walk(graph: Graph, seed: int) -> tuple[float, float]:
    """At a corner and in the middle; the largest difference, and the largest error of the outputs."""
    x, free, walk = around(graph, 4, seed)
    outputs = walk.run()
    assert outputs is not None
    worst = 0.0
    for signs in (np.zeros(4), np.array([1, -1, 1, 1.0]), -np.ones(4)):
        point = x.copy()
        point[free] += REACH * signs
        values = exactly(graph, point)
        columns = [Fraction(REACH * s) for s in signs]
        for (node, neurons), layer in zip(walk.open, walk.kept.layers, strict=True):
            z = [values[node].lower[i] for i in neurons.tolist()]
            worst = max(worst, check_forms(layer.forms, columns, z))
            for value, low, high in zip(z, layer.low.tolist(), layer.high.tolist(), strict=True):
                assert Fraction(low) <= value <= Fraction(high)
            columns += [max(v, Fraction(0)) for v in z]
        worst = max(worst, check_forms(outputs, columns, values[graph.output].lower))
    return worst, float(outputs.error.max())


@pytest.mark.parametrize("relative", [0.0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_forms_hold_exact_values(name: str, relative: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients as limbs (0.0) and as doubles (1.0)."""
    monkeypatch.setattr(fixed_walk, "RELATIVE", relative)
    for seed in range(2):
        _, error = check_walk(network(name), seed)
        assert error < 1e-9


@pytest.mark.parametrize("relative", [0.0, 1.0])
def test_branches_keep_their_own_variables(relative: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense layer does not see the neurons of the other branch, which have columns before its own."""
    monkeypatch.setattr(fixed_walk, "RELATIVE", relative)
    for seed in range(2):
        check_walk(branches(np.random.default_rng(seed)), seed)


@pytest.mark.parametrize("image", [True, False])
def test_sums_that_cancel_charge_what_their_terms_round(image: bool) -> None:
    for seed in range(2):
        check_walk(repeated(np.random.default_rng(seed), image), seed)


def test_what_sums_of_changes_cut_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """h + 2^-30 h with one limb for coefficients: the second term is cut off."""
    monkeypatch.setattr(fixed_walk, "RELATIVE", 0.0)
    monkeypatch.setattr(fixed_walk, "CHANGE_LIMBS", 1)
    check_walk(repeated(np.random.default_rng(0), True, 2.0**-30, (1.0, 1.0)), 0)


@pytest.mark.parametrize("limbs", [(2, 4), (7, 1), (7, 2)])
@pytest.mark.parametrize("name", ("conv", "conv_max_pool", "strided"))
def test_what_is_cut_is_charged(name: str, limbs: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With few limbs of the base or of the coefficients, values move visibly, and by no more than the errors say."""
    monkeypatch.setattr(fixed_walk, "RELATIVE", 0.0)
    monkeypatch.setattr(fixed_walk, "BASE_LIMBS", limbs[0])
    monkeypatch.setattr(fixed_walk, "CHANGE_LIMBS", limbs[1])
    moved, _ = check_walk(network(name), 0)
    assert moved > 1e-13


def test_digits_of_weights_that_are_cut_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a dense layer go one after the other; the grid of their digits is that of the largest weight of all."""
    monkeypatch.setattr(limb_layers, "ROWS", 1)
    weight = np.array([[-1.0 - 2.0**-52, 0.0], [2.0**-60 / 3, 2.0**-60 / 7]])
    point = Fraction(1) + Fraction(1, 2**17)
    base, _ = split(torch.tensor([float(point), 0.75], dtype=torch.float64))
    made, lost = dense_base(Dense(2, np.zeros(2), weight), base, 8)
    found = [sum((Fraction(v) for v in column), Fraction(0)) for column in made.parts.T.tolist()]
    exact = [point * Fraction(a) + Fraction(3, 4) * Fraction(b) for a, b in weight.tolist()]
    gaps = [abs(f - e) for f, e in zip(found, exact, strict=True)]
    assert gaps[0] == 0 and 0 < gaps[1] <= Fraction(lost)


def test_neurons_that_nothing_moves_are_not_kept() -> None:
    graph = network("conv")
    _, _, walk = around(graph, 1, 0)
    assert walk.run() is not None
    assert walk.kept.count < graph.neurons / 4


def test_what_overflows_is_not_nought() -> None:
    """Beside a neuron without an upper bound there is one that is 1; of a ReLU of both nothing is known."""
    shape, big = (2, 1, 1), 2.0**290
    builder, value = GraphBuilder(2), 0
    for bias in ([0.0, 1.0], [0.0, 1.0]):
        weight = np.diag([big, 0.0]).reshape(2, 2, 1, 1)
        value = builder.add(Relu(2), builder.add(Conv(2, np.array(bias), weight, shape, shape), value))
    same = builder.add(Select(2, np.arange(2)), value)
    graph = builder.finish(builder.add(Relu(2), same))
    walk = FixedWalk(graph, Budget(), [Fraction(-(2**500)), Fraction(0)], [Fraction(2**500), Fraction(0)])
    assert walk.run() is not None
    assert walk.open[-1][1].tolist() == [0, 1]


def test_no_time_and_no_such_form() -> None:
    graph = network("conv")
    _, _, walk = around(graph, 1, 0)
    walk.budget = Budget(0.0)
    assert walk.run() is None
    other = NETWORKS["scale_after_second"](np.random.default_rng(0))
    assert around(other, 1, 0)[2].run() is None


def test_a_constant_at_nought_stays_within_its_error() -> None:
    """A neuron that is constant and may have either sign: its ReLU is off by no more than is said."""
    graph = network("conv")
    _, _, walk = around(graph, 1, 0)
    node = graph.nodes[graph.relus[0]].parents[0]
    part = walk._part(node)
    assert part is not None
    still = walk.images.shape[node] is not None
    assert still
    walk.parts[node] = part
    size = walk._ends(node).size
    at = int((size == 0).nonzero()[0, 0])
    part.base.parts[:, at] = 0.0
    part.base.parts[-1, at] = -1e-9
    part.error[at] = 3e-9
    made = walk._relu(node)
    assert made.base.value[at] == -1e-9
    assert made.error[at] >= 3e-9
    assert torch.equal(
        made.base.value[size == 0] >= -1e-8, torch.ones_like(size[size == 0], dtype=torch.bool)
    )


@pytest.mark.parametrize(("kernel", "channels"), [(1, 500), (3, 100), (9, 600), (13, 3), (12, 7)])
def test_every_addition_of_a_convolution_is_counted(kernel: int, channels: int) -> None:
    """A block's products are added up, then the blocks."""
    shape, weight = (channels, kernel, kernel), np.ones((1, channels, kernel, kernel))
    op = Conv(1, np.zeros(1), weight, shape, (1, 1, 1))
    terms = channels * kernel**2
    made = Convolution(op, torch.as_tensor(weight), Limbs(torch.zeros(1, 1), 0), None, terms)
    blocks = [min(made.step, channels - k) * kernel**2 for k in range(0, channels, made.step)]
    assert made.additions >= max(blocks) + len(blocks)


def test_a_constant_just_beyond_its_error_is_not_passed_on() -> None:
    """Rounding alone leaves its sign open: its ReLU is nought, and so far is the error."""
    graph = network("conv")
    _, _, walk = around(graph, 1, 0)
    node = graph.nodes[graph.relus[0]].parents[0]
    part = walk._part(node)
    assert part is not None
    walk.parts[node] = part
    at = int((walk._ends(node).size == 0).nonzero()[0, 0])
    part.base.parts[:, at] = 0.0
    part.base.parts[0, at] = -1.0
    part.error[at] = 1.0 - 2.0**-52
    made = walk._relu(node)
    assert made.error[at] >= abs(float(made.base.value[at]))


def test_the_box_around_the_middle_holds_the_ends() -> None:
    """Ends that are no doubles, and differences that round to either side."""
    graph = network("dense")
    rng = np.random.default_rng(4)
    lower = [Fraction(int(a), 3 * 10**9) for a in rng.integers(-(10**9), 10**9, graph.input_size)]
    upper = [a + Fraction(1, 7) for a in lower]
    walk = FixedWalk(graph, Budget(), lower, upper)
    low, high = ([Fraction(v) for v in end[0].tolist()] for end in (walk.region.lower, walk.region.upper))
    for i, m in enumerate(walk.middle.tolist()):
        assert low[i] <= lower[i] - Fraction(m) and upper[i] - Fraction(m) <= high[i]


def test_digits_of_a_bias_that_are_cut_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What splitting leaves and what the sum cuts off both count."""
    graph = network("conv")
    _, _, walk = around(graph, 1, 0)
    bias = torch.tensor([1.0 + 2.0**-40, 2.0**-140 / 3], dtype=torch.float64)
    (base, _), none = split(torch.tensor([0.5, 2.0**-30], dtype=torch.float64)), torch.zeros(2).double()
    for most in (1, 12):
        monkeypatch.setattr(fixed_walk, "BASE_LIMBS", most)
        made = walk._shifted(base, none, bias, none, [])
        constant, left = split(bias)
        _, cut = added([(1.0, base), (1.0, constant)], most)
        assert left > 0 and (cut > 0) == (most == 1)
        for parts, a, b, error in zip(
            made.base.parts.T.tolist(), bias.tolist(), (0.5, 2.0**-30), made.error.tolist(), strict=True
        ):
            gap = abs(sum((Fraction(v) for v in parts), Fraction(0)) - Fraction(a) - Fraction(b))
            assert gap <= Fraction(error)
        assert float(made.error.min()) >= left + cut


def test_digits_of_kernels_that_are_cut_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around nought, where all that is cut is a part of the coefficients."""
    monkeypatch.setattr(fixed_walk, "RELATIVE", 0.0)
    weight = np.array([[1.0, 0.0], [0.0, 2.0**-130 / 3]]).reshape(2, 2, 1, 1)
    builder = GraphBuilder(2)
    graph = builder.finish(builder.add(Conv(2, np.zeros(2), weight, (2, 1, 1), (2, 1, 1)), 0))
    walk = FixedWalk(graph, Budget(), [Fraction(-1)] * 2, [Fraction(1)] * 2)
    forms = walk.run()
    assert forms is not None
    for corner in (Fraction(1), Fraction(-1)):
        exact = [corner * Fraction(float(weight[k, k, 0, 0])) for k in range(2)]
        assert check_forms(forms, [corner, corner], exact) > 0


def test_sizes_of_values_are_theirs() -> None:
    graph = network("conv")
    x, _, walk = around(graph, 1, 0)
    size = walk._sizes(walk.parts[0], walk.images.shape[0])
    reach = np.abs(x)
    reach[walk.vary] += REACH
    assert (size.numpy() >= reach).all() and (size.numpy() <= reach * (1 + 1e-8)).all()


@pytest.mark.parametrize("relative", [0.0, 1.0])
def test_windows_that_cover_an_image_of_one_channel(relative: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three convolutions see 7 pixels in either direction, which is all there are."""
    monkeypatch.setattr(fixed_walk, "RELATIVE", relative)
    rng, builder, x = np.random.default_rng(0), GraphBuilder(49), 0
    for _ in range(4):
        weight = rng.normal(size=(1, 1, 3, 3))
        conv = Conv(49, rng.normal(size=1), weight, (1, 7, 7), (1, 7, 7), (1, 1), (1, 1, 1, 1))
        x = builder.add(Relu(49), builder.add(conv, x))
    check_walk(builder.finish(x), 0)
