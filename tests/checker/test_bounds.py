"""Bounds of the checker hold in exact arithmetic, whatever the multipliers, weights and boxes are."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verifolio_check import operators, vnnlib
from verifolio_check.bounds import GUARD, Model, Sweep
from verifolio_check.curves import ONE
from verifolio_check.integers import EXACT, Invalid, around, scaled, times

from .networks import Layer, exact, property_text, random_layers, save

BITS = 26


def models(
    tmp_path: Path, seed: int, kind: str
) -> tuple[list[Layer], Model, vnnlib.Region, np.random.Generator]:
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 5)), *rng.integers(2, 7, size=int(rng.integers(1, 4))).tolist(), 2]
    layers = random_layers(rng, sizes, kind)
    path = save(tmp_path / f"{kind}{seed}.onnx", layers, gemm=bool(seed % 2))
    net = operators.read(path.read_bytes())
    lower = [round(float(v), 3) for v in rng.normal(size=sizes[0])]
    # some boxes hold no float32 at all
    width = [1e-9 if rng.random() < 0.2 else round(float(rng.random()), 3) for _ in lower]
    upper = [repr(Fraction(str(a)) + Fraction(str(w))) for a, w in zip(lower, width, strict=True)]
    ends = [str(float(Fraction(u[9:-1].replace(", ", "/")))) for u in upper]
    text = property_text(lower, ends, 2, "(<= (+ Y_0 (* -0.37 Y_1) (* 0.1 X_0)) 0.3)")
    region = vnnlib.read(text, sizes[0], 2)[0]
    return layers, Model(net, region, BITS), region, rng


def points(region: vnnlib.Region, rng: np.random.Generator, count: int = 12) -> list[list[Fraction]]:
    """Corners, and points between them."""
    out, size = [], len(region.lower)
    for k in range(count):
        eighths = rng.integers(0, 2, size) * 8 if k % 2 else rng.integers(0, 9, size)
        part = [Fraction(int(v), 8) for v in eighths]
        out.append([a + t * (b - a) for a, b, t in zip(region.lower, region.upper, part, strict=True)])
    return out


def examine(tmp_path: Path, seed: int, kind: str) -> None:
    """Neuron intervals and the row's bound, with default and with random multipliers, against exact values."""
    layers, model, region, rng = models(tmp_path, seed, kind)
    try:
        model.advance(len(model.network.nodes) - 1)
        whole = model.whole()
        for z in model.before:
            model.narrow(whole, z)
    except Invalid:
        return  # refused: that is sound
    row, unit = region.disjuncts[0][0], model.scale[model.network.output] + GUARD
    start, limit = model.row(row)
    bounds = []
    for k in range(4):
        sweep = Sweep(model, whole, np.zeros(1, np.intp), unit)
        for z in model.before if k else []:
            size = model.network.nodes[z].size
            sweep.slopes[z] = rng.integers(-1, ONE + 1, (1, size))
            sweep.moves[z] = np.where(
                rng.random((1, size)) < 0.3, rng.integers(-(2**20), 2**20, (1, size)), 0
            )
        bounds.append(int(sweep.run(dict(start))[0]))
    top = max(abs(c) for _, c in (*row.inputs, *row.outputs))
    factor = Fraction(2) ** (top.denominator.bit_length() - top.numerator.bit_length() + unit)
    for x in points(region, rng):
        hidden = layers
        for k, z in enumerate(model.before):
            value = exact(hidden[: k + 1], x)
            one = Fraction(2) ** model.scale[z]
            low, high = whole.low[z][0].tolist(), whole.high[z][0].tolist()
            assert all(a <= v * one <= b for a, v, b in zip(low, value, high, strict=True))
        y = exact(layers, x)
        reached = sum(c * x[i] for i, c in row.inputs) + sum(c * y[i] for i, c in row.outputs)
        assert max(bounds) <= reached * factor
        assert limit >= row.limit * factor


@pytest.mark.parametrize("kind", ["plain", "wide", "cancelling"])
@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_exactly(tmp_path: Path, seed: int, kind: str) -> None:
    examine(tmp_path, seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "wide", "cancelling"])
def test_bounds_hold_exactly_on_thousands(tmp_path: Path, kind: str) -> None:
    for seed in range(100, 1100):
        examine(tmp_path, seed, kind)


def test_bounds_are_tight_on_a_small_box(tmp_path: Path) -> None:
    """Where every neuron is stable the network is linear, and the bound is its minimum but for the rounding."""
    rng = np.random.default_rng(3)
    layers = random_layers(rng, [3, 8, 8, 2])
    net = operators.read(save(tmp_path / "n.onnx", layers).read_bytes())
    text = property_text([0.2] * 3, [0.2001] * 3, 2, "(<= Y_0 0.0)")
    region = vnnlib.read(text, 3, 2)[0]
    model = Model(net, region, BITS)
    model.advance(len(net.nodes) - 1)
    start, _ = model.row(region.disjuncts[0][0])
    unit = model.scale[net.output] + GUARD
    bound = int(Sweep(model, model.whole(), np.zeros(1, np.intp), unit).run(start)[0]) * 2.0**-unit
    low, high = Fraction("0.2"), Fraction("0.2001")
    corners = [exact(layers, [low if k >> i & 1 else high for i in range(3)])[0] for k in range(8)]
    assert 0 <= float(min(corners)) - bound < 1e-5


def test_products_of_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    for bits in (4, 20, 31, 33):
        left = rng.integers(-(1 << bits), 1 << bits, (7, 9))
        right = rng.integers(-(1 << 24), 1 << 24, (9, 5))
        want = left.astype(object) @ right.astype(object)
        mass = int(np.abs(right).sum(0).max())
        assert (times(left, right.astype(np.float64), mass).astype(object) == want).all()
    with pytest.raises(Invalid, match="bits"):
        times(left << 20, right.astype(np.float64), mass)


def test_rounding_is_outward() -> None:
    values = np.array([1e-30, -1e-30, 0.1, -0.1, 3.0, 2.0**-24])
    for exponent in (-5, 0, 24):
        low, high = scaled(values, exponent), -scaled(-values, exponent)
        for v, a, b in zip(values.tolist(), low.tolist(), high.tolist(), strict=True):
            assert a <= Fraction(v) * Fraction(2) ** exponent <= b and b - a <= 1
    with pytest.raises(Invalid, match="bits"):
        scaled(np.array([float(EXACT)]), 1)
    low_third, high_third = around(Fraction(1, 3))
    assert Fraction(low_third) < Fraction(1, 3) < Fraction(high_third)
