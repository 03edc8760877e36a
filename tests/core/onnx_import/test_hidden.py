"""Imports that once differed from ONNX Runtime where small inputs do not show it: right now, or refused."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import UnsupportedNetwork
from verifolio.graph.enclosure import enclose
from verifolio.graph.module import GraphModule
from verifolio.onnx_import.network import Network

node = helper.make_node


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def typed(kind: str, *numbers: int) -> np.ndarray:
    return np.array(numbers, kind)


@dataclass(frozen=True)
class Hidden:
    """Nodes from x to z; the network is relu(z - 5), which is zero for small x."""

    nodes: list[Any]
    shape: tuple[int, ...] = (1, 1)
    tensors: dict[str, Any] = field(default_factory=dict)
    opset: int = 13

    def network(self, path: Path) -> Network:
        tail = [node("Sub", ["z", "five"], ["s"]), node("Relu", ["s"], ["y"])]
        graph = helper.make_graph(
            [*self.nodes, *tail],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, k) for k, v in (self.tensors | {"five": np.float32(5)}).items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.save(model, path)
        return Network.load(path)


def one(op: str, shape: tuple[int, ...], *constants: Any, opset: int = 13, **attributes: Any) -> Hidden:
    names = [f"c{i}" for i in range(len(constants))]
    inputs = ["x", *(n if c is not None else "" for n, c in zip(names, constants, strict=True))]
    tensors = {n: c for n, c in zip(names, constants, strict=True) if c is not None}
    return Hidden([node(op, inputs, ["z"], **attributes)], shape, tensors, opset)


def folded(op: str, kind: int, *constants: Any, **attributes: Any) -> Hidden:
    """x minus a folded constant of an integer type."""
    tensors = {f"c{i}": np.asarray(c) for i, c in enumerate(constants)}
    nodes = [
        node(op, list(tensors), ["k"], **attributes),
        node("Cast", ["k"], ["f"], to=kind),
        node("Sub", ["x", "f"], ["z"]),
    ]
    return Hidden(nodes, (1, 1), tensors)


RIGHT = {
    "resize 10 shrinks by rounding up": one("Resize", (1, 1, 1, 5), floats(1, 1, 1, 0.6), opset=10),
    "powers of integers": folded("Pow", TensorProto.FLOAT, ints(4), floats(3.0)),
    "means of integers are integers": folded(
        "ReduceMean", TensorProto.FLOAT, typed("int32", 7, 8), keepdims=0
    ),
    "clipped integers": folded("Clip", TensorProto.FLOAT, ints(2**62 + 1), np.int64(0), np.int64(2**62)),
    "a slice backwards from before the front": one(
        "Slice", (1, 5), ints(-8), ints(-7), ints(1), ints(-1), opset=13
    ),
    "a squeeze of no axes": one("Squeeze", (1, 3, 1), ints()),
    "a clip with crossed limits": one("Clip", (1, 3), np.float32(9.0), np.float32(7.0)),
    "powers with several exponents": one("Pow", (1, 3), floats(1.0, 2.0, 3.0)),
    "an output larger than the windows reach": one(
        "ConvTranspose", (1, 1, 3), np.ones((1, 1, 2), np.float32), strides=[3], output_shape=[9]
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_agrees_far_from_zero(name: str, tmp_path: Path) -> None:
    network = RIGHT[name].network(tmp_path / "net.onnx")
    draw = np.random.default_rng(3)
    for scale in (1.0, 20.0, 1e3):
        x = scale * (6 + draw.permutation(network.input_size)).astype(np.float32)
        with torch.no_grad():
            ours = GraphModule(network.graph, torch.float64)(torch.from_numpy(x.astype(np.float64))[None])
        np.testing.assert_allclose(ours.numpy()[0], network.replay(x), rtol=1e-6)


REFUSED = {
    "MaxPool with dilations": one(
        "MaxPool", (1, 1, 2, 8), auto_pad="SAME_LOWER", kernel_shape=[1, 2], dilations=[1, 2], strides=[2, 3]
    ),
    "AveragePool with auto_pad SAME_LOWER and a stride": one(
        "AveragePool", (1, 1, 4, 2), auto_pad="SAME_LOWER", kernel_shape=[1, 4], strides=[4, 3], opset=20
    ),
    "ConvTranspose with auto_pad": one(
        "ConvTranspose", (1, 1, 7), np.ones((1, 1, 1), np.float32), strides=[3], auto_pad="SAME_UPPER"
    ),
    "that keeps the size": one("Upsample", (1, 1, 1, 3), floats(1, 1, 1, 1.3), opset=9),
    "align_corners with a scaled length": one(
        "Resize",
        (1, 1, 1, 4),
        None,
        floats(1, 1, 1, 0.6),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "hinge on the rounding": one(
        "Resize",
        (1, 1, 1, 10),
        None,
        floats(1, 1, 1, 0.6),
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "a Slice backwards": one("Slice", (1, 5), ints(3), ints(2**31 - 1), ints(1), ints(-1)),
    "not a whole number": folded("Pow", TensorProto.FLOAT, ints(4), floats(0.5)),
    "beyond the range": folded("Pow", TensorProto.FLOAT, typed("int32", 10), floats(12)),
    "leaves the range of uint8": folded("Add", TensorProto.FLOAT, typed("uint8", 200), typed("uint8", 100)),
    "leaves the range of int32": folded(
        "ReduceSum", TensorProto.FLOAT, typed("int32", 2**31 - 1, 2), keepdims=0
    ),
    "a Cast to uint8": folded("Cast", TensorProto.FLOAT, ints(300), to=TensorProto.UINT8),
    "a Cast to int64": folded("Cast", TensorProto.FLOAT, floats(1e30), to=TensorProto.INT64),
    "a Cast of NaN": folded("Cast", TensorProto.FLOAT, floats(np.nan), to=TensorProto.INT32),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refuses_what_has_no_agreed_meaning(reason: str, tmp_path: Path) -> None:
    network = REFUSED[reason].network(tmp_path / "net.onnx")
    with pytest.raises(UnsupportedNetwork, match=reason):
        _ = network.graph


def test_a_dilated_pool_is_refused_where_the_sizes_agree_too(tmp_path: Path) -> None:
    """With `ceil_mode` both have three windows per row, each over other entries."""
    known = REFUSED["MaxPool with dilations"]
    pool = copy.deepcopy(known.nodes[0])
    pool.attribute.append(helper.make_attribute("ceil_mode", 1))
    hidden = Hidden([pool], known.shape)
    with pytest.raises(UnsupportedNetwork, match="MaxPool with dilations"):
        _ = hidden.network(tmp_path / "net.onnx").graph


def test_a_difference_behind_a_small_factor_is_seen(tmp_path: Path) -> None:
    """The outputs differ by less than the import tolerates, the tensor before them by whole entries."""
    shrunk = one("Resize", (1, 1, 1, 5), floats(1, 1, 1, 0.6), opset=10)
    nodes = [node("Resize", ["x", "c0"], ["r"]), node("Mul", ["r", "small"], ["z"])]
    network = Hidden(nodes, (1, 1, 1, 5), shrunk.tensors | {"small": floats(1e-5)}, 10).network(
        tmp_path / "net.onnx"
    )
    x = np.array([6e6, 7e6, 8e6, 9e6, 1e7], np.float32)
    with torch.no_grad():
        ours = GraphModule(network.graph, torch.float64)(torch.from_numpy(x.astype(np.float64))[None])
    np.testing.assert_allclose(ours.numpy()[0], network.replay(x), rtol=1e-6)


def test_a_cast_to_bool_does_not_guess(tmp_path: Path) -> None:
    """1/3 three times less 1 is zero or not by the rounding of a folded constant."""
    nodes = [
        node("Div", ["one", "three"], ["t"]),
        node("Mul", ["t", "three"], ["a"]),
        node("Sub", ["a", "one"], ["d"]),
        node("Cast", ["d"], ["b"], to=TensorProto.BOOL),
        node("Where", ["b", "x", "three"], ["z"]),
    ]
    hidden = Hidden(nodes, (1,), {"one": floats(1), "three": floats(3)})
    with pytest.raises(UnsupportedNetwork, match="last bits"):
        _ = hidden.network(tmp_path / "net.onnx").graph


def test_the_error_of_a_number_to_pad_with_is_kept(tmp_path: Path) -> None:
    nodes = [
        node("Div", ["one", "three"], ["t"]),
        node("Pad", ["x", "pads", "t"], ["p"]),
        node("Mul", ["p", "big"], ["z"]),
    ]
    tensors = {"one": np.float32(1e6), "three": np.float32(3), "pads": ints(0, 1), "big": np.float32(3)}
    graph = Hidden(nodes, (1,), tensors).network(tmp_path / "net.onnx").graph
    value, radius = enclose(graph, np.array([7.0]))
    assert abs(value[1] - 999995) <= radius[1] < 1e-6
