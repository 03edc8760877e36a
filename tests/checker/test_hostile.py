"""Files made to deceive the checker: networks that mean something else elsewhere, properties that hide something."""

from __future__ import annotations

import ast
import gzip
import io
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verifolio_check
from verifolio_check.folder import Ball
from verifolio_check.integers import Unreadable
from verifolio_check.main import INVALID, UNREADABLE, VALID, run

from .networks import property_text, save, save_nodes
from .test_false_claims import verdict

MOST_STATEMENTS = 1200  # of the checker, imports and docstrings aside


def dense(path: Path, weight: float = 1.0) -> Path:
    """y = weight x."""
    return save(path, [(np.full((1, 1), weight, np.float32), np.zeros(1, np.float32))], gemm=False)


def test_the_checker_stays_small() -> None:
    count = 0
    for path in Path(verifolio_check.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        count += sum(t.type == tokenize.NEWLINE for t in tokenize.generate_tokens(io.StringIO(text).readline))
        for node in ast.walk(ast.parse(text)):
            count -= isinstance(node, ast.Import | ast.ImportFrom)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                count -= ast.get_docstring(node) is not None
    assert 500 < count <= MOST_STATEMENTS


def test_an_output_that_is_the_input_is_told_apart_from_it(tmp_path: Path) -> None:
    """A row over the outputs was replaced by the one over the inputs, which was empty."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    net = save_nodes(tmp_path / "n.onnx", nodes, [], (1, 1), "y", (1, 1))
    for row, wanted in (
        ("(<= Y_0 -0.5)", INVALID),
        ("(<= Y_0 -1.5)", VALID),
        ("(<= (+ Y_0 X_0) -1.5)", INVALID),
    ):
        assert verdict(tmp_path, net, property_text([-1], [1], 1, row), ".", 30) == wanted


@pytest.mark.parametrize("kind", ["initializer", "constant"])
def test_weights_in_other_files_are_not_looked_for(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate names the hash of the network alone; the folder one works in may hold a file of that name."""
    net = dense(tmp_path / "n.onnx")
    model = onnx.load(net)
    tensor = model.graph.initializer[0]
    (tmp_path / "weights").write_bytes(np.full(1, 5, np.float32).tobytes())
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights")
    if kind == "constant":
        model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
        del model.graph.initializer[0]
    net.write_bytes(model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    assert verdict(tmp_path, net, property_text([1], [1], 1, "(<= Y_0 2.0)"), ".", 30) == UNREADABLE


def other_relu(model: Any) -> None:
    body = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(
        helper.make_function("", "Relu", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )


def old(model: Any) -> None:
    model.opset_import[0].version = 6


def whole_numbers(model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64


@pytest.mark.parametrize("change", [other_relu, old, whole_numbers])
def test_files_whose_operators_mean_something_else_are_unreadable(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    net, text = dense(tmp_path / "n.onnx"), property_text([1], [1], 1, "(<= Y_0 0.5)")
    assert verdict(tmp_path, net, text, ".", 30) == VALID
    model = onnx.load(net)
    change(model)
    net.write_bytes(model.SerializeToString())
    assert verdict(tmp_path, net, text, ".", 30) == UNREADABLE


def test_a_default_of_an_attribute_is_a_float32(tmp_path: Path) -> None:
    """The slope of a LeakyRelu that states none is 0.01 rounded to a float32, a little less than 0.01."""
    nodes = [helper.make_node("LeakyRelu", ["x"], ["y"])]
    net = save_nodes(tmp_path / "n.onnx", nodes, [], (1, 1), "y", (1, 1))
    for limit in ("-0.0099999999", "-0.00999999978"):
        text = property_text([-1], [-1], 1, f"(>= Y_0 {limit})")
        assert verdict(tmp_path, net, text, ".", 40) == INVALID


def test_integers_that_doubles_do_not_hold_are_refused(tmp_path: Path) -> None:
    constants = [numpy_helper.from_array(np.array([[2**53 + 1]], np.int64), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    net = save_nodes(tmp_path / "n.onnx", nodes, constants, (1, 1), "y", (1, 1))
    assert verdict(tmp_path, net, property_text([1], [1], 1, "(<= Y_0 0.5)"), ".", 30) == UNREADABLE


def test_a_comment_ends_with_its_line_whatever_ends_that(tmp_path: Path) -> None:
    net, text = (
        dense(tmp_path / "n.onnx"),
        property_text([-1], [1], 1, "(or (<= Y_0 -5.0) ; END (<= Y_0 0.0)\n)"),
    )
    for end, wanted in ((" ", VALID), ("\r", INVALID), ("\n", INVALID)):
        path = tmp_path / "q.vnnlib"
        path.write_bytes(text.replace("END", end).encode())
        with path.open(newline="") as file:
            assert verdict(tmp_path, net, file.read(), ".", 30) == wanted


def test_sigmoids_in_coarse_units_are_refused(tmp_path: Path) -> None:
    """The lemma on their least values needs units no coarser than the steps of the table."""
    nodes = [helper.make_node("Sigmoid", ["x"], ["y"])]
    net = save_nodes(tmp_path / "n.onnx", nodes, [], (1, 1), "y", (1, 1))
    for width, wanted in ((1 << 10, VALID), (1 << 24, INVALID)):
        text = property_text([-width], [width], 1, "(<= Y_0 -1000000000.0)")
        assert verdict(tmp_path, net, text, ".", 30) == wanted


@pytest.mark.parametrize("kind", ["damaged", "digits", "rows"])
def test_hostile_properties_are_unreadable(tmp_path: Path, kind: str) -> None:
    net = dense(tmp_path / "n.onnx")
    text = property_text([1], [1], 1, "(<= Y_0 0.5)")
    if kind == "digits":
        text = text.replace("0.5", f"(* {'9e400 ' * 2000})")
    if kind == "rows":
        text += f"(assert (and (or {'(<= X_0 5) ' * 9000}) {'(<= X_0 5) ' * 3000}))"
    assert verdict(tmp_path, net, text, ".", 30) == (VALID if kind == "damaged" else UNREADABLE)
    if kind == "damaged":
        packed = bytearray(gzip.compress(text.encode() * 20))
        packed[40] ^= 255
        packed[60] ^= 85
        (tmp_path / "p.vnnlib.gz").write_bytes(bytes(packed))
        code, line = run(net, tmp_path / "p.vnnlib.gz", tmp_path / "c.gz")
        assert code == UNREADABLE and "\n" not in line


def test_constants_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    """A file of some hundred bytes asks for 2^40 numbers."""
    nodes = [helper.make_node("Gather", ["c0", "i"], ["c1"], axis=1)]
    nodes += [helper.make_node("Concat", [f"c{k}"] * 64, [f"c{k + 1}"], axis=0) for k in range(1, 5)]
    nodes.append(helper.make_node("MatMul", ["x", "c0"], ["y"]))
    constants = [numpy_helper.from_array(np.ones((1, 1), np.float32), "c0")]
    constants.append(numpy_helper.from_array(np.zeros(1 << 14, np.int64), "i"))
    net = save_nodes(tmp_path / "n.onnx", nodes, constants, (1, 1), "y", (1, 1))
    assert verdict(tmp_path, net, property_text([1], [1], 1, "(<= Y_0 0.5)"), ".", 30) == UNREADABLE


def test_the_command_limits_its_memory(tmp_path: Path) -> None:
    """A Pad that asks for 16 GB is refused by the system, and reported."""
    pytest.importorskip("resource")
    constants = [numpy_helper.from_array(np.array([0, 0, 0, 1 << 31], np.int64), "p")]
    nodes = [helper.make_node("Pad", ["x", "p"], ["y"])]
    net = save_nodes(tmp_path / "n.onnx", nodes, constants, (1, 1), "y", (1, 1))
    (tmp_path / "p.vnnlib").write_text(property_text([1], [1], 1, "(<= Y_0 0.5)"))
    (tmp_path / "c.gz").write_bytes(gzip.compress(b""))
    command = [sys.executable, "-m", "verifolio_check.main", str(net), str(tmp_path / "p.vnnlib")]
    said = subprocess.run([*command, str(tmp_path / "c.gz")], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (UNREADABLE, "") and "Memory" in said.stdout


def test_a_ball_around_an_input_that_is_not_legal_is_none() -> None:
    """No legal input is near it, so anything would hold of all of them."""
    stated = {"x": [0.5], "label": 0, "radius": 0.1, "low": 0.0, "high": 1.0}
    Ball.stated(stated)
    for wrong in ({"high": 0.0}, {"low": 0.6}, {"radius": -0.1}):
        with pytest.raises(Unreadable):
            Ball.stated({**stated, **wrong})
