"""What a point of the input set refutes by exact arithmetic is never accepted, whatever the tree is.

Where the proved checker is built, it accepts nothing that the one in Python refuses here.
"""

from __future__ import annotations

import gzip
import hashlib
from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from onnx import helper, numpy_helper

from verifolio_check.main import VALID, run

from .networks import Layer, exact, property_text, random_layers, save, save_nodes
from .proved import proved

TREES = [
    "*.",
    ".",
    "0/*.*.",
    "*0/*1/*.*.*1/*.*.",
    "r0.0/*.r0.1/*.*.",
    "r0.0@-1p3/[b4000000].[b-4000000].",
    "[m1].",
]
DEEP = "*0/" * 8 + "*." * 9


def decimal(value: Fraction, up: bool) -> str:
    """A decimal within 1e-60 of a fraction, not below it or not above it."""
    whole = (value * 10**60).__ceil__() if up else (value * 10**60).__floor__()
    sign, digits = ("-" if whole < 0 else ""), str(abs(whole)).rjust(61, "0")
    return f"{sign}{digits[:-60]}.{digits[-60:]}"


def verdict(
    folder: Path, network: Path, prop: str, tree: str, bits: int, claims: tuple[str, ...] = ()
) -> int:
    path, target = folder / "p.vnnlib", folder / "c.gz"
    path.write_text(prop)
    hashes = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (network, path)]
    lines = ["verifolio certificate 2", f"network {hashes[0]}", f"property {hashes[1]}", f"bits {bits}"]
    with gzip.open(target, "wt") as file:
        file.write("\n".join([*lines, "region 0", *claims, "tree 0", tree, "end", ""]))
    code, line = run(network, path, target)
    assert "\n" not in line
    assert code == VALID or proved(network, path, target) != VALID
    return code


def planted(layers: list[Layer], low: list[Fraction], width: Fraction) -> Fraction:
    """The least exact value of the first output over a grid of the box."""
    grid = product(*([v + width * Fraction(k, 4) for k in range(5)] for v in low))
    return min(exact(layers, list(x))[0] for x in grid)


