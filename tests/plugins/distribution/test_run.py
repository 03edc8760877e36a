"""Whole distributions from the command line: tables, resuming, errors."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from verifolio.cli.main import run as cli
from verifolio.data import load_data
from verifolio.errors import SoundnessAlarm, UnknownPlugin
from verifolio.model.answer import Verdict, Witness
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugins.distribution import run as running
from verifolio.plugins.distribution.families import make_family
from verifolio.plugins.distribution.ledger import DistributionLedger
from verifolio.plugins.distribution.radius_search import (
    Critical,
    RadiusQuestion,
    SearchStatus,
    SearchStep,
    conflict,
)
from verifolio.plugins.distribution.run import Distribution, Setting, make_items
from verifolio.plugins.distribution.table import COLUMNS, MORE, Row, read_csv, write_csv, write_verona
from verifolio.portfolio.chooser import find_chooser
from verifolio.portfolio.tree import Member
from verifolio.solve.oracle import Oracle
from verifolio.testing.hostile_verifiers import WrongBounds
from verifolio.testing.samples import age

NETWORKS = Path(__file__).resolve().parents[3] / "examples" / "networks"
PROGRESS = re.compile(r"\d+/\d+ ")
DENSE = str(NETWORKS / "digits_dense.onnx")


def points(*values: tuple[float, float], labels: tuple[int, ...] = ()) -> Dataset:
    raw = np.array(values)
    return Dataset("points", "test", raw, np.array(labels or (0,) * len(raw), np.int64), (1, 1, 2), 2)


def plan(
    network: Network, data: Dataset, ledger: DistributionLedger, oracle: Oracle, **more: object
) -> Distribution:
    setting = Setting(**{"budget": 20.0, **more})  # type: ignore[arg-type]
    return Distribution(setting, make_items([network], [(data, range(len(data)))]), oracle, ledger)


def test_ten_digits_take_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, table, verona = (str(tmp_path / n) for n in ("run.db", "out.csv", "verona.csv"))
    arguments = ["distribution", DENSE, "--data", "digits:test", "--indices", "0:10", "--store", store]
    begin = time.monotonic()
    assert cli([*arguments, "--csv", table, "--verona", verona, "--tolerance", "0.005"]) == 0
    seconds = time.monotonic() - begin
    print(f"10 digits: {seconds:.1f} s")
    lines = list(csv.reader(Path(table).read_text().splitlines()))
    assert tuple(lines[0]) == (*COLUMNS, *MORE)
    assert len(lines) == 11
    for line in lines[1:]:
        row = dict(zip((*COLUMNS, *MORE), line, strict=True))
        if row["status"] == "misclassified":
            assert row["lower"] == row["upper"] == row["gap"] == ""
            assert row["label"] != row["predicted"]
        else:
            assert row["status"] == "closed"
            assert 0 <= float(row["lower"]) < float(row["upper"]) <= float(row["lower"]) + 0.005
    assert len(read_csv(Path(verona))) == sum(line[8] == "closed" for line in lines)
    before = Path(table).read_text()
    capsys.readouterr()
    assert cli([*arguments, "--csv", table, "--tolerance", "0.005", "--json"]) == 0
    assert Path(table).read_text() == before  # nothing was asked again
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["rows"]) == 10
    assert shown["summary"][0]["closed"] == shown["summary"][0]["measured"]


def test_a_grid_from_the_command_line(tmp_path: Path) -> None:
    arguments = [
        "distribution",
        DENSE,
        "--data",
        "digits:test",
        "--indices",
        "1,4",
        "--csv",
        str(tmp_path / "g.csv"),
    ]
    grid = ["--epsilon", "0.01:0.2:0.01", "--k", "2", "--keep-queries", str(tmp_path / "queries")]
    assert cli([*arguments, *grid]) == 0
    rows = read_csv(tmp_path / "g.csv")
    assert [(r.lower, r.upper) for r in rows] == [(0.02, 0.03), (0.07, 0.08)]
    assert len(list((tmp_path / "queries").glob("*.vnnlib"))) == sum(r.queries for r in rows)


def progress(stream: IO[str], count: int) -> list[str]:
    """The next lines of progress, whatever is said in between."""
    lines = (line for line in stream if PROGRESS.match(line))
    return [next(lines) for _ in range(count)]


def test_killed_at_any_moment_it_continues(tmp_path: Path) -> None:
    store, table = tmp_path / "run.db", tmp_path / "out.csv"
    arguments = ["distribution", DENSE, "--data", "digits:test", "--indices", "0:4", "--tolerance", "0.005"]
    code = "from verifolio.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments, "--store", str(store), "--csv", str(table)]
    environment = os.environ | {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, process_group=0)
    assert first.stderr is not None
    said = progress(first.stderr, 2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stderr.close()
    assert said[0].startswith("1/4 digits_dense.onnx test 0: [")
    with closing(sqlite3.connect(store)) as connection:
        sql = "SELECT image_id, seconds FROM distribution_inputs ORDER BY position"
        done = connection.execute(sql).fetchall()
    assert 2 <= len(done) < 4
    second = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert second.returncode == 0, second.stderr
    assert f"{len(done) + 1}/4 " in second.stderr
    assert f"{len(done)}/4 " not in second.stderr
    rows = read_csv(table)
    assert [r.image_id for r in rows] == list(range(4))
    kept = {r.image_id: r.seconds for r in rows}
    assert all(kept[i] == pytest.approx(s, abs=1e-3) for i, s in done)


class Killed(BaseException):
    """The process is gone."""


class Mortal(DistributionLedger):
    """A ledger whose process dies just before its n-th write."""

    def __init__(self, path: Path, writes: int) -> None:
        super().__init__(path)
        self.writes = writes

    def _write(self, sql: str, values: Sequence[object]) -> None:
        if self.writes == 0:
            raise Killed
        self.writes -= 1
        super()._write(sql, values)


def test_a_run_ends_the_same_wherever_it_was_killed(tmp_path: Path) -> None:
    """Every boundary between two writes is a place to die; each session then continues from the file."""
    network, digits = Network.load(DENSE), load_data("digits:test")
    setting = Setting(tolerance=5e-3)

    def session(path: Path, writes: int) -> list[Row]:
        items = make_items([network], [(digits, range(3))])
        with Oracle(executor="inline") as oracle, Mortal(path, writes) as ledger:
            return Distribution(setting, items, oracle, ledger).run()

    whole = [(r.lower, r.upper, r.status, r.queries) for r in session(tmp_path / "whole.db", 1000)]
    assert all(status is SearchStatus.CLOSED for _, _, status, _ in whole)
    sessions = 0
    for lives in (1, 2, 3, 5):
        path, rows = tmp_path / f"{lives}.db", None
        while rows is None:
            sessions += 1
            try:
                rows = session(path, lives + 1)  # one write says that a session began
            except Killed:
                continue
        assert [(r.lower, r.upper, r.status, r.queries) for r in rows] == whole
    print(f"{sessions} sessions")


def test_neighbours_are_looked_at_in_one_job(tmp_path: Path) -> None:
    """The first look at several inputs finds what single looks find, and costs each its share."""
    network, digits = Network.load(DENSE), load_data("digits:test")
    setting = Setting(tolerance=0.5)  # nothing is left to do after the look
    with Oracle(executor="inline") as oracle, DistributionLedger(tmp_path / "run.db") as ledger:
        rows = Distribution(setting, make_items([network], [(digits, range(3))]), oracle, ledger).run()
        steps = [
            s for k in range(3) for s in ledger.steps(make_family(setting, [network], digits, k, "").key)
        ]
        for k, row in enumerate(rows):
            items = make_items([network], [(digits, [k])])
            with DistributionLedger(tmp_path / f"{k}.db") as other:
                (alone,) = Distribution(setting, items, oracle, other).run()
            assert (alone.lower, alone.upper) == pytest.approx((row.lower, row.upper), rel=1e-2)
    assert [s.kind for s in steps] == ["squeeze"] * 3
    assert len({s.seconds for s in steps}) == 1


def test_a_smaller_tolerance_starts_from_what_is_known(plane: Network, tmp_path: Path) -> None:
    data = points((0.2, 0.3))
    with Oracle(executor="inline") as oracle, DistributionLedger(tmp_path / "run.db") as ledger:
        first = plan(plane, data, ledger, oracle, tolerance=0.1).run()[0]
        second = plan(plane, data, ledger, oracle, tolerance=0.01).run()[0]
        assert len(ledger.runs()) == 2
    assert first.lower is not None and second.lower is not None
    assert first.lower <= second.lower <= 0.25 <= (second.upper or 0) + 1e-6
    assert (second.gap or 1) <= 0.01


def test_misclassified_inputs_have_no_bracket_unless_the_prediction_is_the_reference(plane: Network) -> None:
    data = points((0.2, 0.3), (0.9, 0.6), labels=(0, 0))
    with Oracle(executor="inline") as oracle, DistributionLedger() as ledger:
        rows = plan(plane, data, ledger, oracle).run()
        again = plan(plane, data, ledger, oracle, reference="predicted").run()
    assert [r.status for r in rows] == [SearchStatus.CLOSED, SearchStatus.MISCLASSIFIED]
    assert (rows[1].lower, rows[1].upper, rows[1].predicted) == (None, None, 1)
    assert again[1].status is SearchStatus.CLOSED
    assert again[1].upper == pytest.approx(0.25, abs=2e-3)


def test_an_input_that_fails_is_an_error_row(plane: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(self: Distribution, family: object) -> Critical:
        raise UnknownPlugin("nothing here can do it")

    with Oracle(executor="inline") as oracle, DistributionLedger() as ledger:
        monkeypatch.setattr(Distribution, "search", search)
        rows = plan(plane, points((0.2, 0.3)), ledger, oracle).run()
        assert (rows[0].status, rows[0].reason) == (SearchStatus.ERROR, "nothing here can do it")
        monkeypatch.undo()
        assert (
            plan(plane, points((0.2, 0.3)), ledger, oracle).run()[0].status is SearchStatus.CLOSED
        )  # tried again


def test_an_alarm_ends_the_run(plane: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(self: Distribution, family: object) -> Critical:
        raise SoundnessAlarm("two members disagree")

    monkeypatch.setattr(Distribution, "search", search)
    with Oracle(executor="inline") as oracle, DistributionLedger() as ledger, pytest.raises(SoundnessAlarm):
        plan(plane, points((0.2, 0.3), (0.1, 0.1)), ledger, oracle).run()


@pytest.mark.parametrize("search", ["bracket", "closest", "binary"])
def test_a_tie_at_the_input_is_no_alarm(plane: Network, search: str) -> None:
    """Both outputs are 1 at (0.5, 0.5): the input itself is a counterexample, and nothing was proved."""
    radii = (0.1, 0.2) if search == "binary" else ()
    with Oracle(executor="inline") as oracle, DistributionLedger() as ledger:
        (row,) = plan(plane, points((0.5, 0.5)), ledger, oracle, search=search, radii=radii).run()
    assert row.status is SearchStatus.CLOSED
    assert row.lower == 0.0
    assert row.upper == (0.1 if radii else 0.0)


def test_a_witness_inside_a_proved_region_is_an_alarm(plane: Network) -> None:
    """But one whose distance is only rounded into it is not."""
    family = make_family(Setting(), [plane], points((0.25, 0.25)), 0, "")
    witness = Witness(np.array([0.5, 0.5], np.float32), np.ones(2, np.float32), (0.0,))
    with pytest.raises(SoundnessAlarm):
        conflict(family, 0.25, 0.25, witness)
    conflict(family, 0.2499, 0.2499, witness)


def test_proofs_of_an_earlier_version_are_not_continued(
    plane: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A radius of 0.4 was proved wrongly; the witness of the same file is replayed and used."""
    path, data = tmp_path / "run.db", points((0.25, 0.25))
    false = SearchStep("query", 0.4, Verdict.UNSAT, "crown", proved=0.4)
    seen = np.array([0.6, 0.6], np.float32)
    true = SearchStep(
        "query", 0.5, Verdict.SAT, "pgd", distance=0.01, witness=seen
    )  # distances are measured again
    with Oracle(executor="inline") as oracle, DistributionLedger(path) as ledger:
        task = plan(plane, data, ledger, oracle)
        key = task._families(task.items)[0].key
        task.ledger.begin(task.setting.run, {})
        for step in (false, true):
            ledger.add_step(task.setting.run, key, step)
        row = Row(*task.items[0].place, 0, 0, 0.4, 0.5, SearchStatus.CLOSED)
        ledger.finish(task.setting.run, task._entry(task.items[0], key), row)
        assert [r.lower for r in task.rows()] == [0.4]
    age(path)
    with Oracle(executor="inline") as oracle, DistributionLedger(path) as ledger:
        assert ledger.steps(key) == []
        assert [x.tolist() for x in ledger.old_witnesses(key)] == [seen.tolist()]
        task = plan(plane, data, ledger, oracle)
        assert task.rows() == []
        history = task._question(task._families(task.items)[0]).history
        assert [s.distance for s in history] == [pytest.approx(0.35)]
        (found,) = task.run()
    assert found.lower is not None
    assert found.lower <= 0.25
    assert capsys.readouterr().err.count("proofs of an earlier version are not used") == 1


