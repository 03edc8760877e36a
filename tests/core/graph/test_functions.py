"""Functions and the operators made of them against mpmath, from tiny numbers to where exponentials overflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from verifolio.graph import Elementwise, GraphBuilder
from verifolio.graph.enclosure import UNIT, enclose
from verifolio.graph.functions import FUNCTIONS
from verifolio.onnx_import.network import Network

Real = Any  # an mpmath number; the package has no types
PRECISE = mpmath.mp.clone()
PRECISE.dps = 60


def sigmoid(x: Real) -> Real:
    return 1 / (1 + PRECISE.exp(-x))


def softplus(x: Real) -> Real:
    return max(x, 0) + PRECISE.log1p(PRECISE.exp(-abs(x)))


TRUE: dict[str, tuple[Callable[[Real], Real], Callable[[Real], Real]]] = {
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "tanh": (PRECISE.tanh, lambda x: 4 * sigmoid(2 * x) * sigmoid(-2 * x)),
    "exp": (PRECISE.exp, PRECISE.exp),
    "log": (PRECISE.log, lambda x: 1 / x),
    "sqrt": (PRECISE.sqrt, lambda x: 1 / (2 * PRECISE.sqrt(x))),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2),
    "pow": (lambda x: x**3, lambda x: 3 * x**2),
    "sin": (PRECISE.sin, PRECISE.cos),
    "cos": (PRECISE.cos, lambda x: -PRECISE.sin(x)),
    "erf": (PRECISE.erf, lambda x: 2 / PRECISE.sqrt(PRECISE.pi) * PRECISE.exp(-x * x)),
    "softplus": (softplus, sigmoid),
}
EDGES = [0.0, 0.5, 1.0, 3.0, 6.0, 19.0, 20.0, 37.0, 40.0, 88.0, 709.0, 745.0, 1000.0, 1e6]


def points(positive: bool) -> np.ndarray:
    draw = np.random.default_rng(2)
    spread = np.concatenate([s * draw.standard_normal(8) for s in 10.0 ** np.arange(-8, 7)])
    both = np.concatenate([spread, EDGES, np.negative(EDGES)])
    return np.abs(both[both != 0]) if positive else both


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_keep_their_stated_accuracy(name: str) -> None:
    f, (true, _) = FUNCTIONS[name], TRUE[name]
    for x in points(f.domain[0] == 0):
        value = float(f.value(torch.tensor([x]), 3.0)[0])
        exact = true(PRECISE.mpf(x))
        if abs(exact) > 1.7e308:
            assert value == np.inf
        else:
            assert abs(value - exact) <= f.ulps * 2 * UNIT * abs(exact) + 1e-300


@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes_do_not_vanish_by_cancellation(name: str) -> None:
    f, (_, true) = FUNCTIONS[name], TRUE[name]
    for x in points(f.domain[0] == 0):
        slope = float(f.derivative(torch.tensor([x]), 3.0)[0])
        exact = true(PRECISE.mpf(x))
        if abs(exact) < 1.7e308:
            assert abs(slope - exact) <= 1e-12 * abs(exact) + 1e-290


@pytest.mark.parametrize("name", FUNCTIONS)
def test_enclosures_hold_at_every_scale(name: str) -> None:
    f, (true, _) = FUNCTIONS[name], TRUE[name]
    x = points(f.domain[0] == 0)
    b = GraphBuilder(len(x))
    value, radius = enclose(b.finish(b.add(Elementwise(len(x), name, 3.0), 0)), x)
    assert not np.isnan(radius).any()
    for at, v, r in zip(x, value, radius, strict=True):
        assert r == np.inf or abs(true(PRECISE.mpf(at)) - v) <= r
        assert r < np.inf or abs(true(PRECISE.mpf(at))) > 1.7e308


def log_sum_exp(x: list[Real]) -> Real:
    return max(x) + PRECISE.log(sum(PRECISE.exp(v - max(x)) for v in x))


def softmax(x: list[Real]) -> list[Real]:
    return [PRECISE.exp(v - log_sum_exp(x)) for v in x]


def gelu(x: Real) -> Real:
    return x / 2 * PRECISE.erfc(-x / PRECISE.sqrt(2))


def each(f: Callable[[Real], Real]) -> Callable[[list[Real]], list[Real]]:
    return lambda x: [f(v) for v in x]


COMPOUND: dict[str, tuple[int, Callable[[list[Real]], list[Real]]]] = {
    "LogSoftmax": (13, lambda x: [v - log_sum_exp(x) for v in x]),
    "ReduceLogSumExp": (13, lambda x: [log_sum_exp(x)]),
    "Softmax": (13, softmax),
    "Softplus": (13, each(softplus)),
    "Sigmoid": (13, each(sigmoid)),
    "Tanh": (13, each(PRECISE.tanh)),
    "Erf": (13, each(PRECISE.erf)),
    "Elu": (13, each(lambda v: v if v > 0 else PRECISE.expm1(v))),
    "Softsign": (13, each(lambda v: v / (1 + abs(v)))),
    "Mish": (18, each(lambda v: v * PRECISE.tanh(softplus(v)))),
    "Gelu": (20, each(gelu)),
}
INPUTS = [
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [1000.0, -1000.0, 999.0, 3.0, 0.0],
    [-1000.0, -1001.0, -1002.0, -999.5, -1000.0],
    [5e4, 5e4, -5e4, 6e4, 1.0],
    [1e-6, -1e-6, 0.5, -0.5, 1e-3],
    [88.0, -88.0, 710.0, -746.0, 20.0],
]


@pytest.mark.parametrize("op", COMPOUND)
def test_operators_stay_finite_and_right(op: str, tmp_path: Path) -> None:
    opset, true = COMPOUND[op]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    network = Network.load(path)
    module = network.module(torch.float64)
    for numbers in INPUTS:
        x = np.array(numbers, np.float32).astype(np.float64)
        exact = true([PRECISE.mpf(v) for v in x])
        computed = module(torch.from_numpy(x)[None])[0].numpy()
        value, radius = enclose(network.graph, x)
        for c, v, r, e in zip(computed, value, radius, exact, strict=True):
            assert abs(c - e) <= 1e-12 * (abs(e) + np.abs(x).max() + 1)
            assert abs(v - e) <= r
            if op != "Softmax":  # its exponentials may overflow, and the enclosure says so
                assert r <= 1e-9 * (abs(e) + np.abs(x).max() + 1)