@pytest.mark.parametrize("kind", ["plain", "wide", "cancelling"])
@pytest.mark.parametrize("seed", range(6))
def test_attained_values_are_never_excluded(tmp_path: Path, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    layers = random_layers(rng, [2, 5, 4, 1], kind)
    net = save(tmp_path / "n.onnx", layers)
    low = [Fraction(int(v), 1000) for v in rng.integers(-900, 900, 2)]
    # the second and third hold no float32 but perhaps an end
    for width in (Fraction(1), Fraction(1, 10**12), Fraction(1, 10**25)):
        value = planted(layers, low, width)
        ends = [[decimal(v + w, False) for v in low] for w in (Fraction(0), width)]
        text = property_text(ends[0], ends[1], 1, f"(<= Y_0 {decimal(value + Fraction(1, 10**50), True)})")
        # the decimals of the box may cut off the edge by 1e-60; a value moves by less than the 1e-50 of slack
        scale = max(float(np.abs(w).max()) for w, _ in layers) ** 3
        if scale < 1e8:
            for tree in [*TREES, DEEP]:
                for bits in (12, 30, 40):
                    assert verdict(tmp_path, net, text, tree, bits) != VALID


def test_a_tie_is_a_counterexample_unless_the_row_is_strict(tmp_path: Path) -> None:
    """The least value of relu(x) + relu(-x) is 0, at x = 0, where trees may cut."""
    signs = np.array([[1, -1]], np.float32)
    layers: list[Layer] = [
        (signs, np.zeros(2, np.float32)),
        (np.ones((2, 1), np.float32), np.zeros(1, np.float32)),
    ]
    net = save(tmp_path / "n.onnx", layers)
    for tree in ["*.", "0/*.*.", "0@0/*.*.", "r0.0/*.*.", "0@1p40/*.*."]:
        assert verdict(tmp_path, net, property_text([-1], [1], 1, "(<= Y_0 0.0)"), tree, 30) != VALID
    assert verdict(tmp_path, net, property_text([-1], [1], 1, "(< Y_0 0.0)"), "*.", 30) == VALID


@pytest.mark.parametrize("function", ["Sigmoid", "Tanh"])
@pytest.mark.parametrize("seed", range(4))
def test_attained_values_of_smooth_networks_are_never_excluded(
    tmp_path: Path, seed: int, function: str
) -> None:
    """Thresholds at values of 60 digits: the least over a grid that has the corners."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 4)) * [1, 3, 9, 30], rng.normal(size=(4, 1))
    constants = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in (("a", first), ("b", second))]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["z"]),
        helper.make_node(function, ["z"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["y"]),
    ]
    net = save_nodes(tmp_path / "n.onnx", nodes, constants, (1, 2), "y", (1, 1))
    with mpmath.workdps(60):
        a, b = (mpmath.matrix(w.astype(np.float32).astype(np.float64).tolist()) for w in (first, second))
        values = []
        for point in product(range(9), repeat=2):
            z = [sum(mpmath.mpf(point[i]) / 8 * a[i, j] for i in range(2)) for j in range(4)]
            h = [mpmath.tanh(v) if function == "Tanh" else 1 / (1 + mpmath.exp(-v)) for v in z]
            values.append(sum(h[j] * b[j, 0] for j in range(4)))
        limit = mpmath.nstr(min(values) + mpmath.mpf(10) ** -40, 55, min_fixed=-100, max_fixed=100)
    text = property_text([0, 0], [1, 1], 1, f"(<= Y_0 {limit})")
    for tree in [*TREES[:5], DEEP]:
        assert verdict(tmp_path, net, text, tree, 30) != VALID


def test_a_coefficient_of_a_row_that_rounds_to_nothing_still_counts(tmp_path: Path) -> None:
    """Y_0 is 1, and 1e-8 X_1 is -10 at the only point of the box."""
    layers: list[Layer] = [(np.zeros((2, 1), np.float32), np.ones(1, np.float32))]
    net = save(tmp_path / "n.onnx", layers)
    row = "(<= (+ Y_0 (* 0.00000001 X_1)) -5.0)"
    text = property_text(["0.0", "-1000000000.0"], ["0.0", "-1000000000.0"], 1, row)
    assert verdict(tmp_path, net, text, ".", 40) != VALID


def test_errors_of_an_input_that_a_map_reads_many_times_add_up(tmp_path: Path) -> None:
    """1024 weights just below the last bit that the checker keeps, all on the same input."""
    count = 1024
    weights = np.full((count + 1, 1), 0.999 * 2**-29, np.float32)
    weights[0] = 1.0
    places = np.array([1, *[0] * count])
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(places, "i")]
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"], axis=1),
        helper.make_node("MatMul", ["g", "w"], ["y"]),
    ]
    net = save_nodes(tmp_path / "n.onnx", nodes, constants, (1, 2), "y", (1, 1))
    attained = -count * float(weights[1, 0])
    text = property_text([-1, 0], [-1, 0], 1, f"(<= Y_0 {0.9 * attained:.20f})")
    assert verdict(tmp_path, net, text, ".", 40) != VALID


def test_a_claim_about_a_multiple_of_a_neuron_is_none_about_the_neuron(tmp_path: Path) -> None:
    """relu(x + 1) is 0.5 at x = -0.5; five times that is above 0.9."""
    one = np.ones((1, 1), np.float32)
    net = save(tmp_path / "n.onnx", [(one, np.ones(1, np.float32)), (one, np.zeros(1, np.float32))])
    text = property_text(["-0.5"], ["1.0"], 1, "(<= Y_0 0.9)")
    assert verdict(tmp_path, net, text, ".", 40, ("claims 0 >0", "[m5].")) != VALID
    text = property_text(["-0.5"], ["1.0"], 1, "(<= Y_0 0.4)")
    assert verdict(tmp_path, net, text, ".", 40, ("claims 0 >0", ".")) == VALID


def test_weights_of_many_rows_do_not_wrap_around(tmp_path: Path) -> None:
    """Rows whose weighted sum is 2^64, which int64 takes for nothing; each alone is attained."""
    count, size = 4400, 1 << 42
    net = save(tmp_path / "n.onnx", [(np.ones((1, 1), np.float32), np.zeros(1, np.float32))])
    weights = [size // count] * (count - 1)
    weights.append(size - sum(weights))
    text = property_text([-1], [1], 1, f"(and {count * '(< Y_0 0.0) '})")
    assert verdict(tmp_path, net, text, f"[m{','.join(map(str, weights))}].", 30) != VALID