def test_rounding_to_levels_is_judged(plane: Network) -> None:
    """Counterexamples have x_0 + x_1 >= 1."""
    family = make_family(Setting(), [plane], points((0.25, 0.25)), 0, "")
    near = Critical(0.0, 0.25, SearchStatus.CLOSED, witness=np.array([0.5, 0.5], np.float32))
    lost = Critical(0.0, 0.25, SearchStatus.CLOSED, witness=np.array([0.56, 0.45], np.float32))
    with Oracle(executor="inline") as oracle:
        assert running.survives_rounding(family, near, 4.0, oracle) is True
        assert running.survives_rounding(family, lost, 2.5, oracle) is False  # becomes (0.4, 0.4)
        assert running.survives_rounding(family, Critical(0.0, None, SearchStatus.OPEN), 4.0, oracle) is None


def test_tables_read_back(tmp_path: Path) -> None:
    rows = [
        Row("a.onnx", "test", 3, 7, 7, 0.1 + 0.2, 0.5, SearchStatus.OPEN, 1.25, 9, 2),
        Row("a.onnx", "test", 4, 7, 1, None, None, SearchStatus.MISCLASSIFIED),
        Row("a.onnx", "test", 5, 7, 7, 0.0, None, SearchStatus.OPEN),
    ]
    write_csv(tmp_path / "t.csv", rows)
    assert read_csv(tmp_path / "t.csv") == rows
    write_verona(tmp_path / "v.csv", rows)
    assert [(r.lower, r.upper) for r in read_csv(tmp_path / "v.csv")] == [(0.1 + 0.2, 0.5), (0.0, None)]
    assert (
        (tmp_path / "v.csv")
        .read_text()
        .splitlines()[0]
        .startswith("network_path,split,image_id,original_label")
    )


