"""Early members: they decide small networks' queries in workers without torch, and change nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.model.query import Query
from verifolio.plugin.choice import Choice
from verifolio.portfolio.chooser import find_chooser
from verifolio.portfolio.file import parse_portfolio
from verifolio.portfolio.tree import Member, Portfolio, Race, Series
from verifolio.run import Link
from verifolio.solve import walk
from verifolio.solve.attempt import run_attempt
from verifolio.solve.oracle import Oracle
from verifolio.solve.task import AttemptTask

INPUTS, WIDTH = 5, 40
PROGRAM = """
import sys
from verifolio.cli.main import run
code = run(["verify", *sys.argv[1:], "--json"])
print(code, *(name for name in ("torch", "scipy", "onnx", "onnxruntime") if name in sys.modules))
"""


def write_network(path: Path, function: str = "Relu") -> tuple[Path, float]:
    """A network of five inputs and one output, and its largest output among many points of the unit box."""
    random = np.random.default_rng(2)
    shapes = [(INPUTS, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)]
    weights = [(random.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for s in shapes]
    nodes, last = [], "x"
    for k in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"z{k}"]))
        last = f"z{k}"
        if k < len(weights) - 1:
            nodes.append(helper.make_node(function, [last], [f"h{k}"]))
            last = f"h{k}"
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size])]
        for n, size in (("x", INPUTS), (last, 1))
    ]
    tensors = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    model = helper.make_model(
        helper.make_graph(nodes, "small", *ends, tensors), opset_imports=[helper.make_opsetid("", 13)]
    )
    model.ir_version = 8
    onnx.save(model, str(path))
    x = random.random((4000, INPUTS))
    for w in weights[:-1]:
        x = np.maximum(x @ w, 0) if function == "Relu" else np.tanh(x @ w)
    return path, float((x @ weights[-1]).max())


def write_property(path: Path, least: float) -> Path:
    """Is there a point of the unit box whose output is at least this?"""
    bounds = "".join(f"(assert (>= X_{i} 0.0))\n(assert (<= X_{i} 1.0))\n" for i in range(INPUTS))
    declared = "".join(f"(declare-const X_{i} Real)\n" for i in range(INPUTS)) + "(declare-const Y_0 Real)\n"
    path.write_text(f"{declared}{bounds}(assert (>= Y_0 {least:.6f}))\n")
    return path


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, float]:
    return write_network(tmp_path / "small.onnx")


def ask(network: Path, prop: Path, portfolio: Portfolio | None = None) -> tuple[Verdict, list[str]]:
    with Oracle(portfolio, timeout=60.0) as oracle:
        answer = oracle.ask(Query.from_files([network], prop))
    return answer.verdict, [a.verifier for a in answer.attempts]


@pytest.mark.parametrize(("above", "verdict"), [(-0.01, Verdict.SAT), (5.0, Verdict.UNSAT)])
def test_the_default_decides_a_small_network_by_boxes_alone(
    tmp_path: Path, small: tuple[Path, float], above: float, verdict: Verdict
) -> None:
    prop = write_property(tmp_path / "p.vnnlib", small[1] + above)
    assert ask(small[0], prop) == (verdict, ["boxes"])


def test_neither_the_driver_nor_the_worker_imports_torch(tmp_path: Path, small: tuple[Path, float]) -> None:
    """The full workers' modules would end the command: they are never imported."""
    prop = write_property(tmp_path / "p.vnnlib", small[1] + 5)
    folder = tmp_path / "path"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('torch is imported')\n")
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", PROGRAM, str(small[0]), str(prop)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    said, modules = done.stdout.splitlines()
    assert '"verdict": "unsat"' in said
    assert '"verifier": "boxes"' in said
    assert modules == "0"


def test_what_early_members_leave_open_the_others_decide(tmp_path: Path, small: tuple[Path, float]) -> None:
    prop = write_property(tmp_path / "p.vnnlib", small[1] + 5)
    members = (
        Member(Choice("pgd"), seconds=0.5, early=True),
        Member(Choice("boxes")),
        Member(Choice("crown")),
    )
    verdict, attempts = ask(small[0], prop, Portfolio(Series(members)))
    assert verdict is Verdict.UNSAT
    assert attempts == ["pgd", "boxes"]


def test_an_early_member_that_is_not_installed_is_passed_over(
    tmp_path: Path, small: tuple[Path, float]
) -> None:
    prop = write_property(tmp_path / "p.vnnlib", small[1] + 5)
    members = (Member(Choice("nobody"), optional=True, early=True), Member(Choice("crown")))
    assert ask(small[0], prop, Portfolio(Series(members))) == (Verdict.UNSAT, ["crown"])


def test_a_network_that_needs_torch_is_refused_before_it_is_compared(tmp_path: Path) -> None:
    network, _ = write_network(tmp_path / "smooth.onnx", "Tanh")
    query = Query.from_files([network], write_property(tmp_path / "p.vnnlib", 100.0))
    task = AttemptTask(query, Choice("boxes"), early=True)
    report = run_attempt(task, Link(float("inf"), lambda: False, lambda _: None))
    assert report.refused
    assert "without torch" in report.reason


def test_a_large_network_is_not_read_early(
    tmp_path: Path, small: tuple[Path, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query.from_files([small[0]], write_property(tmp_path / "p.vnnlib", 1.0))
    assert walk.is_small(query)
    monkeypatch.setattr(walk, "SMALL", 10)
    assert not walk.is_small(query)


def test_only_the_head_of_a_sequence_is_early() -> None:
    first, second, third = (Member(Choice(n), early=e) for n, e in (("a", True), ("b", False), ("c", True)))
    assert Portfolio(Series((first, second, third))).early == (first,)
    assert Portfolio(Series((Race((first, second)), third))).early == ()
    assert Portfolio(first).early == (first,)


def test_early_is_read_and_part_of_the_key() -> None:
    early, plain = (
        parse_portfolio(f"sequence: [{{verifier: boxes{more}}}, crown]") for more in (", early: true", "")
    )
    assert [m.name for m in early.early] == ["boxes"]
    assert early.key != plain.key
    with pytest.raises(InputError, match="true or false"):
        parse_portfolio("verifier: boxes\nearly: 3")
    with pytest.raises(InputError, match="both"):
        parse_portfolio("{verifier: boxes, early: true, at_most: {inputs: 3}}")


def test_the_default_for_few_inputs_begins_with_boxes(tmp_path: Path, small: tuple[Path, float]) -> None:
    query = Query.from_files([small[0]], write_property(tmp_path / "p.vnnlib", 1.0))
    assert [m.name for m in find_chooser().choose(query).early] == ["boxes"]
