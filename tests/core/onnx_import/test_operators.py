"""Every operator: the imported graph agrees with ONNX Runtime on random points."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifolio.graph import Relu
from verifolio.graph.module import GraphModule
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.table import HANDLERS

RANDOM = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (0.5 + RANDOM.random(shape)).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


MASK = np.array([[True, False, True], [True, True, True], [False, True, False]])


@dataclass(frozen=True)
class Case:
    """`x` goes to input 0 (or wherever `order` says "x"); further inputs are constants."""

    op: str
    shape: tuple[int, ...]
    constants: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 13
    order: str = "x"
    outputs: int = 1
    shift: float = 0.0

    def __str__(self) -> str:
        return f"{self.op}-{self.opset}-{self.shape}-{sorted(self.attributes.items())}"


def case(op: str, shape: tuple[int, ...], *constants: Any, opset: int = 13, **attributes: Any) -> Case:
    return Case(op, shape, constants, attributes, opset)


def build(
    path: Path, nodes: list[Any], shape: tuple[int, ...], tensors: dict[str, Any], opset: int
) -> Network:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return Network.load(path)


def gap(network: Network, points: np.ndarray) -> float:
    with torch.no_grad():
        ours = GraphModule(network.graph, torch.float64)(torch.from_numpy(points.astype(np.float64))).numpy()
    theirs = np.stack([network.replay(p) for p in points]).astype(np.float64)
    return float((np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))).max())


def random_points(count: int, size: int, shift: float = 0.0) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal((count, size)) + shift).astype(np.float32)


IMAGE = (1, 3, 6, 7)
CASES = [
    case("Gemm", (1, 4), weights(4, 3), weights(3)),
    case("Gemm", (1, 4), weights(3, 4), weights(1, 3), transB=1, alpha=0.3, beta=1.7),
    case("Gemm", (4, 2), weights(4, 3), weights(2, 3), transA=1),
    Case("Gemm", (4, 2), (weights(3, 4), weights(3, 1)), order="cx"),
    case("MatMul", (1, 4), weights(4, 3)),
    case("MatMul", (5, 4), weights(4, 3)),
    case("MatMul", (4,), weights(4, 3)),
    case("MatMul", (3, 4), weights(4)),
    case("MatMul", (2, 5, 4), weights(4, 3)),
    case("MatMul", (2, 5, 4), weights(2, 4, 3)),
    case("MatMul", (5, 4), weights(2, 4, 3)),
    Case("MatMul", (4, 5), (weights(3, 4),), order="cx"),
    Case("MatMul", (2, 4, 5), (weights(3, 4),), order="cx"),
    case("Add", (2, 3), weights(3)),
    case("Add", (3, 1), weights(1, 4)),
    case("Sub", (2, 3), weights(2, 3)),
    Case("Sub", (2, 3), (weights(1),), order="cx"),
    case("Mul", (2, 3), weights(3)),
    case("Div", (2, 3), positive(3)),
    Case("Div", (2, 3), (weights(1),), order="cx", shift=9.0),
    case("Neg", (2, 3)),
    case("Pow", (4,), floats(2.0)),
    case("Pow", (4,), floats(3.0)),
    Case("Pow", (4,), (floats(0.5),), shift=9.0),
    Case("Pow", (4,), (floats(1.5),), shift=9.0),
    Case("Pow", (4,), (floats(-2.0),), shift=9.0),
    Case("Sqrt", (4,), shift=9.0),
    Case("Reciprocal", (4,), shift=9.0),
    Case("Log", (4,), shift=9.0),
    case("Exp", (4,)),
    case("Sin", (4,)),
    case("Cos", (4,)),
    case("Erf", (4,)),
    case("Softplus", (4,)),
    case("Softsign", (4,)),
    case("Mish", (4,), opset=18),
    case("Sigmoid", (4,)),
    case("Tanh", (4,)),
    case("Relu", (4,)),
    case("LeakyRelu", (4,), alpha=0.2),
    case("LeakyRelu", (4,)),
    case("PRelu", (1, 3, 2, 2), weights(3, 1, 1)),
    case("Abs", (4,)),
    case("Clip", (9,), floats(-0.5).reshape(()), floats(0.7).reshape(())),
    case("Clip", (9,), floats(-0.5).reshape(())),
    case("Clip", (9,), opset=6, min=0.0, max=0.5),
    case("Clip", (9,), opset=6, min=-1e30, max=0.5),
    case("Clip", (9,), opset=6, max=0.5),
    case("HardSigmoid", (9,), alpha=0.4, beta=0.3),
    case("HardSwish", (9,), opset=14),
    case("Elu", (9,), alpha=0.7),
    case("Selu", (9,)),
    case("Celu", (9,), alpha=0.7),
    case("Gelu", (9,), opset=20),
    case("Gelu", (9,), opset=20, approximate="tanh"),
    case("Max", (4,), weights(4)),
    case("Min", (2, 4), weights(4)),
    case("Min", (2, 4), floats(1e30, -1e30, 0.0, 0.1)),
    case("Max", (2, 4), floats(1e30, -1e30, 0.0, 0.1)),
    case("Sum", (4,), weights(4), weights(1)),
    case("Mean", (4,), weights(4), weights(1)),
    case("Conv", IMAGE, weights(4, 3, 3, 3), weights(4)),
    case("Conv", IMAGE, weights(4, 3, 3, 2), strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]),
    case("Conv", (1, 4, 6, 6), weights(6, 2, 3, 3), weights(6), group=2),
    case("Conv", (2, 3, 5, 5), weights(4, 3, 3, 3), weights(4)),
    case("Conv", IMAGE, weights(2, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", IMAGE, weights(2, 3, 4, 4), auto_pad="SAME_LOWER"),
    case("Conv", (1, 3, 9), weights(4, 3, 3), weights(4), strides=[2], pads=[1, 1]),
    case("ConvTranspose", (1, 3, 4, 5), weights(3, 2, 3, 3), weights(2)),
    case(
        "ConvTranspose",
        (1, 3, 4, 5),
        weights(3, 2, 3, 3),
        weights(2),
        strides=[2, 3],
        pads=[1, 0, 1, 2],
        output_padding=[1, 2],
    ),
    case("ConvTranspose", (1, 4, 4, 4), weights(4, 2, 2, 2), group=2, strides=[2, 2]),
    case("ConvTranspose", (1, 3, 4, 4), weights(3, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    case("ConvTranspose", (1, 3, 5), weights(3, 2, 3), strides=[2]),
    case("BatchNormalization", IMAGE, positive(3), weights(3), weights(3), positive(3), epsilon=1e-3),
    case("BatchNormalization", (1, 5), positive(5), weights(5), weights(5), positive(5)),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 1], pads=[1, 1, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2]),
    case("MaxPool", (1, 2, 9), kernel_shape=[3], strides=[3]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("AveragePool", (1, 2, 9), kernel_shape=[3], strides=[2]),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("Flatten", (2, 3, 4), axis=2),
    case("Flatten", (2, 3, 4), axis=0),
    case("Reshape", (2, 3, 4), ints(0, -1)),
    case("Transpose", (2, 3, 4)),
    case("Transpose", (2, 3, 4), perm=[1, 2, 0]),
    case("Squeeze", (1, 3, 1)),
    case("Squeeze", (1, 3, 1), ints(-1)),
    case("Squeeze", (1, 3, 1), opset=11, axes=[0]),
    case("Unsqueeze", (3, 2), ints(0, 3)),
    case("Unsqueeze", (3, 2), opset=11, axes=[1]),
    case("Slice", (4, 6), ints(1, 0), ints(3, 6), ints(0, 1), ints(1, 2)),
    case("Slice", (4, 6), ints(-1), ints(-100), ints(1), ints(-1)),
    case("Slice", (4, 6), ints(5), ints(0), ints(1), ints(-2)),
    case("Slice", (4, 6), opset=9, starts=[1], ends=[2**31 - 1], axes=[1]),
    case("Gather", (4, 6), ints(2, 0, -1), axis=1),
    case("Gather", (4, 6), np.array(1, np.int64), axis=0),
    case("Expand", (3, 1), ints(2, 3, 4)),
    case("Tile", (2, 3), ints(2, 2)),
    case("Pad", (1, 2, 3), ints(0, 1, 0, 0, 0, 2)),
    case("Pad", (1, 2, 3), ints(0, 1, 0, 0, 0, 2), floats(1.5).reshape(())),
    case("Pad", (1, 2, 4), ints(0, 0, 2, 0, 0, 1), mode="reflect"),
    case("Pad", (1, 2, 4), ints(0, 1, 2, 0, 0, -1), mode="edge"),
    case("Pad", (1, 2, 4), opset=9, pads=[0, 0, 1, 0, 0, 1], value=2.0),
    case("DepthToSpace", (1, 8, 2, 3), blocksize=2),
    case("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    case("SpaceToDepth", (1, 2, 4, 6), blocksize=2),
    case("Concat", (2, 3), weights(2, 2), axis=1),
    case("Split", (2, 6), ints(2, 4), axis=1),
    case("Split", (2, 6), axis=1, split=[1, 5], opset=11),
    case("Split", (2, 6), axis=1, opset=18, num_outputs=1),
    case("Identity", (2, 3)),
    case("Dropout", (2, 3)),
    case("Cast", (2, 3), to=TensorProto.FLOAT),
    Case("Where", (2, 3), (np.array([True, False, True]), weights(3)), order="cxc"),
    Case("Where", (2, 3), (np.array([True, False, True]), weights(3)), order="ccx"),
    case("ReduceSum", (2, 3, 4), ints(1)),
    case("ReduceSum", (2, 3, 4), opset=11, axes=[0, 2], keepdims=0),
    case("ReduceMean", (2, 3, 4), axes=[-1]),
    case("ReduceMean", (2, 3, 4), ints(1, 2), opset=18, keepdims=0),
    case("ReduceMax", (2, 3, 4), axes=[1]),
    case("ReduceMin", (2, 3, 4), axes=[1, 2]),
    case("ReduceL1", (2, 3, 4), axes=[1]),
    case("ReduceL2", (2, 3, 4), axes=[1]),
    case("ReduceProd", (2, 3), axes=[1]),
    case("ReduceSumSquare", (2, 3, 4), axes=[1]),
    Case("ReduceLogSum", (2, 3), (), {"axes": [1]}, shift=9.0),
    case("ReduceLogSumExp", (2, 3, 4), axes=[1]),
    case("Softmax", (2, 5)),
    case("Softmax", (2, 2), axis=1),
    case("Softmax", (3, 4, 2), axis=1),
    case("Softmax", (2, 3, 2), opset=11, axis=1),
    case("LogSoftmax", (2, 5)),
    case("LayerNormalization", (2, 6), weights(6), weights(6), opset=17),
    case("InstanceNormalization", IMAGE, weights(3), weights(3)),
    case("Resize", (1, 1, 3, 4), np.array([], np.float32), floats(1, 1, 2, 2), mode="nearest"),
    case(
        "Resize",
        (1, 1, 3, 4),
        np.array([], np.float32),
        floats(1, 1, 2, 3),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    case("Resize", (1, 1, 3, 4), np.array([], np.float32), floats(1, 1, 2, 2), mode="linear"),
    case(
        "Resize",
        (1, 2, 3, 4),
        np.array([], np.float32),
        np.array([], np.float32),
        ints(1, 2, 5, 7),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    case("Upsample", (1, 2, 3, 4), floats(1, 1, 2, 2), opset=9, mode="nearest"),
    case("Trilu", (2, 3, 4), np.array(1, np.int64), opset=14),
    case("Trilu", (2, 3, 4), np.array(-1, np.int64), opset=14, upper=0),
    case("Trilu", (3, 3), np.array(99, np.int64), opset=14),
    case("CumSum", (2, 3, 4), np.array(1, np.int32), opset=14),
    case("CumSum", (2, 3, 4), np.array(-1, np.int64), opset=14, exclusive=1, reverse=1),
    case("GatherND", (2, 3, 4), np.array([[0, -1], [1, 2]])),
    case("GatherND", (2, 3, 4), np.array([[[0], [-1]], [[2], [1]]]), batch_dims=1),
    case("GatherElements", (2, 3), np.array([[0, -1, 1], [2, 1, 0]]), axis=1),
    case("GatherElements", (3, 2), np.array([[0, -1]]), axis=0),
    case("Einsum", (2, 3, 4), equation="bij->jb"),
    case("Einsum", (2, 3, 4), equation=" b i j "),
    case("Einsum", (2, 3, 4), weights(4, 5), equation="bij,jk->bik"),
    case("Einsum", (2, 3, 4), weights(2, 4, 5), equation="bij,bjk->kib"),
    case("Einsum", (2, 3, 4), weights(2, 3), equation="bij,bk->kj"),
    case("Einsum", (2, 3, 4), weights(2, 3, 4), equation="bij,bij->"),
    case("RMSNormalization", (2, 3, 4), weights(4), opset=23),
    case("RMSNormalization", (2, 3, 4), weights(3, 4), opset=23, axis=1, epsilon=0.1),
    case("GroupNormalization", (1, 4, 2, 3), weights(4), weights(4), opset=21, num_groups=2),
    case("Swish", (2, 3), opset=24),
    case("Swish", (2, 3), opset=24, alpha=-0.7),
    case("Attention", (1, 2, 3, 4), weights(1, 2, 5, 4), weights(1, 2, 5, 6), opset=23),
    case("Attention", (1, 3, 8), weights(1, 5, 8), weights(1, 5, 6), opset=23, q_num_heads=2, kv_num_heads=2),
    case("Attention", (1, 4, 3, 4), weights(1, 2, 3, 4), weights(1, 2, 3, 4), opset=23, is_causal=1),
    case("Attention", (1, 1, 3, 4), weights(1, 1, 3, 4), weights(1, 1, 3, 4), MASK, opset=23, scale=0.3),
    case("Attention", (1, 1, 3, 4), weights(1, 1, 3, 4), weights(1, 1, 3, 4), weights(3, 3), opset=23),
    case("Attention", (1, 1, 3, 4), weights(1, 1, 3, 4), weights(1, 1, 3, 4), opset=23, softcap=2.0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnx_runtime(case: Case, tmp_path: Path) -> None:
    names, tensors, given = [], {}, list(case.constants)
    order = case.order + "c" * (len(given) + 1 - len(case.order))
    for letter in order:
        if letter == "x":
            names.append("x")
        else:
            name = f"c{len(names)}"
            tensors[name] = given.pop(0)
            names.append(name)
    outputs = [f"y{i}" for i in range(len(_split_sizes(case)))] or ["y"]
    nodes = [helper.make_node(case.op, names, outputs, **case.attributes)]
    if len(outputs) > 1:
        nodes.append(helper.make_node("Concat", outputs[::-1], ["z"], axis=1))
    network = build(tmp_path / "net.onnx", nodes, case.shape, tensors, case.opset)
    assert gap(network, random_points(8, network.input_size, case.shift)) < 1e-4
    assert network.outputs[0].shape == _runtime_shape(network)


def _split_sizes(case: Case) -> list[int]:
    if case.op != "Split" or "num_outputs" in case.attributes:
        return []
    return list(case.attributes.get("split", case.constants[0] if case.constants else []))


def _runtime_shape(network: Network) -> tuple[int, ...]:
    from verifolio.onnx_import.network import _session

    session, inputs, outputs = _session(network), network.inputs, network.outputs
    x = np.full(inputs[0].shape, 9.0, np.float32)
    return tuple(session.run([outputs[0].name], {inputs[0].name: x})[0].shape)


STEERING = {
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "Floor", "Ceil",
    "Round", "Sign", "Mod", "Range", "Shape", "Size", "Constant", "ConstantOfShape",
}  # fmt: skip


# of variables: test_steps.py, test_choice.py, test_quantised.py
STEPS = {
    "ArgMax", "ArgMin", "ScatterND", "QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QLinearConv",
    "MatMulInteger", "ConvInteger",
}  # fmt: skip


def test_every_supported_operator_has_a_case() -> None:
    assert {c.op for c in CASES} | STEERING | STEPS == set(HANDLERS)


def two_variables(tmp_path: Path, op: str, shape: tuple[int, ...], **attributes: Any) -> Network:
    """x of shape (2, *shape) cut into two factors."""
    nodes = [
        helper.make_node("Gather", ["x", "zero"], ["a"], axis=0),
        helper.make_node("Gather", ["x", "one"], ["b0"], axis=0),
        helper.make_node("Add", ["b0", "shift"], ["b"]),
        helper.make_node(op, ["a", "b"], ["y"], **attributes),
    ]
    tensors = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64), "shift": floats(0.25)}
    return build(tmp_path / "net.onnx", nodes, (2, *shape), tensors, 13)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "MatMul"])
def test_two_variables(op: str, tmp_path: Path) -> None:
    network = two_variables(tmp_path, op, (3, 3))
    assert gap(network, np.abs(random_points(8, 18)) + 0.1) < 1e-4


def test_a_square_is_one_power(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"])]
    network = build(tmp_path / "net.onnx", nodes, (1, 4), {}, 13)
    assert network.graph.operators == {"Input", "pow"}
    assert gap(network, random_points(8, 4)) < 1e-5


def test_shape_arithmetic_is_folded(tmp_path: Path) -> None:
    """Flatten written as PyTorch exports it: Shape, Gather, Concat, Reshape."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("ConstantOfShape", ["target1"], ["ones"], value=numpy_helper.from_array(ints(1))),
        helper.make_node("Mul", ["target", "ones"], ["t2"]),
        helper.make_node("Equal", ["t2", "rest"], ["e"]),
        helper.make_node("Where", ["e", "rest", "t2"], ["t3"]),
        helper.make_node("Reshape", ["r", "t3"], ["y"]),
    ]
    tensors = {"zero": np.array(0, np.int64), "axes": ints(0), "rest": ints(-1), "target1": ints(2)}
    network = build(tmp_path / "net.onnx", nodes, (2, 3, 4), tensors, 13)
    assert network.graph.operators == {"Input", "Relu"}
    assert gap(network, random_points(4, 24)) == 0.0


