"""Marabou: conformance, and real networks where it is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from verifolio.answer import Verdict
from verifolio.attempt import Choice
from verifolio.oracle import Oracle
from verifolio.plugins.marabou.verifier import Marabou, MarabouOptions
from verifolio.portfolio import Member, Portfolio, Race, single
from verifolio.query import Query
from verifolio.testing.verifiers import VerifierConformance

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("VERIFOLIO_SHARED", ROOT.parent / "shared" / "data")) / "public" / "acasxu"
installed = pytest.mark.skipif(not find_spec("maraboupy"), reason="maraboupy is not installed")
present = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no ACAS Xu networks in {SHARED}")


@installed
class TestMarabou(VerifierConformance):
    make = Marabou


def test_it_says_what_is_missing() -> None:
    assert (Marabou.available() is None) == (find_spec("maraboupy") is not None)


@installed
@pytest.mark.parametrize(("file", "verdict"), [("0.01", Verdict.UNSAT), ("0.2", Verdict.SAT)])
def test_the_example_networks(file: str, verdict: Verdict) -> None:
    networks = ROOT / "examples" / "networks"
    query = Query.from_files(
        [networks / "digits_dense.onnx"], networks / "properties" / f"digits_dense_45_{file}.vnnlib"
    )
    with Oracle(single("marabou"), timeout=60.0) as oracle:
        assert oracle.ask(query).verdict is verdict


@installed
def test_untrusted_proofs_are_only_reported() -> None:
    networks = ROOT / "examples" / "networks"
    query = Query.from_files(
        [networks / "digits_dense.onnx"], networks / "properties" / "digits_dense_45_0.01.vnnlib"
    )
    with Oracle(single(Marabou(MarabouOptions(unsat="untrusted"))), timeout=60.0) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.UNKNOWN
    assert "not trusted" in answer.reason


@installed
@present
def test_a_race_on_acas_xu() -> None:
    """Whoever wins, the other one is recorded as cancelled, and its process is gone."""
    import psutil

    query = Query.from_files(
        [SHARED / "onnx" / "ACASXU_run2a_2_7_batch_2000.onnx"], SHARED / "vnnlib" / "prop_3.vnnlib"
    )
    race = Portfolio(Race((Member(Choice("crown")), Member(Choice("marabou")))))
    with Oracle(race, timeout=60.0) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.UNSAT
    assert {a.verifier for a in answer.attempts} == {"crown", "marabou"}
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != "zombie"]
