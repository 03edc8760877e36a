"""A query without inputs is decided before anybody is asked, and says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from verifolio.cli.main import run
from verifolio.errors import InputError
from verifolio.model.answer import Flag, Verdict
from verifolio.model.emptiness import emptiness
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing import hostile_verifiers as bad
from verifolio.testing.samples import reaches, write_sum
from verifolio.vnnlib import loads

DECLARED = "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "Y_0", "Y_1"))
SQUARE = "".join(f"(assert (>= X_{k} 0.0))\n(assert (<= X_{k} 1.0))\n" for k in range(2))


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return write_sum(tmp_path)


def asked(network: Network, more: str) -> Query:
    return Query((network,), loads(f"{DECLARED}{SQUARE}{more}"))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("(assert (>= X_1 2.0))(assert (>= Y_0 0.0))", "X_1 has the lower bound 2 and the upper bound 1"),
        ("(assert (>= X_1 1.00000000000000000001))(assert (>= Y_0 0.0))", "X_1 has the lower bound 1"),
        (
            "(assert (> X_0 1.0))(assert (>= Y_0 0.0))",
            "no point of the box satisfies the constraint over X_0",
        ),
        ("(assert (>= (+ X_0 X_1) 2.5))(assert (>= Y_0 0.0))", "the constraint over X_0, X_1"),
        ("(assert (<= 1.0 0.0))", "the condition is false as written"),
        (
            "(assert (or (and (>= X_0 2.0) (>= Y_0 0.0)) (and (>= X_1 3.0) (>= Y_1 0.0))))",
            r"upper bound 1 \(and 1 more input regions are empty\)",
        ),
    ],
)
def test_nobody_is_asked(network: Network, more: str, reason: str) -> None:
    """No member could prove anything here."""
    with Oracle(single_verifier(bad.Corners()), "inline", timeout=10.0) as oracle:
        answer = oracle.ask(asked(network, more))
    assert answer.verdict is Verdict.UNSAT
    assert answer.verifier == "specification"
    assert answer.flags == {Flag.EMPTY}
    assert not answer.attempts
    assert oracle.counts == {}
    assert re.search(reason, answer.reason)


@pytest.mark.parametrize(
    "more",
    [
        "(assert (>= X_1 1.0))(assert (>= Y_0 0.0))",
        "(assert (>= (+ X_0 X_1) 2.0))(assert (>= Y_0 0.0))",
        "(assert (or (and (>= X_0 2.0) (>= Y_0 0.0)) (and (>= X_1 1.0) (>= Y_1 0.0))))",
    ],
)
def test_a_point_is_enough(network: Network, more: str) -> None:
    assert emptiness(asked(network, more)) == ""


def test_a_ball_beside_the_box_is_empty(network: Network) -> None:
    def around(x: float) -> Query:
        return reaches(network, 0.0, ball=Ball(np.full(2, x), 1.0, 1.0))

    assert emptiness(around(2.0)) == "the input set is empty: the ball does not meet the box"
    assert emptiness(around(1.5)) == ""  # they meet in one point


def test_the_networks_still_have_to_fit(network: Network) -> None:
    query = reaches(network, 0.0, (1.0,) * 3, (0.0,) * 3)
    with (
        Oracle(single_verifier(bad.Corners()), "inline") as oracle,
        pytest.raises(InputError, match="2 inputs"),
    ):
        oracle.ask(query)


def test_the_command_line_warns(network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "p.vnnlib"
    text.write_text(f"{DECLARED}{SQUARE}(assert (>= X_1 2.0))\n(assert (>= Y_0 0.0))\n")
    assert run(["verify", str(network.path), str(text), "--executor", "inline"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "unsat"
    assert "flags: empty" in out
    assert "warning: the input set is empty: X_1 has" in err
    assert run(["verify", str(network.path), str(text), "--executor", "inline", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["flags"] == ["empty"]
    assert run(["verify", str(network.path), str(text), "--executor", "inline", "--expect", "unsat"]) == 5
    assert "not what --expect asks for" in capsys.readouterr().err
    (tmp_path / "instances.csv").write_text(f"{network.path},{text},20\n")
    bench = ["bench", str(tmp_path / "instances.csv"), "-o", str(tmp_path / "r.csv"), "--executor", "inline"]
    assert run([*bench, "--no-pictures"]) == 0
    assert run([*bench, "--no-pictures", "--expect", "unsat"]) == 5
    capsys.readouterr()
    assert run(["verify", str(network.path), str(text), "--executor", "inline", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "warning: the input set is empty" in err
