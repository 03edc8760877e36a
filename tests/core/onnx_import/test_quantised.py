"""Networks as ONNX Runtime's quantiser writes them: import, bounds and verdicts against what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifolio.graph.enclosure import enclose
from verifolio.graph.settle import settle
from verifolio.model.problem import Domain, Problem
from verifolio.onnx_import.network import Network
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.smooth import Smooth
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.recipe import Recipe, RecipeStep
from verifolio.vnnlib import make_rows

quantization = pytest.importorskip("onnxruntime.quantization")


def quantised(path: Path, style: str, inputs: int, image: bool = False, seed: int = 0) -> Network:
    """A small network, trained by nobody, calibrated on normal points, quantised."""
    rng = np.random.default_rng(seed)
    hidden = 16
    nodes: list[Any] = []
    tensors: dict[str, Any] = {}
    if image:
        tensors["k"] = rng.normal(size=(4, 1, 3, 3)).astype(np.float32) / 3
        tensors["kb"] = rng.normal(size=4).astype(np.float32)
        nodes = [
            helper.make_node("Reshape", ["x", "square"], ["im"]),
            helper.make_node("Conv", ["im", "k", "kb"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["cr"]),
            helper.make_node("Reshape", ["cr", "row"], ["z"]),
        ]
        tensors["square"], tensors["row"] = np.array([1, 1, 3, 3]), np.array([1, 36])
    first, size = ("z", 36) if image else ("x", inputs)
    tensors["a"] = rng.normal(size=(size, hidden)).astype(np.float32) / np.float32(np.sqrt(size))
    tensors["ab"] = rng.normal(size=hidden).astype(np.float32)
    tensors["b"] = rng.normal(size=(hidden, 3)).astype(np.float32) / 4
    nodes += [
        helper.make_node("MatMul", [first, "a"], ["h"]),
        helper.make_node("Add", ["h", "ab"], ["hb"]),
        helper.make_node("Relu", ["hb"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.mkdir(parents=True, exist_ok=True)
    plain, target = path / "plain.onnx", path / f"{style}.onnx"
    plain.write_bytes(model.SerializeToString())
    points = [{"x": rng.normal(size=(1, inputs)).astype(np.float32)} for _ in range(20)]

    class Points(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return points.pop() if points else None

    quantization.quantize_static(
        str(plain),
        str(target),
        Points(),
        quant_format=getattr(quantization.QuantFormat, style),
        extra_options={"ActivationSymmetric": False},
        reduce_range=True,  # 7-bit weights: no processor saturates their products in 16 bits
    )
    return Network.load(target)


STYLES = [("QDQ", False), ("QOperator", False), ("QDQ", True), ("QOperator", True)]


@pytest.mark.parametrize(("style", "image"), STYLES)
def test_what_runs_lies_within_what_a_settled_graph_allows(style: str, image: bool, tmp_path: Path) -> None:
    net = quantised(tmp_path, style, 9 if image else 8, image)
    graph = net.graph
    assert graph.steps
    rng = np.random.default_rng(1)
    exactly = 0
    for _ in range(30):
        x = rng.normal(size=graph.input_size).astype(np.float32).astype(np.float64)
        settled = settle(graph, x, x)
        value, radius = enclose(settled, x)
        for optimised in (True, False):
            y = net.replay(x, optimised).astype(np.float64)
            assert bool((np.abs(y - value) <= radius + 1e-5 * (1 + np.abs(value))).all())
        exactly += radius.max() < 1e-9
    assert exactly >= 20  # most points are not near a half anywhere


def outputs(net: Network, box: tuple[np.ndarray, np.ndarray], count: int) -> np.ndarray:
    """ONNX Runtime on a fine grid of a box of two inputs."""
    axes = [np.linspace(low, high, count) for low, high in zip(*box, strict=True)]
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2).astype(np.float32)
    grid = np.clip(grid, *(b.astype(np.float32) for b in box))
    return np.stack([net.replay(x) for x in grid]).astype(np.float64)


@pytest.mark.parametrize("style", ["QDQ", "QOperator"])
def test_verdicts_agree_with_exhaustive_evaluation(style: str, tmp_path: Path) -> None:
    net = quantised(tmp_path, style, 2, seed=3)
    low, high = np.array([0.25, -0.5]), np.array([0.375, -0.375])
    found = outputs(net, (low, high), 40)[:, 0]
    graph = settle(net.graph, low, high)
    for threshold, possible in ((found.min(), True), (found.min() - 0.2, False), (found.max() + 1e-3, True)):
        rows = make_rows([({2: 1.0}, float(threshold))])
        problem = Problem(graph, Domain(low, high), (rows,))
        for verifier in (Crown(), Smooth()):

            def check(x: np.ndarray, t: float = float(threshold)) -> bool:
                return float(net.replay(x)[0]) <= t

            outcome = verifier.run(problem, Context(Budget(20.0), check=check))
            assert not (possible and outcome.verdict.decided and outcome.point is None), (style, threshold)
            if outcome.point is not None:
                assert float(net.replay(outcome.point)[0]) <= threshold
            if not possible and isinstance(verifier, Crown):
                assert outcome.verdict.decided and outcome.point is None


def test_halves_go_to_even_and_ends_saturate(tmp_path: Path) -> None:
    points = np.array([[-1000.0, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 1000.0]], np.float32) * np.float32(
        0.25
    )
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 9])],
        [
            numpy_helper.from_array(np.array(0.25, np.float32), "s"),
            numpy_helper.from_array(np.array(3, np.int8), "z"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "q.onnx").write_bytes(model.SerializeToString())
    net = Network.load(tmp_path / "q.onnx")
    with torch.no_grad():
        value = net.module(torch.float64)(torch.from_numpy(points.astype(np.float64)))[0]
    assert value.tolist() == net.replay(points).tolist()


def test_a_network_whose_weights_onnx_runtime_quantises_by_itself_is_imported(tmp_path: Path) -> None:
    """Its optimiser turns float weights beside quantised values into 8 bits: another function than the file's."""
    steps = (
        RecipeStep("dense", 1582675581, 13),
        RecipeStep("Relu", 1439731653),
        RecipeStep("QLinearMatMul", 1774164609),
        RecipeStep("dense", 2037418222, 13),
        RecipeStep("Relu", 1419984700),
        RecipeStep("MatMulInteger", 2128483121),
    )
    network = Recipe(10, 4, steps, 1.0, 494111632).write(tmp_path / "network.onnx")
    x = np.random.default_rng(0).random(10)
    assert network.graph.steps
    plain = network.replay(x, optimised=False)
    value, radius = enclose(network.graph, x.astype(np.float32).astype(np.float64))
    assert (np.abs(value - plain) <= radius + 1e-4).all()
