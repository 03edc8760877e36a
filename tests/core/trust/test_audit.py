"""A second look at proofs: wrong ones end in an alarm, right ones cost next to nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from verifolio.model.answer import Flag, Outcome, Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.onnx_import.network import Network
from verifolio.plugin.verifier import Context
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.solve.walk import FALSE_PROOF
from verifolio.testing import hostile_verifiers as bad
from verifolio.testing.check import checker
from verifolio.testing.generate import KINDS, Shape, generate
from verifolio.testing.networks import plus_minus
from verifolio.testing.samples import reaches, write_sum
from verifolio.trust.audit import audited, refutes_exactly, refuting_candidates
from verifolio.trust.conflict import Alarm
from verifolio.vnnlib import Rows, make_rows

SQUARE = Domain(-np.ones(2), np.ones(2))


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    return write_sum(tmp_path)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_wrong_proof_is_an_alarm_with_a_folder(network: Network, tmp_path: Path, executor: str) -> None:
    with Oracle(single_verifier(bad.WrongProof()), executor, timeout=20.0) as oracle:
        with pytest.raises(Alarm, match="hostile-wrong-proof claims a proof") as raised:
            oracle.ask(reaches(network, 1.5))
        right = oracle.ask(reaches(network, 2.5))
    answer = raised.value.answer
    assert answer.verdict is Verdict.SAT
    assert Flag.ALARM in answer.flags
    assert answer.attempts[0].reason == FALSE_PROOF
    (folder,) = (tmp_path / "alarms").iterdir()
    assert json.loads((folder / "alarm.json").read_text())["claimed a proof"] == ["hostile-wrong-proof"]
    assert right.verdict is Verdict.UNSAT


def reach(threshold: float, domain: Domain = SQUARE, *more: Rows) -> Problem:
    """Can relu(x_0) + relu(x_1) reach the threshold?"""
    return Problem(plus_minus(), domain, (make_rows([({2: -1.0}, -threshold)]), *more))


@pytest.mark.parametrize(
    ("domain", "most"),
    [
        (SQUARE, 2.0),
        (Domain(-np.ones(2), np.ones(2), None, Ball(np.zeros(2), 0.5, math.inf)), 1.0),
        (Domain(-np.ones(2), np.ones(2), None, Ball(np.zeros(2), 0.5, 1.0)), 0.5),
        (Domain(-np.ones(2), np.ones(2), None, Ball(np.zeros(2), 1.0, 2.0)), math.sqrt(2.0)),
        (Domain(-np.ones(2), np.ones(2), make_rows([({0: 1.0, 1: 1.0}, 1.0)])), 1.0),
    ],
)
def test_candidates_lie_in_the_domain_and_refute(domain: Domain, most: float) -> None:
    wrong, right = reach(0.5 * most, domain), reach(1.01 * most, domain)
    start = {0: np.array([0.1, 0.2])}
    found = refuting_candidates([wrong, right, wrong], 1.0, start | {2: np.array([0.3, 0.1])})
    assert set(found) == {0, 2}
    assert all(checker(wrong)(x) for x in found.values())


def test_the_first_corner_is_tried_however_short_time_is() -> None:
    start = {0: np.array([0.1, 0.2])}
    assert refuting_candidates([reach(1.9)], 0.0, start)[0].tolist() == [1.0, 1.0]


def test_one_possible_disjunct_is_enough() -> None:
    never, always = make_rows([({2: -1.0}, -9.0)]), make_rows([])
    assert 0 in refuting_candidates([reach(9.0, SQUARE, never, always)])
    assert refuting_candidates([reach(9.0, SQUARE, never)], 0.1) == {}
    endless = Domain(np.full(2, -np.inf), np.full(2, np.inf))
    assert refuting_candidates([reach(1.0, endless), Problem(plus_minus(), SQUARE, ())]) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_true_proofs_have_no_refuting_candidates(kind: str) -> None:
    for seed in range(4):
        shape = Shape(kind, inputs=4 if kind == "conv" else 2)  # type: ignore[arg-type]
        made = generate(np.random.default_rng(seed), shape, -1e-6, disjuncts=2)
        if made.expected is Verdict.UNSAT:
            assert refuting_candidates([made.problem], 0.05) == {}


def test_exact_arithmetic_has_the_last_word() -> None:
    assert refutes_exactly(reach(1.0), np.array([0.9, 0.9]))
    assert not refutes_exactly(reach(2.0), np.array([1.0, 1.0]))  # a tie, and at the edge of the box
    assert not refutes_exactly(reach(1.0), np.array([1.1, 0.9]))


def test_other_tools_are_believed_only_where_told() -> None:
    problem = reach(1.5)
    context = Context(check=checker(problem))
    claim = Outcome.proved(stats={"seconds": 1})
    doubted = audited(claim, "untrusted", problem, context, 1.0)
    assert doubted.verdict is Verdict.UNKNOWN
    assert "not trusted" in doubted.reason
    refuted = audited(claim, "trusted", problem, context, 1.0)
    assert refuted.verdict is Verdict.UNSAT
    assert refuted.point is not None
    assert checker(problem)(refuted.point)
    assert audited(claim, "trusted", reach(2.5), context, 0.1) is claim
