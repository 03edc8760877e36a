"""Stores remember the commands that used them, how far they are, and who is at work."""

from __future__ import annotations

import time
from pathlib import Path

from verifolio import Oracle, Query, current_plugins, hookimpl
from verifolio.cli.main import run as cli
from verifolio.storage.invocation import INVOKED, Invocation, invoked
from verifolio.storage.runs import Recorder, RunLedger

NETWORKS = Path(__file__).resolve().parents[3] / "examples" / "networks"
FILES = (NETWORKS / "digits_dense.onnx", NETWORKS / "properties/digits_dense_45_0.2.vnnlib")


class Listening:
    """Who works, as a plugin hears it."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.open: set[int] = set()

    @hookimpl
    def work_started(self, number: int, verifier: str, about: str) -> None:
        self.started.append((verifier, about))
        self.open.add(number)

    @hookimpl
    def work_ended(self, number: int) -> None:
        self.open.remove(number)


def heard() -> Listening:
    listening = Listening()
    with Oracle(executor="inline", timeout=30, plugins=current_plugins().plus(listening)) as oracle:
        oracle.ask(Query.from_files([FILES[0]], FILES[1]))
    return listening


def test_work_started() -> None:
    found = heard().started
    assert found[0] == ("pgd", "digits_dense.onnx digits_dense_45_0.2.vnnlib")


def test_work_ended() -> None:
    assert not heard().open


def test_a_command_is_kept_with_its_options(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    line = ["verify", *map(str, FILES), "--timeout", "120", "--executor", "inline", "--store", str(store)]
    assert cli(line) == 0
    with RunLedger(store) as ledger:
        (run,) = ledger.runs()
    assert run.command == "verify" and run.line.startswith("verifolio verify ")
    assert run.options["timeout"] == 120.0 and run.ended is not None and not run.alive()
    assert "verifolio" in run.versions


def test_the_recorder_writes_who_works(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r.db", Invocation("x", {}, "verifolio x")) as recorder:
        recorder.progress(3, 10)
        recorder.progress(1, 2)  # a part of the work
        recorder.progress(4, 10)
        recorder.work_started(7, "crown", "input 3")
        recorder.work_started(8, "milp", "input 4")
        recorder.work_ended(8)
        recorder._write()
        with RunLedger(tmp_path / "r.db") as ledger:
            (run,) = ledger.runs()
    assert (run.before, run.done, run.total) == (2, 4, 10)
    assert [w["verifier"] for w in run.working["work"]] == ["crown"]
    assert run.alive() and not run.alive(time.time() + 60)


def test_an_invocation_ends_with_its_command() -> None:
    with invoked("verify", {"a": 1}):
        current = INVOKED.get()
        assert current is not None and current.command == "verify"
    assert INVOKED.get() is None
