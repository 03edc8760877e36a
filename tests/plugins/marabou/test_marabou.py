"""Marabou: conformance, and real networks where it is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from verifolio.model.answer import Verdict
from verifolio.model.query import Query
from verifolio.plugin.choice import Choice
from verifolio.plugins.marabou.verifier import Marabou, MarabouOptions
from verifolio.portfolio.tree import Member, Portfolio, Race, single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.verifiers import VerifierConformance

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("VERIFOLIO_SHARED", ROOT.parent / "shared" / "data")) / "public" / "acasxu"
installed = pytest.mark.skipif(not find_spec("maraboupy"), reason="maraboupy is not installed")
present = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no ACAS Xu networks in {SHARED}")


@installed
class TestMarabou(VerifierConformance):
    make = Marabou


def test_its_proofs_are_untrusted_by_default() -> None:
    assert MarabouOptions().unsat == "untrusted"


def test_it_says_what_is_missing() -> None:
    assert (Marabou.available() is None) == (find_spec("maraboupy") is not None)


@installed
@pytest.mark.parametrize(("file", "verdict"), [("0.01", Verdict.UNSAT), ("0.2", Verdict.SAT)])
def test_the_example_networks(file: str, verdict: Verdict) -> None:
    networks = ROOT / "examples" / "networks"
    query = Query.from_files(
        [networks / "digits_dense.onnx"], networks / "properties" / f"digits_dense_45_{file}.vnnlib"
    )
    with Oracle(single_verifier(Marabou(MarabouOptions(unsat="trusted"))), timeout=60.0) as oracle:
        assert oracle.ask(query).verdict is verdict


@installed
def test_untrusted_proofs_are_only_reported() -> None:
    networks = ROOT / "examples" / "networks"
    query = Query.from_files(
        [networks / "digits_dense.onnx"], networks / "properties" / "digits_dense_45_0.01.vnnlib"
    )
    with Oracle(single_verifier("marabou"), timeout=60.0) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.UNKNOWN
    assert "not trusted" in answer.reason


@installed
@present
def test_a_race_on_acas_xu() -> None:
    """Whoever wins, the other one is recorded as cancelled, and its process is gone."""
    query = Query.from_files(
        [SHARED / "onnx" / "ACASXU_run2a_2_7_batch_2000.onnx"], SHARED / "vnnlib" / "prop_3.vnnlib"
    )
    race = Portfolio(Race((Member(Choice("crown")), Member(Choice("marabou", {"unsat": "trusted"})))))
    with Oracle(race, timeout=60.0) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.UNSAT
    assert {a.verifier for a in answer.attempts} == {"crown", "marabou"}
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != "zombie"]


RACED = [(p, n) for p in ("3", "4") for n in ("2_4", "2_5", "2_7", "2_9", "3_8", "4_9", "5_7")]


@installed
@present
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_it_wins_races_on_acas_xu_and_nobody_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against milp with the loosest bounds, which is deep in its solver when it loses; with better bounds all of ours
    are quicker than Marabou here. Its files lie in a folder of ours, so that the table of processes shows what is
    left of it, whoever its parent is by then."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rival = Member(Choice("milp", {"bounder": "interval"}))
    race = Portfolio(Race((rival, Member(Choice("marabou", {"unsat": "trusted"})))))
    won, left = [], []
    with Oracle(race, timeout=120.0, infer=False) as oracle:
        for prop, net in RACED:
            file = SHARED / "onnx" / f"ACASXU_run2a_{net}_batch_2000.onnx"
            answer = oracle.ask(Query.from_files([file], SHARED / "vnnlib" / f"prop_{prop}.vnnlib"))
            won += [f"{net} prop_{prop}"] if answer.verifier == "marabou" and answer.verdict.decided else []
            left += [p.pid for p in psutil.process_iter(["cmdline"]) if is_solver(p, tmp_path)]
            losers = [a for a in answer.attempts if answer.verdict.decided and a.verifier != answer.verifier]
            assert all(a.verdict is not Verdict.ERROR for a in losers), losers
            assert answer.verdict in (Verdict.UNSAT, Verdict.TIMEOUT)
    assert not left
    assert len(won) >= 10, won
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != "zombie"]


def is_solver(process: psutil.Process, folder: Path) -> bool:
    """Whether a process (as `process_iter` found it) works on files of that folder."""
    words = process.info["cmdline"] or []
    return "verifolio.plugins.marabou.solve" in words and any(str(folder) in word for word in words)
