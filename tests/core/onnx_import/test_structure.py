"""What a file may consist of besides plain nodes: branches and local functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

node = helper.make_node


def save(path: Path, nodes: list[Any], stored: dict[str, Any] | None = None, **more: Any) -> Network:
    """A model from x (1, 3) to y (1, 3)."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in ("x", "y")]
    tensors = [numpy_helper.from_array(v, k) for k, v in (stored or {}).items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9, **more), path)
    return Network.load(path)


def branch(name: str, nodes: list[Any], **stored: Any) -> Any:
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    return helper.make_graph(
        nodes, name, [], [out], [numpy_helper.from_array(v, k) for k, v in stored.items()]
    )


def agrees(network: Network) -> None:
    x = np.array([-1.5, 0.25, 2.0], np.float32)
    ours = np.asarray(network.module()(torch.from_numpy(x)[None]).detach()).ravel()
    assert np.allclose(ours, network.replay(x), rtol=1e-5)


@pytest.mark.parametrize("truth", [True, False])
def test_if_with_a_constant_condition(tmp_path: Path, truth: bool) -> None:
    """The condition is folded from shapes; both branches use the same names and a tensor from outside."""
    one = branch(
        "one", [node("Mul", ["h", "w"], ["t"]), node("Relu", ["t"], ["out"])], w=np.array([2.0], np.float32)
    )
    two = branch(
        "two", [node("Add", ["h", "w"], ["t"]), node("Abs", ["t"], ["out"])], w=np.array([3.0], np.float32)
    )
    nodes = [
        node("Neg", ["x"], ["h"]),
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "last"], ["n"]),
        node("Equal", ["n", "three"], ["c"]),
        node("If", ["c"], ["i"], then_branch=one, else_branch=two),
        node("Add", ["i", "h"], ["y"]),
    ]
    stored = {"last": np.array(1, np.int64), "three": np.array(3 if truth else 4, np.int64)}
    network = save(tmp_path / "net.onnx", nodes, stored)
    agrees(network)
    assert network.graph.neurons == 3


def test_if_on_the_input_is_refused(tmp_path: Path) -> None:
    same = branch("same", [node("Identity", ["x"], ["out"])])
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=same, else_branch=same),
    ]
    with pytest.raises(InputError, match="a condition that depends on the input"):
        _ = save(tmp_path / "net.onnx", nodes, {"zero": np.float32(0.0)}).graph


def test_what_a_branch_lacks_is_named(tmp_path: Path) -> None:
    bad = branch("bad", [node("TopK", ["x", "k"], ["out", "_"])], k=np.array([3]))
    nodes = [node("If", ["c"], ["y"], then_branch=bad, else_branch=bad)]
    with pytest.raises(InputError, match="TopK"):
        _ = save(tmp_path / "net.onnx", nodes, {"c": np.array(True)}).graph


def function(name: str, nodes: list[Any]) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, ["a"], ["b"], nodes, opsets, attributes=["alpha"])


def test_local_functions_are_written_out(tmp_path: Path) -> None:
    leak = node("LeakyRelu", ["a"], ["t"])
    leak.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    inner = function("Inner", [leak, node("Neg", ["t"], ["b"])])
    call = node("Inner", ["a"], ["u"], domain="mine")
    call.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    outer = function("Outer", [call, node("Add", ["u", "a"], ["b"])])
    nodes = [
        node("Outer", ["x"], ["m"], domain="mine", alpha=0.5),
        node("Outer", ["m"], ["y"], domain="mine", alpha=0.25),
    ]
    network = save(tmp_path / "net.onnx", nodes, functions=[inner, outer])
    agrees(network)
    assert network.graph.neurons == 6


def test_functions_that_never_end_are_refused(tmp_path: Path) -> None:
    again = helper.make_function(
        "mine", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="mine")], [helper.make_opsetid("mine", 1)]
    )
    nodes = [node("F", ["x"], ["y"], domain="mine")]
    with pytest.raises(InputError, match="do not call themselves"):
        _ = save(tmp_path / "net.onnx", nodes, functions=[again]).graph
    doubling = []
    for k in range(40):
        callee = {"domain": "mine"} if k else {}
        called = [node(f"F{k - 1}" if k else "Neg", [a], [b], **callee) for a, b in (("a", "t"), ("t", "b"))]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        doubling.append(helper.make_function("mine", f"F{k}", ["a"], ["b"], called, opsets))
    nodes = [node("F39", ["x"], ["y"], domain="mine")]
    with pytest.raises(InputError, match="nodes after local functions"):
        _ = save(tmp_path / "net.onnx", nodes, functions=doubling).graph
