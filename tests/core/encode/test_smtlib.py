"""The SMT-LIB text of a query is satisfiable exactly where the query is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import z3

from verifolio.encode.exact_forms import NotExact, exact_network
from verifolio.encode.smtlib import to_smtlib
from verifolio.errors import InputError
from verifolio.graph import Dense, GraphBuilder
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball
from verifolio.testing.generate import KINDS, Kind, Shape, generate, write_problem


def solve(text: str) -> str:
    solver = z3.Solver()
    solver.from_string(text)
    return str(solver.check())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [1e-5, -1e-5])
def test_text_and_truth_agree(kind: Kind, distance: float, tmp_path: Path) -> None:
    shape = Shape(kind, inputs=4 if kind == "conv" else 2, width=2, depth=1)
    made = generate(np.random.default_rng(1), shape, distance, disjuncts=2, cuts=1)
    query = write_problem(made.problem, tmp_path)
    assert solve(to_smtlib(query)) == ("sat" if made.expected is Verdict.SAT else "unsat")


def test_balls_narrow_the_query(tmp_path: Path) -> None:
    made = generate(np.random.default_rng(2), Shape(), 0.1)
    query = write_problem(made.problem, tmp_path)
    assert made.point is not None
    for norm in (1.0, np.inf):
        near = replace(query, ball=Ball(made.point, 1e-3, norm))
        assert solve(to_smtlib(near)) == "sat"
        far = replace(query, ball=Ball(made.point + 100.0, 1e-3, norm))
        assert solve(to_smtlib(far)) == "unsat"
    with pytest.raises(InputError, match="norm 1 or infinity"):
        to_smtlib(replace(query, ball=Ball(made.point, 1.0, 2.0)))


def test_inexact_weights_have_no_exact_text() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 1)), np.ones((1, 1))), 0))
    with pytest.raises(NotExact, match="error"):
        exact_network(graph)


def test_the_command_prints_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verifolio.cli.main import run

    made = generate(np.random.default_rng(3), Shape(), -0.1)
    write_problem(made.problem, tmp_path)
    files = [str(tmp_path / "network.onnx"), str(tmp_path / "property.vnnlib")]
    assert run(["vnnlib", "export-smt", *files]) == 0
    assert solve(capsys.readouterr().out) == "unsat"
