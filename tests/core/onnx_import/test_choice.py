"""Choices by variables: import agrees with ONNX Runtime, exactly, also at ties and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import UnsupportedNetwork
from verifolio.graph import exact
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Domain, Problem
from verifolio.onnx_import.network import Network
from verifolio.vnnlib import make_rows


def network(
    path: Path, nodes: list[Any], tensors: dict[str, Any], inputs: int, outputs: list[int]
) -> Network:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return Network.load(path)


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def to(kind: int, source: str, target: str) -> Any:
    return node("Cast", source, target, to=kind)


def agree(net: Network, points: np.ndarray) -> None:
    for x in points.astype(np.float32).astype(np.float64):
        assert [float(v) for v in exact.evaluate(net.graph, x)] == net.replay(x).tolist()


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_extremes_and_ties(op: str, last: int, tmp_path: Path) -> None:
    nodes = [
        node("Reshape", "x shape", "m"),
        node(op, "m", "i", axis=1, keepdims=0, select_last_index=last),
        to(TensorProto.FLOAT, "i", "y"),
    ]
    net = network(tmp_path / "n.onnx", nodes, {"shape": np.array([3, 5])}, 15, [3])
    agree(net, np.random.default_rng(0).integers(0, 3, (200, 15)))


def test_gather_at_variable_indices(tmp_path: Path) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2
    for axis, shape in ((0, [2, 4]), (1, [3, 2])):
        nodes = [to(TensorProto.INT64, "x", "i"), node("Gather", "data i", "y", axis=axis)]
        net = network(tmp_path / f"{axis}.onnx", nodes, {"data": data}, 2, shape)
        # the probes of import leave the range, where ONNX Runtime fails
        from verifolio.onnx_import.lower import lower_network

        graph = lower_network(net).graph
        for x in np.random.default_rng(1).uniform(-2.9, 2.9, (50, 2)).astype(np.float32).astype(np.float64):
            assert [float(v) for v in exact.evaluate(graph, x)] == net.replay(x).tolist()


def test_a_patch_at_a_variable_place(tmp_path: Path) -> None:
    """A mask of ones with zeros from a variable row and column on, cut off at the edge."""
    one, two = np.array([1]), np.array([2])
    nodes = [
        node("Gather", "x six", "p"), to(TensorProto.INT64, "p", "i"),
        node("Gather", "x seven", "q"), to(TensorProto.INT64, "q", "j"),
        node("Add", "i two", "k"), node("Add", "j one", "l"),
        node("Slice", "rows i k axis one", "r"), node("Slice", "columns j l axis one", "s"),
        node("Unsqueeze", "r one", "r2"), node("Add", "r2 s", "both"), node("Shape", "both", "size"),
        node("Expand", "r2 size", "re"), node("Expand", "s size", "se"),
        node("Unsqueeze", "re last", "ru"), node("Unsqueeze", "se last", "su"),
        node("Concat", "ru su", "at", axis=-1), node("Expand", "zero size", "none"),
        node("ScatterND", "mask at none", "m"),
        node("Slice", "x axis six axis one", "flat"), node("Reshape", "flat shape", "image"),
        node("Mul", "image m", "masked"), node("Reshape", "masked long", "y"),
    ]  # fmt: skip
    tensors = {
        "six": np.array([6]), "seven": np.array([7]), "one": one, "two": two, "axis": np.array([0]),
        "rows": np.arange(2), "columns": np.arange(3), "last": np.array([-1]), "shape": np.array([2, 3]),
        "zero": np.zeros((), np.float32), "mask": np.ones((2, 3), np.float32), "long": np.array([6]),
    }  # fmt: skip
    net = network(tmp_path / "n.onnx", nodes, tensors, 8, [6])
    from verifolio.onnx_import.lower import lower_network

    graph = lower_network(net).graph
    rng = np.random.default_rng(2)
    for _ in range(100):
        x = (
            np.concatenate([rng.integers(1, 9, 6), rng.uniform(0, 4, 2)])
            .astype(np.float32)
            .astype(np.float64)
        )
        with torch.no_grad():
            value = GraphModule(graph, torch.float64)(torch.from_numpy(x)[None])[0]
        assert value.tolist() == net.replay(x).tolist()


def test_shapes_that_depend_on_the_input_go_nowhere_else(tmp_path: Path) -> None:
    nodes = [
        to(TensorProto.INT64, "x", "i"), node("Add", "i two", "k"),
        node("Slice", "rows i k", "r"), to(TensorProto.FLOAT, "r", "f"), node("ReduceSum", "f", "y"),
    ]  # fmt: skip
    net = network(tmp_path / "n.onnx", nodes, {"two": np.array([2]), "rows": np.arange(5)}, 1, [1])
    with pytest.raises(UnsupportedNetwork, match="shape depends on the input"):
        _ = net.graph


def test_integers_are_not_divided_like_floats(tmp_path: Path) -> None:
    nodes = [to(TensorProto.INT64, "x", "i"), node("Div", "i two", "h"), to(TensorProto.FLOAT, "h", "y")]
    net = network(tmp_path / "n.onnx", nodes, {"two": np.array([2])}, 1, [1])
    with pytest.raises(UnsupportedNetwork, match="Div of a variable of an integer type"):
        _ = net.graph


def sliced(tmp_path: Path, middle: list[Any], size: int = 5, rows: int = 5, **tensors: Any) -> Network:
    """Ones of a length with a zero written at places made of rows[i : i + 2], where i is the input."""
    nodes = [
        to(TensorProto.INT64, "x", "i"), node("Add", "i two", "k"), node("Slice", "rows i k", "r"),
        *middle, node("Shape", "at", "s"), node("Slice", "s nought one", "s0"),
        node("Expand", "zero s0", "none"), node("ScatterND", "ones at none", "y"),
    ]  # fmt: skip
    stored = {
        "two": np.array([2]), "rows": np.arange(rows), "one": np.array([1]), "nought": np.array([0]),
        "zero": np.zeros(1, np.float32), "ones": np.ones(size, np.float32), **tensors,
    }  # fmt: skip
    return network(tmp_path / "n.onnx", nodes, stored, 1, [size])


def test_a_patch_of_a_line_is_cut_off_as_in_onnx_runtime(tmp_path: Path) -> None:
    from verifolio.onnx_import.lower import lower_network

    net = sliced(tmp_path, [node("Unsqueeze", "r one", "at")])
    graph = lower_network(net).graph
    for i in range(5):
        x = np.array([i + 0.5])
        assert [float(v) for v in exact.evaluate(graph, x)] == net.replay(x).tolist()


@pytest.mark.parametrize(
    ("middle", "more"),
    [
        # what is cut off there would be written here
        ([node("Add", "r down", "t"), node("Unsqueeze", "t one", "at")], {"down": np.array([-2])}),
        ([node("Unsqueeze", "r one", "at")], {"size": 7}),
        # a part counted from the end, which is elsewhere after a cut
        ([node("Slice", "r last most", "t"), node("Unsqueeze", "t one", "at")],
         {"last": np.array([-1]), "most": np.array([99])}),
        # the length as a place
        ([node("Shape", "r", "t"), node("Unsqueeze", "t one", "at")], {}),
        # places that do not show where the slice begins, as many as it has entries
        ([node("Slice", "rows i j", "r1"), node("Shape", "r1", "n"), node("Expand", "i n", "t"),
          node("Unsqueeze", "t one", "at")], {"early": "j"}),
        # other arithmetic
        ([node("Mul", "r two", "t"), node("Unsqueeze", "t one", "at")], {}),
        ([node("Add", "r i", "t"), node("Unsqueeze", "t one", "at")], {}),
        ([node("Equal", "r two", "c"), node("Where", "c nought r", "t"), node("Unsqueeze", "t one", "at")], {}),
    ],
)  # fmt: skip
def test_what_a_cut_would_change_is_refused(tmp_path: Path, middle: list[Any], more: dict[str, Any]) -> None:
    if more.pop("early", None):
        middle = [node("Add", "i one", "j"), *middle]
    with pytest.raises(UnsupportedNetwork):
        _ = sliced(tmp_path, middle, **more).graph


def test_places_below_zero_have_no_bounds(tmp_path: Path) -> None:
    """A variable place of a ScatterND counts from the end where it is negative: nothing is claimed there."""
    from verifolio.graph.settle import settle
    from verifolio.onnx_import.lower import lower_network
    from verifolio.plugins.crown.bounder import CrownBounder

    nodes = [
        to(TensorProto.INT64, "x", "i"), node("Unsqueeze", "i nought", "at"),
        node("ScatterND", "ones at zero", "y"),
    ]  # fmt: skip
    stored = {"nought": np.array([0]), "zero": np.zeros(1, np.float32), "ones": np.ones(3, np.float32)}
    net = network(tmp_path / "n.onnx", nodes, stored, 1, [3])
    assert net.replay(np.array([-1.0])).tolist() == [1, 1, 0]
    graph = lower_network(net).graph
    lower, upper = np.array([-1.25]), np.array([-0.75])
    problem = Problem(settle(graph, lower, upper), Domain(lower, upper), (make_rows([({3: 1.0}, 0.5)]),))
    (bounds,) = CrownBounder().bound([problem])
    assert bounds.margins_of(problem)[0][0] <= 0


@pytest.mark.parametrize("op", ["Gather", "Where", "ScatterND"])
def test_integers_picked_from_constants_are_integers(op: str, tmp_path: Path) -> None:
    """7 / 2 is 3 for them, and the graph would say 3.5."""
    picked = {
        "Gather": [to(TensorProto.INT64, "x", "i"), node("Gather", "table i", "g")],
        "Where": [node("Greater", "x high", "c"), node("Where", "c seven two", "g")],
        "ScatterND": [
            to(TensorProto.INT64, "x", "i"),
            node("Unsqueeze", "i one", "u"),
            node("ScatterND", "table u seven", "g"),
        ],
    }[op]
    nodes = [*picked, node("Div", "g two", "d"), to(TensorProto.FLOAT, "d", "y")]
    tensors = {
        "table": np.array([2, 4, 6]),
        "high": np.array([1.5], np.float32),
        "seven": np.array([7]),
        "two": np.array([2]),
        "one": np.array([1]),
    }
    net = network(tmp_path / "n.onnx", nodes, tensors, 1, [3 if op == "ScatterND" else 1])
    with pytest.raises(UnsupportedNetwork, match="Div of a variable of an integer type"):
        _ = net.graph


def test_parts_of_a_split_that_nobody_reads_are_counted(tmp_path: Path) -> None:
    split = helper.make_node("Split", ["x"], ["y", "b", "c"], axis=0)
    agree(network(tmp_path / "n.onnx", [split], {}, 6, [2]), np.random.default_rng(0).normal(size=(3, 6)))
