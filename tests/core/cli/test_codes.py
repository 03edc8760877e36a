"""Exit codes that scripts rely on, and what is said beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verifolio.cli.common import certificate_notes, exit_code
from verifolio.cli.main import run
from verifolio.cli.plugins import state_text
from verifolio.model.answer import Answer, Verdict
from verifolio.testing.samples import reaches, write_sum
from verifolio.vnnlib import write

INLINE = ["--executor", "inline", "--timeout", "120"]


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, list[str]]:
    """A question whose answer is sat, and one whose answer is unsat."""
    network = write_sum(tmp_path)
    found = {}
    for verdict, threshold in (("sat", 1.5), ("unsat", 2.5)):
        path = tmp_path / f"{verdict}.vnnlib"
        path.write_text(write(reaches(network, threshold).specification))
        found[verdict] = ["verify", str(network.path), str(path), "--verifier", "crown", *INLINE]
    return found


@pytest.mark.parametrize(
    ("answer", "expect", "code"),
    [("sat", "", 0), ("unsat", "", 0), ("sat", "sat", 0), ("sat", "unsat", 5), ("unsat", "sat", 5)],
)
def test_the_wanted_verdict(asked: dict[str, list[str]], answer: str, expect: str, code: int) -> None:
    assert run([*asked[answer], *(["--expect", expect] if expect else [])]) == code


def test_codes_of_many_answers() -> None:
    sat, unsat, late = Verdict.SAT, Verdict.UNSAT, Verdict.TIMEOUT
    assert exit_code([unsat, late], "unsat") == 3
    assert exit_code([unsat, late, sat], "unsat") == 5
    assert exit_code([unsat, unsat], "unsat") == 0


def test_a_certificate_that_was_not_written_is_told(
    asked: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*asked["sat"], "--certificate", str(tmp_path / "proof.gz"), "--json"]) == 0
    told = capsys.readouterr()
    assert "certificate: not written" in told.err
    assert "the answer is sat" in json.loads(told.out)["notes"][0]
    assert run([*asked["unsat"], "--certificate", str(tmp_path / "no" / "proof.gz")]) == 2
    assert "a folder that exists" in capsys.readouterr().err


def test_notes_say_why() -> None:
    written = Answer(Verdict.UNSAT, stats={"certificate": "proof.gz"})
    assert certificate_notes(written) == []
    large = Answer(Verdict.UNSAT, stats={"certificate": "not written: it outgrew 5 MB"})
    assert "5 MB" in certificate_notes(large)[0]


def test_a_closed_pipe(asked: dict[str, list[str]]) -> None:
    """The reader goes before the command writes."""
    command = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", *asked["sat"]]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""


def test_states_of_plugins() -> None:
    assert state_text({"unavailable": None}) == "ready"
    assert state_text({"unavailable": "x is not installed"}).startswith("not installed: ")
    assert state_text({"unavailable": "npz is a kind of file; give a path"}).startswith("not applicable: ")


def test_unsat_counts_only_with_a_certificate_that_checks(
    asked: dict[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / "proof.gz"
    assert run([*asked["unsat"], "--certified", "--certificate", str(target), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "unsat" and answer["flags"] == ["certified"]
    assert run(["check", *asked["unsat"][1:3], str(target)]) == 0
    assert capsys.readouterr().out == "valid\n"
    monkeypatch.setattr("verifolio.certificates.writer.SMALLEST_CAP", 0)
    monkeypatch.setattr("verifolio.certificates.writer.CAP_PER_SECOND", 0)
    run([*asked["unsat"], "--certified", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "unknown" and "outgrew" in answer["reason"] and answer["flags"] == []
