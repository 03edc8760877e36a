"""Networks as the checker reads them compute what ONNX Runtime does."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from verifolio_check import operators
from verifolio_check.bounds import Model
from verifolio_check.integers import Unreadable
from verifolio_check.vnnlib import Region

from .networks import save_nodes

RNG = np.random.default_rng(0)


def weight(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def whole(*values: int) -> Any:
    return np.array(values, np.int64)


ONE = np.float32(1.0)
# operator, shape of the input, constants, attributes; several operators are a chain
CASES: dict[str, tuple[tuple[int, ...], list[tuple[str, list[Any], dict[str, Any]]]]] = {
    "gemm": ((1, 4), [("Gemm", [weight(3, 4), weight(3)], {"transB": 1})]),
    "matmul of several rows": ((1, 3, 4), [("MatMul", [weight(4, 2)], {}), ("Relu", [], {})]),
    "add and subtract": ((1, 4), [("Add", [weight(4)], {}), ("Sub", [weight(1, 4)], {}), ("Neg", [], {})]),
    "scale": ((1, 2, 3), [("Mul", [weight(2, 1)], {}), ("Div", [weight(3)], {})]),
    "convolution": (
        (1, 4, 5, 5),
        [("Conv", [weight(6, 2, 3, 3), weight(6)], {"group": 2, "pads": [1, 0, 1, 2]})],
    ),
    "dilated": ((1, 1, 7, 6), [("Conv", [weight(2, 1, 2, 3)], {"dilations": [2, 1], "strides": [1, 2]})]),
    "transposed": (
        (1, 2, 3, 4),
        [
            (
                "ConvTranspose",
                [weight(2, 3, 3, 2), weight(3)],
                {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0], "dilations": [1, 2]},
            )
        ],
    ),
    "transposed in groups": (
        (1, 4, 3, 3),
        [
            ("ConvTranspose", [weight(4, 3, 2, 2), weight(6)], {"group": 2, "strides": [1, 2]}),
            ("Relu", [], {}),
        ],
    ),
    "padded by itself": (
        (1, 2, 5, 4),
        [("Conv", [weight(3, 2, 2, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 1]}), ("Relu", [], {})],
    ),
    "padded at the lower ends": (
        (1, 2, 5, 4),
        [("Conv", [weight(3, 2, 2, 3)], {"auto_pad": "SAME_LOWER", "strides": [1, 2]}), ("Relu", [], {})],
    ),
    "of one axis": ((1, 2, 7), [("Conv", [weight(3, 2, 3), weight(3)], {"pads": [1, 2]}), ("Relu", [], {})]),
    "normalised": (
        (1, 3, 2, 2),
        [
            (
                "BatchNormalization",
                [weight(3), weight(3), weight(3), np.abs(weight(3)) + ONE],
                {"epsilon": 1e-3},
            )
        ],
    ),
    "maxima": ((1, 2, 5, 5), [("MaxPool", [], {"kernel_shape": [3, 2], "strides": [2, 1]})]),
    "averages": (
        (1, 2, 5, 4),
        [("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1})],
    ),
    "leaky": ((1, 6), [("LeakyRelu", [], {"alpha": 0.1})]),
    "clip": ((1, 6), [("Clip", [np.float32(-0.2), np.float32(0.4)], {})]),
    "sigmoid": ((1, 6), [("Sigmoid", [], {})]),
    "tanh": ((1, 6), [("Mul", [np.full(1, 3, np.float32)], {}), ("Tanh", [], {})]),
    "moved": (
        (1, 2, 3, 4),
        [
            ("Transpose", [], {"perm": [0, 2, 3, 1]}),
            ("Slice", [whole(1, -3), whole(2**62, 99), whole(1, 2), whole(1, 2)], {}),
            ("Reshape", [whole(0, -1)], {}),
            ("Relu", [], {}),
        ],
    ),
    "turned round": (
        (1, 2, 5),
        [("Slice", [whole(-1, 3), whole(-(2**62), 0), whole(2, 1), whole(-2, -1)], {}), ("Relu", [], {})],
    ),
    "dropped": ((1, 3), [("Dropout", [np.float32(0.5)], {}), ("Relu", [], {})]),
    "gathered": (
        (1, 5, 2),
        [
            ("Gather", [whole(0, -1, 2)], {"axis": 1}),
            ("Unsqueeze", [whole(1)], {}),
            ("Squeeze", [whole(0)], {}),
        ],
    ),
    "padded": ((1, 1, 3, 3), [("Pad", [whole(0, 0, 1, 0, 0, 0, 0, 2)], {}), ("Flatten", [], {"axis": 2})]),
}


def build(path: Path, shape: tuple[int, ...], steps: list[tuple[str, list[Any], dict[str, Any]]]) -> Path:
    nodes, constants, name = [], [], "x"
    for k, (kind, values, attributes) in enumerate(steps):
        names = [f"c{k}.{i}" for i in range(len(values))]
        constants += [numpy_helper.from_array(np.asarray(v), n) for v, n in zip(values, names, strict=True)]
        nodes.append(helper.make_node(kind, [name, *names], [f"y{k}"], **attributes))
        name = f"y{k}"
    model = onnx.load(save_nodes(path, nodes, constants, shape, name, ()))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    return path


def values(net: Any, x: Any) -> tuple[Any, Any]:
    """Ends of the outputs at a point."""
    point = tuple(Fraction(float(v)) for v in x.ravel())
    model = Model(net, Region(point, point), 30)
    model.advance(len(net.nodes) - 1)
    unit = 2.0 ** -model.scale[net.output]
    return model.low[net.output] * unit, model.high[net.output] * unit


@pytest.mark.parametrize("name", CASES)
def test_operators_are_what_onnx_runtime_computes(tmp_path: Path, name: str) -> None:
    import onnxruntime

    shape, steps = CASES[name]
    path = build(tmp_path / "n.onnx", shape, steps)
    net = operators.read(path.read_bytes())
    session = onnxruntime.InferenceSession(str(path))
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        want = session.run(None, {"x": x})[0].ravel()
        low, high = values(net, x)
        assert len(low) == len(want)
        assert (low - 1e-5 <= want).all() and (want <= high + 1e-5).all() and (high - low < 1e-4).all()


@pytest.mark.parametrize(
    ("kind", "values", "attributes"),
    [
        ("Sin", [], {}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", [], {"kernel_shape": [2, 2], "ceil_mode": 1}),
        ("Conv", [weight(1, 2, 2, 2)], {}),
        ("ConvTranspose", [weight(1, 1, 2, 2)], {"auto_pad": "SAME_UPPER"}),
        ("AveragePool", [], {"kernel_shape": [70, 70], "pads": [40, 40, 40, 40], "count_include_pad": 1}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("Dropout", [np.float32(0.5), np.array(True)], {}),
        ("Pad", [whole(0, 0, 1, 0, 0, 0, 0, 2), np.float32(1.0)], {}),
        ("Reshape", [whole(0, 1, 3, 3)], {"allowzero": 1}),
        ("Add", [np.full(1, np.nan, np.float32)], {}),
        ("MatMul", [weight(4, 2)], {}),
    ],
)
def test_what_is_not_read_is_said(
    tmp_path: Path, kind: str, values: list[Any], attributes: dict[str, Any]
) -> None:
    path = build(tmp_path / "n.onnx", (1, 1, 3, 3), [(kind, values, attributes)])
    with pytest.raises(Unreadable, match="network"):
        operators.read(path.read_bytes())


def test_split_and_concat(tmp_path: Path) -> None:
    import onnxruntime

    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Concat", ["b", "r", "c", "x"], ["y"], axis=1),
    ]
    constants = [numpy_helper.from_array(whole(2, 3), "sizes"), numpy_helper.from_array(weight(1, 2), "c")]
    path = save_nodes(tmp_path / "n.onnx", nodes, constants, (1, 5), "y", (1, 12))
    x = RNG.normal(size=(1, 5)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0].ravel()
    low, high = values(operators.read(path.read_bytes()), x)
    assert (low - 1e-6 <= want).all() and (want <= high + 1e-6).all()
