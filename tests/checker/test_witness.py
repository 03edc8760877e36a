"""Counterexamples are checked in exact arithmetic, ties and strict rows included."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verifolio_check import operators
from verifolio_check.main import INVALID, UNREADABLE, VALID, run
from verifolio_check.witness import outputs

from .networks import exact, property_text, random_layers, save
from .test_operators import CASES, build


def text_of(x: list[str]) -> str:
    return "(" + "\n".join(f"(X_{i} {v})" for i, v in enumerate(x)) + "\n(Y_0 0.0))\n"


@pytest.mark.parametrize("kind", ["plain", "wide", "cancelling"])
def test_values_of_relu_networks_are_exact(tmp_path: Path, kind: str) -> None:
    layers = random_layers(np.random.default_rng(4), [2, 5, 5, 2], kind)
    net = save(tmp_path / "n.onnx", layers)
    x = [Fraction("0.1"), Fraction("-3.7e-1")]
    y = exact(layers, x)
    assert outputs(operators.read(net.read_bytes()), x) == (y, y)


def test_the_point_must_lie_in_the_set_and_satisfy_all_rows(tmp_path: Path) -> None:
    layers = [(np.eye(2, dtype=np.float32), np.zeros(2, np.float32))]
    net, prop, point = save(tmp_path / "n.onnx", layers), tmp_path / "p.vnnlib", tmp_path / "x"
    point.write_text(text_of(["0.1", "0.2"]))
    for lower, condition, code in (
        ([0, 0], "(<= Y_0 0.1)", VALID),
        ([0, 0], "(< Y_0 0.1)", INVALID),
        ([0, 0], "(and (<= Y_0 0.1) (<= Y_1 0.1))", INVALID),
        ([0, 0], "(or (<= Y_0 0.0) (>= Y_1 X_1))", VALID),
        (["0.1000000000000000000001", 0], "(<= Y_0 1.0)", INVALID),
    ):
        prop.write_text(property_text(lower, [1, 1], 2, condition))
        assert run(net, prop, point)[0] == code, condition
    for text in (
        "",
        "((X_0 0.1) (X_1 0.2) (X_1 0.3))",
        "((X_0 0.1))",
        "((X_0 1e9999) (X_1 0.0))",
        "((X_0 nan) (X_1 0.0))",
    ):
        point.write_text(text)
        assert run(net, prop, point)[0] == UNREADABLE


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_onnx_runtime(tmp_path: Path, name: str) -> None:
    import onnxruntime

    shape, steps = CASES[name]
    path = build(tmp_path / "n.onnx", shape, steps)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0].ravel()
    low, high = outputs(operators.read(path.read_bytes()), [Fraction(float(v)) for v in x.ravel()])
    assert all(a <= b and b - a < 1e-8 for a, b in zip(low, high, strict=True))
    assert np.allclose([float(v) for v in low], want, atol=1e-5)
