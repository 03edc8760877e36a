"""Files that lie, break or explode: always an InputError that names the file, in bounded memory."""

from __future__ import annotations

import gzip
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError, UnsupportedNetwork
from verifolio.model.query import Query
from verifolio.onnx_import.check import import_graph
from verifolio.onnx_import.lower import lower_network
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.session import open_session
from verifolio.run.memory import allow
from verifolio.solve.survey import SurveyTask, survey

GIGABYTE = 1 << 20  # in the kilobytes of ru_maxrss


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def save(
    path: Path,
    nodes: list[Any],
    tensors: dict[str, Any] | None = None,
    shape: Any = (1, 4),
    kind: int = TensorProto.FLOAT,
    output: str = "y",
) -> Network:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in (tensors or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return Network.load(path)


def node(op: str, *inputs: str, output: str = "y", **attributes: Any) -> Any:
    name = f"the_{op}" if output in "abcy" else output
    return helper.make_node(op, list(inputs), [output], name=name, **attributes)


def refused(network: Network) -> str:
    with pytest.raises(InputError) as caught:
        import_graph(network)
    text = str(caught.value)
    assert network.path.name in text
    return text


def test_every_unsupported_operator_is_named_at_once(tmp_path: Path) -> None:
    nodes = [
        node("TopK", "x", output="a"),
        node("NonZero", "x", output="b"),
        node("Loop", "x", output="c"),
        node("Relu", "c", output="d"),
        node("Sum", "b", "d", output="y"),
    ]
    nodes[0].name = ""
    nodes.insert(0, node("Det", "x", output="unused"))
    nodes[-1].input.append("a")
    network = save(tmp_path / "net.onnx", nodes)
    with pytest.raises(UnsupportedNetwork) as caught:
        import_graph(network)
    text = str(caught.value)
    assert "TopK (node 'a')" in text and "NonZero (node 'the_NonZero')" in text and "Loop" in text
    assert "Det" not in text  # nothing depends on it
    assert "docs/reference/operators.md" in text


def test_control_flow_is_refused(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Relu", "x", output="t")],
        "b",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    network = save(
        tmp_path / "net.onnx",
        [node("Loop", "n", "c", "x", body=body)],
        {"n": np.array(1), "c": np.array(True)},
    )
    assert "Loop (node 'the_Loop')" in refused(network)


def test_foreign_domains_are_refused(tmp_path: Path) -> None:
    network = save(tmp_path / "net.onnx", [node("FusedGemm", "x", domain="com.microsoft")])
    assert "com.microsoft.FusedGemm" in refused(network)


BOMBS: dict[str, Callable[[Path], Network]] = {
    "expand": lambda p: save(p, [node("Expand", "x", "s")], {"s": ints(10**5, 10**5, 1, 4)}),
    "expand-constant": lambda p: save(
        p, [node("Expand", "w", "s", output="e"), node("Add", "x", "e")], {"w": floats(1), "s": ints(10**10)}
    ),
    "tile": lambda p: save(p, [node("Tile", "x", "s")], {"s": ints(10**5, 10**5)}),
    "fill": lambda p: save(
        p, [node("ConstantOfShape", "s", output="e"), node("Add", "x", "e")], {"s": ints(10**6, 10**6)}
    ),
    "pad": lambda p: save(p, [node("Pad", "x", "s")], {"s": ints(0, 0, 10**6, 10**6)}),
    "broadcast": lambda p: save(
        p,
        [node("Transpose", "x", output="t"), node("Mul", "t", "x")],
        shape=(1, 2**20),
    ),
    "matmul": lambda p: save(
        p, [node("Transpose", "x", output="t"), node("MatMul", "t", "x")], shape=(1, 2**16)
    ),
    "gather": lambda p: save(
        p,
        [
            node("ConstantOfShape", "s", output="i", value=numpy_helper.from_array(ints(0))),
            node("Gather", "x", "i"),
        ],
        {"s": ints(2**24)},
        shape=(2**10, 2**10),
    ),
    "resize": lambda p: save(
        p, [node("Resize", "x", "", "s")], {"s": floats(1, 1, 1e6, 1e6)}, shape=(1, 1, 2, 2)
    ),
    "range": lambda p: save(
        p,
        [node("Range", "a", "b", "c", output="r"), node("Add", "x", "r")],
        {"a": np.float32(0), "b": np.float32(1e12), "c": np.float32(1)},
    ),
    "softmax": lambda p: save(p, [node("Softmax", "x")], shape=(1, 2**16)),
    "conv": lambda p: save(
        p,
        [node("Conv", "x", "w", pads=[10**5] * 4)],
        {"w": np.ones((1, 1, 1, 1), np.float32)},
        shape=(1, 1, 2, 2),
    ),
    "input": lambda p: save(p, [node("Relu", "x")], shape=(2**20, 2**20)),
    "overflow": lambda p: save(p, [node("Relu", "x")], shape=(2**62, 2**62)),
    "doubling": lambda p: save(
        p,
        [
            node("Concat", f"t{i}" if i else "x", f"t{i}" if i else "x", output=f"t{i + 1}", axis=0)
            for i in range(60)
        ],
        output="t60",
    ),
    "many": lambda p: save(
        p,
        [node("Identity", "x", output="t0")] + [node("Neg", f"t{i}", output=f"t{i + 1}") for i in range(400)],
        shape=(2**22,),
        output="t400",
    ),
}


@pytest.fixture
def four_gigabytes() -> Iterator[None]:
    """The limits of an import are those of the memory that it may use."""
    allow(4 * GIGABYTE * 1024)
    yield
    allow(None)


def test_the_limits_are_those_of_the_memory(tmp_path: Path) -> None:
    """2^21 numbers, and the same again for the ReLU's output: 64 bytes each, no tensor more than a quarter."""
    network = save(tmp_path / "net.onnx", [node("Relu", "x")], shape=(2**21,))
    try:
        allow(2**21 * 4 * 64 - 64)
        assert "--memory" in refused(network)
        lower_network.cache_clear()
        allow(2**21 * 4 * 64)
        assert import_graph(network).input_size == 2**21
    finally:
        allow(None)


def test_a_query_says_that_its_network_is_beyond_the_memory(tmp_path: Path) -> None:
    network = save(tmp_path / "net.onnx", [node("Tile", "x", "s")], {"s": ints(1, 2**20)})
    text = "".join(f"(declare-const X_{i} Real)(assert (<= 0 X_{i} 1))" for i in range(4))
    (tmp_path / "p.vnnlib").write_text(text + "(declare-const Y_0 Real)(assert (<= Y_0 0))")
    query = Query.from_files([network.path], tmp_path / "p.vnnlib")
    try:
        said = survey(SurveyTask(query, (), 2**28))
    finally:
        allow(None)
    assert isinstance(said, InputError) and "--memory" in str(said)


@pytest.mark.usefixtures("four_gigabytes")
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_before_they_explode(name: str, tmp_path: Path) -> None:
    network = BOMBS[name](tmp_path / "net.onnx")
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    assert "expected" in refused(network)
    with pytest.raises(InputError):
        open_session(network)
    assert time.monotonic() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * GIGABYTE


def test_a_deep_network_is_imported(tmp_path: Path) -> None:
    nodes = [node("Add", f"t{i}" if i else "x", "w", output=f"t{i + 1}") for i in range(3000)]
    nodes = [n if i % 2 else node("Relu", n.input[0], output=n.output[0]) for i, n in enumerate(nodes)]
    network = save(tmp_path / "net.onnx", nodes, {"w": floats(0.5)}, output="t3000")
    assert len(import_graph(network).nodes) == 3001


MALFORMED: dict[str, Callable[[Path], Network]] = {
    "double input": lambda p: save(p, [node("Relu", "x")], kind=TensorProto.DOUBLE),
    "int input": lambda p: save(p, [node("Cast", "x", to=1)], kind=TensorProto.INT64),
    "no shape": lambda p: save(p, [node("Relu", "x")], shape=None),
    "unresolved shape": lambda p: save(
        p, [node("MatMul", "x", "w")], {"w": np.ones((4, 2), np.float32)}, shape=("n", "m")
    ),
    "nan": lambda p: save(p, [node("Mul", "x", "w")], {"w": floats(1, np.nan, 1, 1)}),
    "infinity": lambda p: save(p, [node("MatMul", "x", "w")], {"w": np.full((4, 2), np.inf, np.float32)}),
    "division by zero": lambda p: save(p, [node("Div", "x", "w")], {"w": floats(0.0)}),
    "missing tensor": lambda p: save(p, [node("Add", "x", "nowhere")]),
    "missing input": lambda p: save(p, [node("Add", "x")]),
    "missing output": lambda p: save(p, [node("Relu", "x", output="z")]),
    "cycle": lambda p: save(p, [node("Add", "x", "y")]),
    "axis": lambda p: save(p, [node("Softmax", "x", axis=7)]),
    "reshape": lambda p: save(p, [node("Reshape", "x", "s")], {"s": ints(3, -1)}),
    "broadcast": lambda p: save(p, [node("Add", "x", "w")], {"w": floats(1, 2, 3)}),
    "matmul": lambda p: save(p, [node("MatMul", "x", "w")], {"w": np.ones((3, 2), np.float32)}),
    "attribute type": lambda p: save(p, [node("Flatten", "x", axis="one")]),
    "negative kernel": lambda p: save(p, [node("MaxPool", "x", kernel_shape=[-1, 2])], shape=(1, 1, 4, 4)),
    "zero stride": lambda p: save(
        p, [node("MaxPool", "x", kernel_shape=[2, 2], strides=[0, 1])], shape=(1, 1, 4, 4)
    ),
    "variable shape": lambda p: save(p, [node("Expand", "w", "x")], {"w": floats(1)}),
    "bool weights": lambda p: save(p, [node("Gather", "x", "w")], {"w": np.array([True])}),
    "gather out of range": lambda p: save(p, [node("Gather", "x", "w")], {"w": ints(99)}),
    "strings": lambda p: save(p, [node("Add", "x", "w")], {"w": np.array(["a"], object)}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_networks_are_refused(name: str, tmp_path: Path) -> None:
    assert "expected" in refused(MALFORMED[name](tmp_path / "net.onnx"))


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x08\x08", os.urandom(5000), b"\x0a" * 9999])
def test_files_that_are_no_models_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    refused(Network.load(path))


def test_a_missing_file_and_a_broken_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        Network.load(tmp_path / "absent.onnx")
    network = save(tmp_path / "net.onnx", [node("Relu", "x")])
    network.path.unlink()
    refused(network)
    broken = tmp_path / "net.onnx.gz"
    broken.write_bytes(b"\x1f\x8b\x08 nonsense")
    refused(Network.load(broken))


def test_a_compressed_model_is_read(tmp_path: Path) -> None:
    network = save(tmp_path / "net.onnx", [node("Relu", "x")])
    packed = tmp_path / "net.onnx.gz"
    packed.write_bytes(gzip.compress(network.path.read_bytes()))
    zipped = Network.load(packed)
    assert import_graph(zipped).sha256 == import_graph(network).sha256
    assert zipped.replay(np.array([-1.0, 2.0, 3.0, -4.0])).tolist() == [0.0, 2.0, 3.0, 0.0]
