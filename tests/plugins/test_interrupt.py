"""Whoever interrupts a long command is told what is kept and how to go on, and finds what was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifolio.cli.codes import INTERRUPTED
from verifolio.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
NETWORK = str(ROOT / "examples/networks/digits_dense.onnx")
INSTANCES = str(ROOT / "examples/networks/instances.csv")
PAIR = [str(ROOT / f"examples/ensemble/pair_{n}.onnx") for n in "ab"]
POINTS = str(ROOT / "examples/ensemble/pair.npz")
INLINE = ["--executor", "inline"]
AROUND = ["--data", "digits", *INLINE]
SMALL = ["--arch", "dense:3", "--data", "digits", "--limit", "50", "--epochs", "1", *INLINE, "--quiet"]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "where", "said"),
    [
        (["distribution", NETWORK, *AROUND], "distribution.run.Distribution.run", "with --store FILE"),
        (
            ["distribution", NETWORK, *AROUND, "--store", "s.db"],
            "distribution.run.Distribution.run",
            "the answers so far are kept in s.db; start the same command again",
        ),
        (["critical", NETWORK, *AROUND], "distribution.run.Distribution.search", "with --store FILE"),
        (
            ["ensemble", "attack", *PAIR, "--data", POINTS, "--epsilon", "0.1", *INLINE],
            "ensemble.run_attack.EnsembleAttack.run",
            "with --store FILE",
        ),
        (
            ["bench", INSTANCES, *INLINE],
            "bench.runner.Run.run",
            "are done and kept in results.db\nstart the same command again to go on with the others",
        ),
        (["train", *SMALL, "-o", "net.onnx"], "training.trainer.fit", "nothing is written"),
        (["fuzz", "--networks", "1"], "fuzz.campaign.run_campaign", "the findings so far are in fuzz"),
    ],
)
def test_an_interruption_says_how_to_go_on(
    words: list[str],
    where: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"verifolio.plugins.{where}", interrupt)
    assert run(words) == INTERRUPTED
    told = capsys.readouterr().err
    assert said in told
    assert told.endswith("interrupted\n")


def test_measure_keeps_the_radii_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from verifolio.plugins.measure import metrics

    accuracy, asked = metrics.accuracy, []

    def once(*arguments: object, **more: object) -> object:
        asked.append(1)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return accuracy(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(metrics, "accuracy", once)
    table = tmp_path / "table.csv"
    words = ["--epsilon", "0.01,0.02", "--metrics", "cacc", "--indices", "0:2", "--csv", str(table)]
    assert run(["measure", NETWORK, *AROUND, *words]) == INTERRUPTED
    assert len(table.read_text().splitlines()) == 2
    assert "with --store FILE" in capsys.readouterr().err


def test_cycle_keeps_the_rounds_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("verifolio.plugins.training.counterexamples.hunt", interrupt)
    folder = tmp_path / "rounds"
    assert run(["cycle", *SMALL, "--indices", "0", "--timeout", "2", "-o", str(folder)]) == INTERRUPTED
    assert len((folder / "cycle.csv").read_text().splitlines()) == 2
    assert f"the rounds that are done are in {folder}" in capsys.readouterr().err