def test_one_input_and_its_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "near.png"
    arguments = [
        "critical",
        DENSE,
        "--data",
        "digits:test",
        "--index",
        "1",
        "--picture",
        str(picture),
        "--json",
    ]
    assert cli(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == "closed"
    assert shown["lower"] < shown["upper"] == shown["distance"]
    assert shown["becomes"] != shown["label"] == 9
    assert len(shown["counterexample"]) == 64
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--search", "binary"], "--epsilon"),
        (["--norm", "l3"], "linf"),
        (["--epsilon", "0.3:0.1:0.1"], "increasing radii"),
        (["--epsilon", "a:b"], "start:stop:step"),
        (["--reference", "truth"], "predicted"),
        (["--indices", "0:9999"], "below"),
        (["--std", "0.1,0.2"], "1 or 1"),
        (["--search", "closest", "--verifier", "pgd"], "one that minimises"),
        (["--search", "ensemble-attack"], "a search over radii"),
        (["--search", "bracket", "--search-option", "depth=3"], "depth"),
        (["--search", "bracket", "--search-option", "radii=many"], "radii"),
    ],
)
def test_bad_input_is_refused_at_once(more: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["distribution", DENSE, "--data", "digits:test", "--indices", "0:2", *more]) == 2
    assert text in capsys.readouterr().err


def test_settings_name_the_run() -> None:
    assert Setting().run == Setting().run
    assert Setting(tolerance=0.1).run != Setting().run
    assert math.isinf(Setting().norm)
    assert RadiusQuestion.__dataclass_fields__["tolerance"].default == Setting().tolerance


def test_wrong_bounds_are_an_alarm(plane: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look's bounds claim half of the largest radius, and its own second look refutes that."""
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    wrong = replace(find_chooser().for_batches, bounder=Member(WrongBounds()))
    said = pytest.raises(SoundnessAlarm, match="bounder hostile-wrong-bounds claims a proof")
    with Oracle(wrong, "inline") as oracle, DistributionLedger() as ledger, said:
        plan(plane, points((0.45, 0.45)), ledger, oracle).run()
    assert list((tmp_path / "alarms").iterdir())
