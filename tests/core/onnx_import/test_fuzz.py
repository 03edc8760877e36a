"""Mutated files: bytes flipped at random, and well-formed models whose parts were exchanged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.onnx_import.check import import_graph
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.table import HANDLERS

INTEGERS = (-1, 0, 1, 2, 3, 5, -2, 100, 10**9, 2**31, 2**62, -(2**63))
NUMBERS = (0.0, 1.0, -1.0, 0.5, 1e20, float("nan"), float("inf"))
TEXTS = (b"SAME_LOWER", b"linear", b"", b"\xff", b"reflect")
Mutation = Callable[[bytes, random.Random], bytes]


def sample(path: Path) -> bytes:
    """A small network with convolution, pool, shape arithmetic, normalisation and a product."""
    draw = np.random.default_rng(3)
    tensors: dict[str, Any] = {
        "w": draw.standard_normal((2, 1, 2, 2)).astype(np.float32),
        "g": np.ones(2, np.float32),
        "v": draw.standard_normal((8, 3)).astype(np.float32),
        "s": np.array([1, -1]),
        "b": np.array([0]),
        "e": np.array([2]),
        "a": np.array([1]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 0, 0, 1]),
        helper.make_node("BatchNormalization", ["c", "g", "g", "g", "g"], ["n"]),
        helper.make_node("MaxPool", ["n"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["m", "s"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["k"]),
        helper.make_node("Softmax", ["k"], ["q"], axis=-1),
        helper.make_node("Mul", ["k", "q"], ["p"]),
        helper.make_node("Slice", ["p", "b", "e", "a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 4, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path.read_bytes()


def mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    """Flip, insert, delete or repeat a few bytes."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(out))
        kind = draw.randrange(4)
        if kind == 0:
            out[at] = draw.randrange(256)
        elif kind == 1:
            out[at:at] = draw.randbytes(draw.randint(1, 4))
        elif kind == 2:
            del out[at : at + draw.randint(1, 4)]
        else:
            out[at:at] = out[at : at + draw.randint(1, 40)]
    return bytes(out)


def mutate_parts(data: bytes, draw: random.Random) -> bytes:
    """Exchange operators, inputs, attributes, numbers, dimensions or the operator set."""
    model = onnx.load_model_from_string(data)
    for _ in range(draw.randint(1, 3)):
        node = draw.choice(model.graph.node)
        names = [t.name for t in model.graph.initializer] + ["x", "", "k", "f"]
        kind = draw.randrange(6)
        if kind == 0 and node.attribute:
            _mutate_attribute(draw.choice(node.attribute), draw)
        elif kind == 1:
            node.op_type = draw.choice(sorted(HANDLERS))
        elif kind == 2 and node.input:
            node.input[draw.randrange(len(node.input))] = draw.choice(names)
        elif kind == 3:
            node.input.append(draw.choice(names))
        elif kind == 4:
            _mutate_tensor(draw.choice(model.graph.initializer), draw)
        else:
            model.opset_import[0].version = draw.choice((6, 9, 10, 11, 13, 17, 18, 20))
    return bytes(model.SerializeToString())


def _mutate_attribute(attribute: Any, draw: random.Random) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = draw.choice(INTEGERS)
    elif attribute.type == AttributeProto.INTS and len(attribute.ints):
        attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(INTEGERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = draw.choice(NUMBERS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = draw.choice(TEXTS)


def _mutate_tensor(tensor: Any, draw: random.Random) -> None:
    values = numpy_helper.to_array(tensor).copy()
    choices = INTEGERS if values.dtype.kind == "i" else NUMBERS
    values.reshape(-1)[draw.randrange(values.size)] = draw.choice(choices)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def fuzz(folder: Path, mutate: Mutation, count: int, seed: int) -> int:
    """Import mutated files; returns how many were accepted. Anything but InputError escapes."""
    draw, accepted = random.Random(seed), 0
    original = sample(folder / "sample.onnx")
    path = folder / "net.onnx"
    for _ in range(count):
        path.write_bytes(mutate(original, draw))
        try:
            import_graph(Network.load(path))
            accepted += 1
        except InputError as error:
            assert "net.onnx" in str(error)
    return accepted


def test_the_sample_itself_is_accepted(tmp_path: Path) -> None:
    sample(tmp_path / "net.onnx")
    assert import_graph(Network.load(tmp_path / "net.onnx")).output_size == 2


@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_parts])
def test_mutated_files_never_crash(mutate: Mutation, tmp_path: Path) -> None:
    assert 0 < fuzz(tmp_path, mutate, 200, 1) < 200


@pytest.mark.slow
@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_parts])
def test_many_mutated_files_never_crash(mutate: Mutation, tmp_path: Path) -> None:
    assert 0 < fuzz(tmp_path, mutate, 2000, 2) < 2000
