"""Rows belong to what was measured, whatever the files are called; reused answers and terminations are noted."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.cli.main import run as cli
from verifolio.model.answer import Verdict
from verifolio.plugins.distribution.command import identified
from verifolio.plugins.distribution.ledger import DistributionLedger
from verifolio.plugins.distribution.radius_search import Critical, SearchStatus, SearchStep
from verifolio.plugins.distribution.report import load_rows
from verifolio.plugins.distribution.run import Setting
from verifolio.portfolio.chooser import find_chooser
from verifolio.solve.oracle import Oracle

from .conftest import Make

GRID = ("--search", "binary", "--epsilon", "0.05:0.5:0.05")


def boundary(make: Make, place: float, name: str) -> Path:
    """y = (x_0 - place, place - x_0): the critical radius of x is x_0 - place."""
    weight, bias = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.float32(place)
    return make((weight, np.array([-bias, bias], np.float64)), name=name).path


def save(path: Path, *first: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x=np.array([[v, 0.5] for v in first], np.float32), y=np.zeros(len(first), np.int64))
    return path


def measured(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    words = ["distribution", *map(str, arguments), "--executor", "inline", "--budget", "5", "--json"]
    assert cli(words) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert isinstance(rows, list)
    return rows


def radii(rows: list[dict[str, Any]]) -> list[float]:
    return [round(float(r["lower"]), 2) for r in rows]


def test_another_file_of_the_same_name_is_measured_anew(
    make_network: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = boundary(make_network, 0.5, "a"), boundary(make_network, 0.25, "b")
    network, data = tmp_path / "net.onnx", tmp_path / "data.npz"
    shutil.copy(first, network)
    save(data, 0.875, 0.75)
    common = (network, "--data", data, "--indices", "0:2", "--store", tmp_path / "run.db")
    assert radii(measured(capsys, *common)) == pytest.approx([0.375, 0.25], abs=0.01)
    shutil.copy(second, network)
    assert radii(measured(capsys, *common)) == pytest.approx([0.625, 0.5], abs=0.01)
    shutil.copy(first, network)
    save(data, 0.625, 0.5625)
    assert radii(measured(capsys, *common)) == pytest.approx([0.125, 0.0625], abs=0.01)
    with DistributionLedger(tmp_path / "run.db") as ledger:
        rows = ledger.rows(ledger.runs()[-1][0])
    assert len(rows) == 6
    assert len({r.network for r in rows}) == 2  # two networks of one name have two names in a report
    assert len({(r.network, r.split) for r in rows}) == 3


def test_two_files_of_one_name_are_two_sets(
    make_network: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = boundary(make_network, 0.5, "a")
    sets = save(tmp_path / "p" / "data.npz", 0.875), save(tmp_path / "q" / "data.npz", 0.625)
    rows = measured(capsys, network, "--data", sets[0], "--data", sets[1], "--indices", "0")
    assert radii(rows) == pytest.approx([0.375, 0.125], abs=0.01)
    assert len({r["split"] for r in rows}) == 2


def test_costs_of_several_sessions_are_kept_apart(
    make_network: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = save(tmp_path / "d.npz", 0.875, 0.75)
    networks = [boundary(make_network, 0.5, "a"), boundary(make_network, 0.25, "b")]
    for network in networks:
        measured(capsys, network, "--data", data, "--indices", "0:2", *GRID, "--store", tmp_path / "run.db")
    with DistributionLedger(tmp_path / "run.db") as ledger:
        (run, _), *more = ledger.runs()
        spent = ledger.spent(run)
    assert not more and len(spent) == 4
    assert all(s.queries <= 4 for s in spent)  # of a binary search among ten


def test_reused_answers_are_marked(
    make_network: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, network = save(tmp_path / "d.npz", 0.875), boundary(make_network, 0.5, "a")
    common = (network, "--data", data, "--indices", "0", "--store", tmp_path / "run.db")
    assert measured(capsys, *common, *GRID)[0]["reused"] == "0"
    again = measured(capsys, *common, "--search", "k-binary", "--k", "1", *GRID[2:])
    assert int(again[0]["reused"]) > 0
    out = tmp_path / "page"
    assert cli(["report", str(tmp_path / "run.db"), "--output", str(out)]) == 0
    with (out / "times.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert line["note"] == "1 reused, not in the times" and line["mean s"] == ""
    with (out / "searches.csv").open() as file:
        assert sorted(r["note"] for r in csv.DictReader(file)) == ["", "1 reused, not in the times"]


def test_the_default_portfolio_goes_by_its_content() -> None:
    with Oracle(executor="inline") as oracle:
        assert identified(Setting(), oracle).portfolio == f"{find_chooser().key}:0"


def test_radii_outside_the_grid_are_no_terminations(
    make_network: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, data = boundary(make_network, 0.5, "a"), save(tmp_path / "d.npz", 0.515625, 0.984375, 0.71875)
    grid = ("--search", "binary", "--epsilon", "0.05:0.4:0.01")
    measured(capsys, network, "--data", data, "--indices", "0:3", *grid, "--store", tmp_path / "run.db")
    rows, _ = load_rows([tmp_path / "run.db"])
    assert [row.terminated for row in rows] == [False] * 3


def test_a_termination_needs_a_query_without_an_answer() -> None:
    def step(radius: float, verdict: Verdict) -> SearchStep:
        return SearchStep("query", radius, verdict)

    steps = (step(0.1, Verdict.UNSAT), step(0.2, Verdict.TIMEOUT), step(0.3, Verdict.SAT))
    assert Critical(0.1, 0.3, SearchStatus.OPEN, steps=steps).terminated
    assert not Critical(0.1, 0.3, SearchStatus.OPEN, steps=(steps[0], steps[2])).terminated
    assert not Critical(0.2, 0.3, SearchStatus.OPEN, steps=steps).terminated
