"""Declared networks and tensors mean the files and the ONNX tensors that they name, whoever asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from verifolio.cli.main import run
from verifolio.errors import InputError
from verifolio.model.answer import Verdict, Witness
from verifolio.model.binding import check_sizes
from verifolio.model.counterexample import counterexample_text
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.solve.oracle import Oracle
from verifolio.testing.samples import write_sum
from verifolio.trust.referee import Rejection, judge_counterexample
from verifolio.vnnlib import loads, write

POINT = "(assert (<= A[0] 1.0)) (assert (>= A[0] 1.0)) (assert (<= B[0] 0.0)) (assert (>= B[0] 0.0))"


def declared(inputs: str, outputs: str = '(declare-output Y real [1] "y")') -> str:
    return f"(vnnlib-version <2.0>)\n(declare-network N\n{inputs}\n{outputs}\n)\n"


SWAPPED = declared('(declare-input B real [1] "b")\n(declare-input A real [1] "a")')


@pytest.fixture
def difference(tmp_path: Path) -> Path:
    """y = relu(a - b), a network of two inputs."""
    names = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "aby"]
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    return saved(tmp_path / "difference.onnx", helper.make_graph(nodes, "g", names[:2], names[2:]))


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """p = relu(x), q = -x, of two numbers and one: a network of two outputs."""
    x, p, q = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [s]) for n, s in (("x", 2), ("p", 2), ("q", 1))
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["p"]),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("ReduceSum", ["n"], ["q"], keepdims=1),
    ]
    return saved(tmp_path / "halves.onnx", helper.make_graph(nodes, "g", [x], [p, q]))


def saved(path: Path, graph: onnx.GraphProto) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def query(network: Path, text: str) -> Query:
    path = network.with_suffix(".vnnlib")
    path.write_text(text)
    return Query.from_files([network], path)


def verdict(asked: Query) -> Verdict:
    with Oracle(None, "inline", timeout=20.0) as oracle:
        return oracle.ask(asked).verdict


def test_inputs_are_bound_by_name(difference: Path) -> None:
    """y = 1 at a = 1, b = 0."""
    reached = query(difference, f"{SWAPPED}{POINT}\n(assert (>= Y[0] 0.5))")
    missed = query(difference, f"{SWAPPED}{POINT}\n(assert (<= Y[0] 0.1))")
    assert verdict(reached) is Verdict.SAT
    assert verdict(missed) is Verdict.UNSAT
    assert isinstance(judge_counterexample(missed, np.array([0.0, 1.0])), Rejection)


def test_a_query_made_in_python_is_bound_too(difference: Path) -> None:
    asked = Query((Network.load(difference),), loads(f"{SWAPPED}{POINT}\n(assert (>= Y[0] 0.5))"))
    assert asked.problems[0].domain.lower.tolist() == [1.0, 0.0]
    again = Query(asked.networks, asked.specification)
    assert again.specification is asked.specification


def test_without_names_the_order_decides(difference: Path) -> None:
    text = declared("(declare-input B real [1])\n(declare-input A real [1])", "(declare-output Y real [1])")
    assert verdict(query(difference, f"{text}{POINT}\n(assert (>= Y[0] 0.5))")) is Verdict.UNSAT


def test_outputs_are_bound_by_name(halves: Path) -> None:
    text = declared(
        '(declare-input X real [2] "x")', '(declare-output Q real [1] "q")\n(declare-output P real [2] "p")'
    )
    bounds = "".join(f"(assert (<= X[{k}] 1.0)) (assert (>= X[{k}] 1.0))" for k in range(2))
    asked = query(halves, f"{text}{bounds}\n(assert (>= P[1] 0.5))\n(assert (<= (+ Q[0] P[1]) -0.5))")
    assert verdict(asked) is Verdict.SAT
    assert verdict(query(halves, f"{text}{bounds}\n(assert (>= Q[0] 0.5))")) is Verdict.UNSAT


def test_a_counterexample_is_written_by_declared_tensors(difference: Path) -> None:
    asked = query(difference, f"{SWAPPED}{POINT}\n(assert (>= Y[0] 0.5))")
    found = judge_counterexample(asked, np.array([1.0, 0.0]))
    assert isinstance(found, Witness)
    assert counterexample_text(asked, found) == "B real [1]\n0\nA real [1]\n1\nY real [1]\n1\n"


def test_a_bound_property_keeps_its_meaning_when_written(difference: Path) -> None:
    asked = query(difference, f"{SWAPPED}{POINT}\n(assert (>= Y[0] (+ A[0] B[0])))")
    again = query(difference, write(asked.specification))
    assert [p.sha256 for p in again.problems] == [p.sha256 for p in asked.problems]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            '(declare-input B real [1] "nosuch")\n(declare-input A real [1] "a")',
            r'\.vnnlib:3:1: expected one of "a", "b", the inputs of difference.onnx, got "nosuch"; name the',
        ),
        (
            '(declare-input B real [1] "a")\n(declare-input A real [1] "a")',
            r'\.vnnlib:4:1: expected each input once, got "a" again; ',
        ),
        (
            '(declare-input B real [1] "b")\n(declare-input A real [1])',
            r"\.vnnlib:4:1: expected an ONNX name for every input of the network, or for none, got none for A; ",
        ),
        (
            '(declare-input A real [1] "a")\n(declare-input B real [1] "b")\n(declare-input C real [1] "y")',
            r'\.vnnlib:5:1: expected one of "a", "b"',
        ),
        ('(declare-input A real [1] "a")', r'\.vnnlib:3:1: expected 2 inputs, .*: "a", "b", got 1; '),
    ],
)
def test_names_that_do_not_fit_are_refused(difference: Path, inputs: str, message: str) -> None:
    text = declared(inputs)
    bounds = "".join(
        f"(assert (<= {t}[0] 1.0)) (assert (>= {t}[0] 0.0))" for t in "ABC" if f"put {t} " in inputs
    )
    with pytest.raises(InputError, match=message):
        query(difference, f"{text}{bounds}\n(assert (>= Y[0] 0.5))")


def test_an_unknown_name_is_bad_input_on_the_command_line(
    difference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = difference.with_suffix(".vnnlib")
    path.write_text(f"{SWAPPED}{POINT}\n(assert (>= Y[0] 0.5))".replace('"b"', '"c"'))
    assert run(["verify", str(difference), str(path)]) == 2
    assert f'{path}:3:1: expected one of "a", "b"' in capsys.readouterr().err


def test_sizes_are_compared_tensor_by_tensor(halves: Path) -> None:
    """Three outputs are three outputs, but not of these shapes."""
    text = declared("(declare-input X real [2])", "(declare-output P real [1])\n(declare-output Q real [2])")
    bounds = "".join(f"(assert (<= X[{k}] 1.0)) (assert (>= X[{k}] 1.0))" for k in range(2))
    with pytest.raises(InputError, match=r"\.vnnlib:4:1: expected 2 elements, as output 'p' .* got 1 in P"):
        check_sizes(query(halves, f"{text}{bounds}\n(assert (>= P[0] 0.5))"))


CHAIN = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [2]) (declare-output P real [2]))
(declare-network g (equal-to f) (declare-input U real [2]) (declare-output V real [2]))
(declare-network k (equal-to g) (declare-input R real [2]) (declare-output S real [2]))
"""


