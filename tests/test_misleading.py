"""Six ways in which a first user was told something confident and wrong, by the commands as they type them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.cli.main import run

HERE = ["--executor", "inline", "--timeout", "60"]


def write_linear(path: Path, shape: tuple[int, ...], weight: np.ndarray) -> str:
    """A network that flattens inputs of this shape and multiplies them."""
    held = [numpy_helper.from_array(weight.astype(np.float32), "w")]
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["positive"]),
        helper.make_node("MatMul", ["positive", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *shape])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, weight.shape[1]])
    graph = helper.make_graph(nodes, "linear", [x], [y], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))
    return str(path)


def write_property(path: Path, low: float, high: float, threshold: float) -> str:
    """Is there an input between these values whose first output is at least the threshold?"""
    lines = [
        "(declare-const X_0 Real)",
        "(declare-const Y_0 Real)",
        "(declare-const Y_1 Real)",
        f"(assert (>= X_0 {low}))",
        f"(assert (<= X_0 {high}))",
        f"(assert (>= Y_0 {threshold}))",
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def one(tmp_path: Path) -> str:
    """y = (relu(x), 0)."""
    return write_linear(tmp_path / "one.onnx", (1,), np.array([[1.0, 0.0]]))


@pytest.mark.parametrize(
    "command",
    [
        ["measure", "--indices", "0:1", "--metrics", "csat", "--epsilon", "3"],
        ["critical", "--index", "0"],
        ["distribution", "run", "--indices", "0:1", "--store", "store.db"],
    ],
)
def test_data_outside_the_legal_range(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With pixels from 0 to 16 and a range of 0 to 1, the ball was cut to nothing, and what was left was proved."""
    monkeypatch.chdir(tmp_path)
    network = write_linear(tmp_path / "net.onnx", (2,), np.eye(2))
    np.savez(tmp_path / "raw.npz", x=np.array([[9.0, 7.5]], np.float32), y=np.array([0]))
    assert run([*command, network, "--data", "raw.npz", *HERE]) == 2
    told = capsys.readouterr().err
    assert "values from 0 to 1, got 9" in told and "--range 0,9" in told


def test_channels_in_another_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An array of 8 x 8 x 3 has as many values as an input of 3 x 8 x 8, and was flattened without a word."""
    network = write_linear(tmp_path / "net.onnx", (3, 8, 8), np.random.default_rng(0).normal(size=(192, 2)))
    np.savez(tmp_path / "hwc.npz", x=np.full((1, 8, 8, 3), 0.5, np.float32), y=np.array([0]))
    asked = ["measure", network, "--data", str(tmp_path / "hwc.npz"), "--indices", "0:1", "--epsilon", "0.01"]
    assert run([*asked, "--metrics", "csat", *HERE]) == 2
    told = capsys.readouterr().err
    assert "shape 3x8x8" in told and "8x8x3" in told and "--layout hwc" in told
    assert run([*asked, "--metrics", "csat", "--layout", "hwc", *HERE]) == 0


def test_an_empty_set_of_inputs(one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was a plain unsat, as if something about the network had been proved."""
    prop = write_property(tmp_path / "empty.vnnlib", 0.6, 0.4, 0.1)
    run(["verify", one, prop, "--verifier", "crown", *HERE])
    told = capsys.readouterr()
    assert "flags: empty" in told.out and "X_0 has the lower bound 0.6 and the upper bound 0.4" in told.out
    assert "nothing about the network was proved" in told.err
    assert run(["verify", one, prop, "--expect", "unsat", *HERE]) == 5


def test_a_script_can_tell_sat_from_unsat(one: str, tmp_path: Path) -> None:
    """Both verdicts exited 0, so that `verify ... && deploy` deployed on a counterexample."""
    sat = write_property(tmp_path / "sat.vnnlib", 0, 1, 0.5)
    unsat = write_property(tmp_path / "unsat.vnnlib", 0, 1, 1.5)
    assert run(["verify", one, sat, "--expect", "unsat", *HERE]) == 5
    assert run(["verify", one, unsat, "--expect", "unsat", *HERE]) == 0
    assert run(["verify", one, unsat, "--expect", "sat", *HERE]) == 5
    table = tmp_path / "instances.csv"
    table.write_text(f"{one},{sat},60\n")
    asked = ["bench", str(table), "--executor", "inline"]
    assert run([*asked, "--output", str(tmp_path / "results.csv"), "--no-pictures", "--expect", "unsat"]) == 5


def test_a_certificate_that_is_not_written(
    one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--option certificate=FILE` wrote nothing for a sat, nor where it outgrew its limit, and did not say so."""
    sat = write_property(tmp_path / "sat.vnnlib", 0, 1, 0.5)
    target = tmp_path / "proof.gz"
    for option in (["--option", f"certificate={target}"], ["--certificate", str(target)]):
        code = run(["verify", one, sat, "--verifier", "crown", *option, *HERE])
        told = capsys.readouterr().err
        assert not target.exists()
        assert "certificate" in told and (code == 2 or "not written" in told)


def test_times_of_answers_that_are_reused(tmp_path: Path) -> None:
    """A second search on one store found the first one's answers there, and looked faster for it."""
    network = write_linear(tmp_path / "net.onnx", (2,), np.eye(2))
    np.savez(tmp_path / "data.npz", x=np.array([[0.9, 0.1]], np.float32), y=np.array([0]))
    asked = ["distribution", "run", network, "--data", str(tmp_path / "data.npz"), "--indices", "0:1"]
    store = ["--store", str(tmp_path / "store.db"), *HERE]
    rows = []
    for search in ("binary", "k-binary"):
        table = tmp_path / f"{search}.csv"
        grid = ["--search", search, "--epsilon", "0.1:1:0.1"]
        assert run([*asked, *grid, "--csv", str(table), *store]) == 0
        with table.open() as file:
            rows.append(next(csv.DictReader(file)))
    assert "reused" in rows[1], f"nothing marks an answer of {rows[1]} as reused"
    assert rows[0]["reused"] == "0" and int(rows[1]["reused"]) > 0
