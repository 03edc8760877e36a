"""Folding never hides a rounding: the exact function of the stored weights lies within the stated errors."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.graph import Conv, Dense, Graph, Scale
from verifolio.graph.enclosure import enclose
from verifolio.graph.graph import is_exact
from verifolio.onnx_import import exact
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values import Known, known

DRAW = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def graph_of(path: Path, nodes: list[Any], shape: tuple[int, ...], tensors: dict[str, Any]) -> Graph:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return Network.load(path).graph


def exact_of(value: Any) -> Fraction:
    return Fraction(float(value))


OPERATIONS: dict[str, tuple[Any, Any]] = {
    "add": (exact.add, lambda a, b: a + b),
    "subtract": (exact.subtract, lambda a, b: a - b),
    "multiply": (exact.multiply, lambda a, b: a * b),
    "divide": (exact.divide, lambda a, b: a / b),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e25])
def test_errors_bound_the_exact_result(name: str, scale: float) -> None:
    compute, rational = OPERATIONS[name]
    a, b = known(numbers(200).astype(np.float64) / 3), known(scale * numbers(200).astype(np.float64) / 7)
    result = compute(a, b)
    error = np.zeros(200) if result.error is None else result.error
    for x, y, v, e in zip(a.value, b.value, result.value, error, strict=True):
        assert abs(rational(exact_of(x), exact_of(y)) - exact_of(v)) <= exact_of(e)
        assert e <= 2.0**-51 * abs(v) + 1e-299


def test_input_errors_are_carried_on() -> None:
    a = Known(np.array([1.5, -2.0, 3.0]), np.array([1e-3, 0.0, 1e-4]))
    b = Known(np.array([2.5, 4.0, -1.0]), np.array([1e-4, 1e-5, 0.0]))
    for name, (compute, _) in OPERATIONS.items():
        result = compute(a, b)
        assert a.error is not None and b.error is not None and result.error is not None
        plain = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}[name]
        for sign_a in (-1, 1):
            for sign_b in (-1, 1):
                other = plain(a.value + sign_a * a.error, b.value + sign_b * b.error)
                assert (np.abs(other - result.value) <= result.error * (1 + 1e-9) + 1e-16).all(), name


def test_exact_results_stay_exact() -> None:
    a, b = known(np.array([1.5, 3.0, -8.0])), known(np.array([0.25, 2.0, 4.0]))
    assert all(compute(a, b).error is None for compute, _ in OPERATIONS.values())
    assert exact.root(known(np.array([4.0, 2.25]))).error is None
    assert exact.root(known(np.array([2.0]))).error is not None
    assert exact.multiply(known(numbers(50)), known(numbers(50))).error is None  # 24 + 24 bits fit


def test_roots_and_sums() -> None:
    values = np.abs(numbers(100)).astype(np.float64) + 0.1
    result = exact.root(known(values))
    assert result.error is not None
    for v, s, e in zip(values, result.value, result.error, strict=True):
        low, high = exact_of(s) - exact_of(e), exact_of(s) + exact_of(e)
        assert low**2 <= exact_of(v) <= high**2
    total = exact.total(known(values.reshape(4, 25)))
    assert total.error is not None
    for row, v, e in zip(values.reshape(4, 25), total.value, total.error, strict=True):
        assert abs(sum(map(exact_of, row)) - exact_of(v)) <= exact_of(e)


def within(graph: Graph, x: np.ndarray, exact_output: list[tuple[Fraction, Fraction]]) -> None:
    """Each exact output, known between two fractions, lies in the enclosure, and that is tight."""
    value, radius = enclose(graph, x.astype(np.float64))
    assert (radius <= 1e-12 * (1 + np.abs(value))).all()
    for (low, high), v, r in zip(exact_output, value, radius, strict=True):
        assert exact_of(v) - exact_of(r) <= high and low <= exact_of(v) + exact_of(r)


def root_bounds(number: Fraction) -> tuple[Fraction, Fraction]:
    """A rational interval of width 2**-120 around a square root."""
    scaled = math.isqrt(int(number * 2**240))
    return Fraction(scaled, 2**120), Fraction(scaled + 1, 2**120)


def test_batch_norm_is_enclosed(tmp_path: Path) -> None:
    gamma, beta, mean, variance = numbers(4), numbers(4), numbers(4), np.abs(numbers(4)) + 0.1
    nodes = [helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], epsilon=1e-5)]
    tensors = {"g": gamma, "b": beta, "m": mean, "v": variance}
    graph = graph_of(tmp_path / "net.onnx", nodes, (1, 4), tensors)
    scale = graph.nodes[-1].op
    assert isinstance(scale, Scale) and scale.weight_error is not None and scale.bias_error is not None
    x = numbers(4)
    expected = []
    for i in range(4):
        low, high = root_bounds(exact_of(variance[i]) + exact_of(np.float32(1e-5)))
        centred = (exact_of(x[i]) - exact_of(mean[i])) * exact_of(gamma[i])
        ends = sorted((centred / low + exact_of(beta[i]), centred / high + exact_of(beta[i])))
        expected.append((ends[0], ends[1]))
    within(graph, x, expected)


def test_division_is_enclosed(tmp_path: Path) -> None:
    divisor, x = numbers(5), numbers(5)
    graph = graph_of(
        tmp_path / "net.onnx", [helper.make_node("Div", ["x", "d"], ["y"])], (5,), {"d": divisor}
    )
    assert not all(is_exact(n.op) for n in graph.nodes)
    quotients = [exact_of(a) / exact_of(d) for a, d in zip(x, divisor, strict=True)]
    within(graph, x, [(q, q) for q in quotients])


def test_average_pool_is_enclosed(tmp_path: Path) -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3])
    graph = graph_of(tmp_path / "net.onnx", [node], (1, 1, 3, 3), {})
    assert isinstance(graph.nodes[-1].op, Conv) and graph.nodes[-1].op.weight_error is not None
    x = numbers(9)
    mean = sum(map(exact_of, x), Fraction(0)) / 9
    within(graph, x, [(mean, mean)])


def test_stored_weights_stay_exact(tmp_path: Path) -> None:
    """MatMul and Add become one dense layer whose numbers are the stored ones."""
    weight, bias = numbers(4, 3), numbers(3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    graph = graph_of(tmp_path / "net.onnx", nodes, (1, 4), {"w": weight, "b": bias})
    (layer,) = [n.op for n in graph.nodes[1:]]
    assert isinstance(layer, Dense) and is_exact(layer)
    np.testing.assert_array_equal(layer.weight, weight.T.astype(np.float64))
    np.testing.assert_array_equal(layer.bias, bias.astype(np.float64))


def test_a_bias_that_would_be_rounded_stays_apart(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["a"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    tensors = {"w": numbers(2, 1), "b": np.array([1e10], np.float32), "c": np.array([1e-10], np.float32)}
    graph = graph_of(tmp_path / "net.onnx", nodes, (1, 2), tensors)
    assert [type(n.op) for n in graph.nodes[1:]] == [Dense, Scale]
    assert all(is_exact(n.op) for n in graph.nodes)


def test_a_shared_layer_keeps_its_bias(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Concat", ["a", "c"], ["y"], axis=1),
    ]
    graph = graph_of(tmp_path / "net.onnx", nodes, (1, 4), {"w": numbers(4, 3), "b": numbers(3)})
    x = numbers(4)
    value, _ = enclose(graph, x.astype(np.float64))
    assert not np.allclose(value[:3], value[3:])


def test_doubles_are_rounded_by_a_cast_alone(tmp_path: Path) -> None:
    third = np.array([1 / 3])
    nodes = [
        helper.make_node("Cast", ["d"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "f"], ["y"]),
    ]
    graph = graph_of(tmp_path / "net.onnx", nodes, (1,), {"d": third})
    scale = graph.nodes[-1].op
    assert isinstance(scale, Scale) and scale.weight[0] == float(np.float32(1 / 3))
