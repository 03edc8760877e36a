"""Bounds by windows: those of rows over whole layers, at most what the reference allows; only what a row needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.graph import Conv, Graph, GraphBuilder, Relu, Select, Sparse, Sum
from verifolio.graph.enclosure import enclose
from verifolio.graph.matrix import conv_matrix
from verifolio.model.problem import Ball, Domain
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.optimise.row_slopes import unit_rows
from verifolio.plugins.crown.propagate.cone import cone
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.patches import PatchBounds
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.testing.realistic import Model
from verifolio.testing.reference import Reference

IMAGE = (1, 3, 14, 11)
CHANNELS = 6


def residual(seed: int, pool: str = "") -> Graph:
    """Convolutions of several strides and pads, a residual block, a pool, a scaling; the output is an image."""
    rng = np.random.default_rng(seed)
    model = Model(rng, *IMAGE)

    def conv(x: str, inputs: int, kernel: tuple[int, int], **attributes: Any) -> str:
        size = np.sqrt(1.5 / (inputs * kernel[0] * kernel[1]))
        weight = model.const(rng.normal(size=(CHANNELS, inputs, *kernel)) * size)
        return model.op("Conv", x, weight, model.const(rng.normal(size=CHANNELS) * 0.2), **attributes)

    x = model.op("Relu", conv("x", 3, (3, 3), pads=[1, 0, 1, 2]))
    inner = model.op("Relu", conv(x, CHANNELS, (3, 3), pads=[1, 1, 1, 1], dilations=[1, 1]))
    x = model.op("Relu", model.op("Add", x, conv(inner, CHANNELS, (3, 1), pads=[1, 0, 1, 0])))
    if pool:
        x = model.op(pool, x, kernel_shape=[2, 2], strides=[2, 2])
    shift = model.const(rng.normal(size=(1, CHANNELS, 1, 1)))
    x = model.op("Mul", x, model.const(rng.normal(size=(1, CHANNELS, 1, 1))))
    left = conv(model.op("Add", x, shift), CHANNELS, (1, 1), strides=[2, 2])
    right = conv(x, CHANNELS, (3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    x = model.op("Relu", model.op("Add", left, right))
    return model.graph(conv(x, CHANNELS, (2, 2)))


def region_of(seed: int, space: Space, radius: float = 0.05) -> Region:
    centre = np.random.default_rng(seed).normal(size=int(np.prod(IMAGE)))
    return Region.of([Domain(centre - radius, centre + radius)], space)


def by_patches(program: Program, state: State, node: int, elements: int = 1 << 14) -> tuple[Any, Any]:
    patches = PatchBounds(program, state, node)
    low, high = (torch.full((program.sizes[node],), torch.nan, dtype=program.space.dtype) for _ in range(2))
    for piece in patches.pieces(torch.arange(program.sizes[node]), elements):
        low[piece], high[piece] = patches.both_ends(piece)
    return low, high


@torch.no_grad()
@pytest.mark.parametrize("pool", ["", "MaxPool", "AveragePool"])
def test_windows_give_the_bounds_of_whole_rows(pool: str) -> None:
    program = Program(residual(1, pool), Space(torch.float64))
    state = intermediate_bounds(program, region_of(2, program.space), Effort(tighten=False))
    assert len(program.images.convolutions) == (2 if pool == "MaxPool" else 0)
    images = [i for i in program.before if program.mixing[i] > 1 and program.images.shape[i] is not None]
    assert len(images) >= (5 if pool == "MaxPool" else 3)
    for node in [*images, program.graph.output]:
        count = program.sizes[node]
        whole = program.lower(state, node, unit_rows(program, node, torch.arange(count)))[0]
        low, high = by_patches(program, state, node)
        torch.testing.assert_close(low, whole[:count], rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(high, whole[count:], rtol=1e-11, atol=1e-11)


def unequal(seed: int) -> Graph:
    """Branches that read an image in different strides: a strided convolution, a part of the image, a product."""
    rng = np.random.default_rng(seed)
    model = Model(rng, *IMAGE)

    def conv(x: str, inputs: int, **attributes: Any) -> str:
        weight = rng.normal(size=(CHANNELS, inputs, 3, 3)) * 0.3
        return model.op("Conv", x, model.const(weight), model.const(rng.normal(size=CHANNELS)), **attributes)

    x = model.op("Relu", conv("x", 3, pads=[1, 1, 1, 1]))
    half = conv(x, CHANNELS, pads=[1, 1, 1, 1], strides=[2, 2])  # 7 x 6
    part = model.op("Slice", x, *(model.const(np.array(v)) for v in ([2, 1], [9, 7], [2, 3])))
    both = model.op("Relu", model.op("Add", half, part))
    other = model.op("Relu", conv(both, CHANNELS, pads=[1, 1, 1, 1]))
    return model.graph(conv(model.op("Mul", both, other), CHANNELS, pads=[0, 1, 1, 0]))


@torch.no_grad()
def test_windows_of_unequal_strides_meet_as_whole_rows() -> None:
    program = Program(unequal(3), Space(torch.float64))
    state = intermediate_bounds(program, region_of(3, program.space), Effort(tighten=False))
    images = [i for i in program.before if program.mixing[i] > 1 and program.images.shape[i] is not None]
    strides = {w.stride for w in program.images.window if w is not None}
    assert len(images) >= 2 and strides == {(1, 1), (2, 2)}
    for node in [*images, program.graph.output]:
        count = program.sizes[node]
        whole = program.lower(state, node, unit_rows(program, node, torch.arange(count)))[0]
        low, high = by_patches(program, state, node)
        torch.testing.assert_close(torch.cat([low, high]), whole, rtol=1e-11, atol=1e-11)


def linear_blocks(seed: int) -> Graph:
    """Padded convolutions that read a convolution, a sum or a part of an image: nothing there is cut to the image."""
    rng = np.random.default_rng(seed)
    model = Model(rng, *IMAGE)

    def conv(x: str, inputs: int, kernel: tuple[int, int], pads: list[int]) -> str:
        weight = rng.normal(size=(CHANNELS, inputs, *kernel)) * np.sqrt(
            1.5 / (inputs * kernel[0] * kernel[1])
        )
        bias = model.const(rng.normal(size=CHANNELS))
        return model.op("Conv", x, model.const(weight), bias, pads=pads)

    first = model.op("Relu", conv("x", 3, (3, 3), [1, 1, 1, 1]))
    twice = conv(conv(first, CHANNELS, (1, 1), [0, 0, 0, 0]), CHANNELS, (3, 3), [1, 0, 1, 2])
    short = model.op("Add", conv(first, CHANNELS, (1, 1), [0, 0, 0, 0]), twice)
    block = model.op("Relu", conv(short, CHANNELS, (3, 3), [2, 1, 0, 1]))
    part = model.op("Slice", block, *(model.const(np.array(v)) for v in ([2, 1], [12, 9], [2, 3])))
    return model.graph(conv(part, CHANNELS, (3, 3), [1, 1, 1, 1]))


@torch.no_grad()
def test_pixels_of_the_padding_of_a_linear_node_count_for_nothing() -> None:
    program = Program(linear_blocks(12), Space(torch.float64))
    ops = [n.op for n in program.graph.nodes]
    padded = [i for i, op in enumerate(ops) if isinstance(op, Conv) and any(op.pads)]
    read = {type(ops[p]) for i in padded for p in program.parents[i]}
    assert {Conv, Sum, Select} <= read, "the import left each of them as it is"
    state = intermediate_bounds(program, region_of(13, program.space), Effort(tighten=False))
    for node in padded:
        count = program.sizes[node]
        whole = program.lower(state, node, unit_rows(program, node, torch.arange(count)))[0]
        found = torch.cat(by_patches(program, state, node))
        torch.testing.assert_close(found, whole, rtol=1e-11, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("make", [residual, linear_blocks])
def test_windows_charge_the_noise_that_whole_rows_charge(make: Callable[[int], Graph]) -> None:
    """Every node in turn has a noise that shows: each must be charged, and at the right pixels."""
    program = Program(make(14), Space(torch.float64))
    state = intermediate_bounds(program, region_of(15, program.space), Effort(tighten=False))
    output, rng = program.graph.output, torch.Generator().manual_seed(16)
    rows = unit_rows(program, output, torch.arange(program.sizes[output]))
    quiet, noise = program.lower(state, output, rows)[0], dict(state.noise)
    for node in sorted(program.charged):
        state.noise[node] = torch.rand(noise[node].shape, generator=rng, dtype=torch.float64)
        whole = program.lower(state, output, rows)[0]
        assert bool((whole < quiet - 1e-3).any())
        found = torch.cat(by_patches(program, state, output))
        torch.testing.assert_close(found, whole, rtol=1e-11, atol=1e-11)
        state.noise[node] = noise[node]


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_windows_hold_at_values_whose_rows_cancel(seed: int) -> None:
    """Sums of 32 channels that are nought but for rounding: of the rows in single precision nothing is right."""
    rng = np.random.default_rng(seed)
    model = Model(rng, *IMAGE)
    weight = rng.normal(size=(32, 3, 3, 3)).astype(np.float32)
    across = np.linalg.svd(weight.reshape(32, 27).astype(float))[0][:, 27:].T  # five rows that vanish on it
    mix = (rng.normal(size=(CHANNELS, 5)) @ across)[..., None, None]
    bias = [model.const(v) for v in (rng.normal(size=32) + 99, rng.normal(size=CHANNELS))]
    x = model.op("Relu", model.op("Conv", "x", model.const(weight), bias[0], pads=[0, 0, 0, 0]))
    graph = model.graph(model.op("Conv", x, model.const(mix), bias[1]))
    program = Program(graph, Space(torch.float32))
    region = region_of(seed, program.space, 1e-3)
    state = intermediate_bounds(program, region, Effort(tighten=False))
    assert bool((state.interval[program.before[0]][0] > 0).all()), "every ReLU is active"
    low, high = (part.double().numpy() for part in by_patches(program, state, graph.output))
    for end in (region.lower, region.upper):
        value, radius = enclose(graph, end[0].double().numpy())
        assert (low <= value + radius).all() and (high <= radius - value).all()


@torch.no_grad()
@pytest.mark.parametrize("where", [None, 0, 40])
def test_a_sum_is_a_convolution_only_if_every_row_has_the_same_numbers(where: int | None) -> None:
    """An average over windows of an image; one row of it weighs its pixels otherwise."""
    rng = np.random.default_rng(9)
    builder = GraphBuilder(8 * 9)
    conv = Conv(
        5 * 8 * 9, rng.normal(size=5), rng.normal(size=(5, 1, 3, 3)), (1, 8, 9), (5, 8, 9), pads=(1, 1, 1, 1)
    )
    pool = Conv(5 * 4 * 4, np.zeros(5), np.full((5, 1, 2, 2), 0.25), (5, 8, 9), (5, 4, 4), (2, 2), groups=5)
    matrix = conv_matrix(pool, pool.weight).tocsr()
    if where is not None:
        matrix.data[4 * where] = 0.5
    node = builder.add(
        Sparse(5 * 4 * 4, np.zeros(5 * 4 * 4), matrix), builder.add(Relu(360), builder.add(conv, 0))
    )
    program = Program(builder.finish(node), Space(torch.float64))
    assert bool(program.images.convolutions) is (where is None)
    centre = rng.normal(size=72)
    state = intermediate_bounds(
        program, Region.of([Domain(centre - 0.1, centre + 0.1)], program.space), Effort(tighten=False)
    )
    if where is None:
        whole = program.lower(state, node, unit_rows(program, node, torch.arange(80)))[0]
        torch.testing.assert_close(torch.cat(by_patches(program, state, node)), whole, rtol=1e-11, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_windows_in_single_precision_stay_below_the_reference(seed: int, seen: Callable[..., Any]) -> None:
    graph = residual(seed, ("", "MaxPool", "AveragePool")[seed])
    program, reference = Program(graph, Space(torch.float32)), Reference(graph)
    state = intermediate_bounds(program, region_of(seed, program.space), Effort(tighten=False))
    known = seen(reference, program, state, 0)
    for node in (program.before[-1], graph.output):
        below, above = reference.both_ends(known.domain, known.intervals, known.lines, node)
        low, high = (part.double().numpy() for part in by_patches(program, state, node))
        assert (low <= below.high).all() and (high <= above.high).all()
        width = np.abs(below.high) + np.abs(above.high)
        assert (below.high - low <= 1e-3 * width).all(), "rounding is charged far too much"


@torch.no_grad()
def test_windows_of_a_ball() -> None:
    program = Program(residual(4), Space(torch.float64))
    centre = np.random.default_rng(5).normal(size=int(np.prod(IMAGE)))
    ball = Domain(centre - 1, centre + 1, ball=Ball(centre, 0.3, 2.0))
    state = intermediate_bounds(program, Region.of([ball], program.space), Effort(tighten=False))
    node = program.before[2]
    whole = program.lower(state, node, unit_rows(program, node, torch.arange(program.sizes[node])))[0]
    low, high = by_patches(program, state, node)
    torch.testing.assert_close(torch.cat([low, high]), whole, rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_all_bounds_are_the_same_with_windows_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(residual(6), Space(torch.float64))
    assert any(PatchBounds(program, State(region_of(7, program.space)), i).pays() for i in program.before)
    with_windows = intermediate_bounds(program, region_of(7, program.space))
    monkeypatch.setattr(PatchBounds, "pays", lambda self: False)
    without = intermediate_bounds(program, region_of(7, program.space))
    for node in program.before:
        torch.testing.assert_close(with_windows.interval[node], without.interval[node], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_only_what_a_row_depends_on_is_bounded_and_the_row_is_none_the_worse() -> None:
    program = Program(residual(8), Space(torch.float64))
    rows = torch.zeros(1, 2, program.sizes[-1], dtype=torch.float64)
    rows[0, 0, 0], rows[0, 1, 0] = 1, -1
    needed, region = cone(program, rows), region_of(9, program.space)
    first = program.before[0]
    assert 0 < int(needed[first].sum()) < program.sizes[first] / 2
    some, every = (intermediate_bounds(program, region, needed=mask) for mask in (needed, None))
    output = program.graph.output
    torch.testing.assert_close(program.lower(some, output, rows), program.lower(every, output, rows))
    last = program.before[-1]
    away = ~needed[last]
    assert bool((some.interval[last][0][0, away] < every.interval[last][0][0, away]).any())


@torch.no_grad()
def test_what_no_perturbed_pixel_reaches_needs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pixel moves; of what is bounded, nearly everything sees it (constants within rounding are left alone)."""
    program = Program(residual(10, "MaxPool"), Space(torch.float32))
    still = region_of(11, program.space, 0.0)
    lower, upper = still.lower.clone(), still.upper.clone()
    lower[0, 60] -= 0.3
    upper[0, 60] += 0.3
    bounded: list[int] = []
    pieces = PatchBounds.pieces

    def noted(self: PatchBounds, neurons: torch.Tensor, elements: int) -> list[torch.Tensor]:
        bounded.append(len(neurons))
        return pieces(self, neurons, elements)

    monkeypatch.setattr(PatchBounds, "pieces", noted)
    monkeypatch.setattr(PatchBounds, "pays", lambda self: self.shape is not None)
    state = intermediate_bounds(program, Region(lower, upper))
    assert 0 < sum(bounded) < sum(program.sizes[i] for i in program.before) / 10
    bounded.clear()
    state = intermediate_bounds(program, still)
    some = sum(program.sizes[i] for i in program.before) / 50
    assert sum(bounded) < some, "only values that lie within rounding of a breakpoint"
    assert all(bool((high >= low).all()) for low, high in state.interval.values())