def chain(threshold: float) -> str:
    bounds = [f"(assert (<= {t}[{i}] 1.0))\n(assert (>= {t}[{i}] 0.0))\n" for t in "XUR" for i in range(2)]
    return f"{CHAIN}{''.join(bounds)}(assert (>= (+ P[0] V[0] S[0]) {threshold}))\n"


@pytest.mark.parametrize(("threshold", "expected"), [(5.5, Verdict.SAT), (6.5, Verdict.UNSAT)])
def test_a_chain_of_equal_networks_needs_one_file(
    tmp_path: Path, threshold: float, expected: Verdict
) -> None:
    asked = query(write_sum(tmp_path).path, chain(threshold))
    assert [n.path.name for n in asked.networks] == ["sum2.onnx"] * 3
    assert verdict(asked) is expected


def test_files_may_be_given_by_declared_name(tmp_path: Path) -> None:
    network = write_sum(tmp_path).path
    path = tmp_path / "p.vnnlib"
    path.write_text(chain(5.5))
    assert len(Query.from_files({"f": network}, path).networks) == 3
    with pytest.raises(InputError, match="a file for network f, got other"):
        Query.from_files({"other": network}, path)


def test_equal_networks_are_equal(tmp_path: Path) -> None:
    one, other = write_sum(tmp_path), write_sum(tmp_path, 3)
    with pytest.raises(InputError, match="for network k the file of f, to which it is declared equal"):
        Query((one, one, other), loads(chain(5.5)))


def test_merge_takes_one_file_for_equal_networks(tmp_path: Path) -> None:
    network, text, out = write_sum(tmp_path).path, tmp_path / "p.vnnlib", tmp_path / "out"
    text.write_text(chain(5.5))
    assert run(["vnnlib", "merge", str(network), str(text), "--output", str(out)]) == 0
    merged = Query.from_files([out / "merged.onnx"], out / "merged.vnnlib")
    assert merged.networks[0].input_size == 6
    assert verdict(merged) is Verdict.SAT


def test_merge_refuses_a_property_of_another_size(tmp_path: Path) -> None:
    network, text = write_sum(tmp_path, 3).path, tmp_path / "p.vnnlib"
    text.write_text(chain(5.5))
    out = tmp_path / "out"
    assert run(["vnnlib", "merge", str(network), str(text), "--output", str(out)]) == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("shape", "index", "fits"),
    [("2,3", "1,0", True), ("1,2,3", "0,1,0", True), ("6", "3", True), ("3,2", "1,1", False)],
)
def test_indices_mean_the_elements_that_they_mean_in_the_network(
    shape: str, index: str, fits: bool, tmp_path: Path
) -> None:
    """Element (1, 0) of two rows of three; in three rows of two, the fourth element has other indices."""
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 3]) for n in "xy"]
    network = saved(
        tmp_path / "six.onnx",
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:]),
    )
    text = declared(f"(declare-input X real [{shape}])", f"(declare-output Y real [{shape}])")
    indices = [",".join(map(str, i)) for i in np.ndindex(*map(int, shape.split(",")))]
    text += "".join(f"(assert (>= X[{i}] 0.0)) (assert (<= X[{i}] 1.0))" for i in indices)
    asked = query(network, f"{text}(assert (>= Y[{index}] 0.5))")
    if fits:
        check_sizes(asked)
        return
    with pytest.raises(InputError, match=r"shape \[1, 2, 3\].*indices mean other elements"):
        check_sizes(asked)
