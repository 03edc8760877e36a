"""Members that disagree: a witness stands, and whoever claimed a proof against it is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio.model.answer import Flag, Verdict, Witness
from verifolio.model.query import Query
from verifolio.testing.samples import reaches, write_sum
from verifolio.trust.conflict import FOLDER_VARIABLE, Alarm, MemberClaim, meet_proof, raise_alarm, settle


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "alarms"))
    return reaches(write_sum(tmp_path), 1.5)


def witness(*flags: Flag) -> Witness:
    return Witness(np.ones(2, np.float32), np.array([2.0, 0.0], np.float32), (0.5,), frozenset(flags))


PROOF = MemberClaim("prover", Verdict.UNSAT)


@pytest.mark.parametrize("first", [True, False])
def test_a_confirmed_witness_against_a_proof_is_an_alarm(query: Query, tmp_path: Path, first: bool) -> None:
    claims = [PROOF, MemberClaim("finder", Verdict.SAT, witness())]
    answer = settle(query, claims if first else claims[::-1])
    assert answer.verdict is Verdict.SAT
    assert Flag.ALARM in answer.flags
    assert "prover claims a proof" in answer.reason
    (folder,) = (tmp_path / "alarms").iterdir()
    assert (folder / "counterexample.txt").is_file()
    with pytest.raises(Alarm):
        raise_alarm(answer)


def test_a_witness_against_a_proof_by_bounds_alone_is_an_alarm(query: Query) -> None:
    with pytest.raises(Alarm):
        meet_proof(query, witness(), "bounder")
    meet_proof(query, witness(Flag.FLOAT_ONLY), "bounder")


@pytest.mark.parametrize("flag", [Flag.FLOAT_ONLY, Flag.UNCHECKED_EXACT])
def test_a_witness_of_floating_point_alone_is_no_alarm(query: Query, flag: Flag) -> None:
    answer = settle(query, [PROOF, MemberClaim("finder", Verdict.SAT, witness(flag))])
    assert answer.verdict is Verdict.SAT
    assert Flag.NUMERICAL in answer.flags
    assert Flag.ALARM not in answer.flags
    raise_alarm(answer)


def test_members_that_agree(query: Query) -> None:
    assert settle(query, [PROOF, PROOF]).verdict is Verdict.UNSAT
    answer = settle(query, [MemberClaim("finder", Verdict.SAT, witness())])
    assert (answer.verdict, answer.verifier, answer.flags) == (Verdict.SAT, "finder", frozenset())