def test_transposes_between_products_vanish(tmp_path: Path) -> None:
    """(rows, k) layers of a token network keep one layout; only the ends are permuted."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Add", ["a", "b1"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w2"], ["d"]),
        helper.make_node("Add", ["d", "b2"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    tensors = {"w1": weights(4, 5), "b1": weights(5), "w2": weights(5, 3), "b2": weights(3)}
    network = build(tmp_path / "net.onnx", nodes, (1, 6, 4), tensors, 13)
    kinds = [type(n.op).__name__ for n in network.graph.nodes]
    assert kinds == ["Input", "Conv", "Relu", "Conv", "Relu", "Select"]
    assert gap(network, random_points(8, 24)) < 1e-5


def test_a_relu_of_a_repeated_view_has_one_neuron_per_variable(tmp_path: Path) -> None:
    nodes = [helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node("Relu", ["e"], ["y"])]
    network = build(tmp_path / "net.onnx", nodes, (3, 1), {"s": ints(3, 50)}, 13)
    assert [n.op.size for n in network.graph.nodes if isinstance(n.op, Relu)] == [3]


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Sub", ["b", "a"], ["q"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 2, 2]) for n in "ab"],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "pq"],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    network = Network.load(path)
    assert [t.shape for t in network.inputs] == [(1, 2, 2)] * 2
    assert [t.shape for t in network.outputs] == [(1, 2, 2)] * 2
    assert gap(network, random_points(8, 8)) < 1e-5
