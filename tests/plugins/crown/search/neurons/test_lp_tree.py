"""Formulas as networks with one hidden layer: linear programs at the nodes decide them and leave certificates."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.certificates.writer import write
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.query import Query
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.neurons import stages
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio_check.main import run

Clause = tuple[tuple[int, bool], ...]


def formula(folder: Path, variables: int, clauses: list[Clause]) -> tuple[Path, Path]:
    """Y_0 is 1 less the unsatisfied clauses, Y_1 how far inputs are from 0 and 1; a counterexample has 1 and 0."""
    eye = np.eye(variables, dtype=np.float32)
    weights, bias = [eye, 2 * eye], [np.zeros(variables), -np.ones(variables)]
    rows = np.zeros((len(clauses), variables), np.float32)
    offset = np.ones(len(clauses))
    for k, clause in enumerate(clauses):
        for i, positive in clause:
            rows[k, i] += -1 if positive else 1
            offset[k] -= 0 if positive else 1
    first = np.concatenate([*weights, rows]), np.concatenate([*bias, offset]).astype(np.float32)
    second = np.zeros((2, len(first[0])), np.float32)
    second[0, 2 * variables :] = -1
    second[1, :variables], second[1, variables : 2 * variables] = 1, -1
    values = {"a": first[0], "b": first[1], "c": second, "d": np.array([1, 0], np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["z"], transB=1),
        helper.make_node("Relu", ["z"], ["h"]),
        helper.make_node("Gemm", ["h", "c", "d"], ["y"], transB=1),
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, s)) for n, s in (("x", variables), ("y", 2))
    ]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, n) for n, v in values.items()]
    )
    network, prop = folder / "n.onnx", folder / "p.vnnlib"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), network)
    text = [f"(declare-const X_{i} Real)" for i in range(variables)]
    text += ["(declare-const Y_0 Real)", "(declare-const Y_1 Real)"]
    text += [f"(assert (>= X_{i} 0.0))\n(assert (<= X_{i} 1.0))" for i in range(variables)]
    prop.write_text("\n".join([*text, "(assert (>= Y_0 1.0))", "(assert (<= Y_1 0.0))"]))
    return network, prop


def decide(folder: Path, network: Path, prop: Path) -> Outcome:
    (problem,) = Query.from_files([network], prop).problems
    crown = Crown(CrownOptions(split="neuron", trace=str(folder)))
    return crown.run(problem, Context(Budget(60.0), check=lambda x: bool(np.isin(x, (0, 1)).all())))


def test_formulas_are_decided_by_linear_programs_and_leave_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "STAGES", (stages.Stage(0.0, 1, 0.0),))  # no time for the search before them
    every = [tuple(zip(range(4), signs, strict=True)) for signs in product([False, True], repeat=4)]
    network, prop = formula(tmp_path, 4, every)
    outcome = decide(tmp_path, network, prop)
    assert outcome.verdict is Verdict.UNSAT and outcome.stats["by"] == "linear programs"
    assert write(network, prop, tmp_path, tmp_path / "c.gz", 1.0) == str(tmp_path / "c.gz")
    assert run(network, prop, tmp_path / "c.gz") == (0, "valid")


def test_a_formula_that_one_assignment_satisfies_has_no_proof(tmp_path: Path) -> None:
    every = [tuple(zip(range(4), signs, strict=True)) for signs in product([False, True], repeat=4)]
    network, prop = formula(tmp_path, 4, every[:5] + every[6:])
    assert decide(tmp_path, network, prop).verdict is not Verdict.UNSAT
