"""Benchmark runs: reading instances, resuming, results files, scores, comparison, pictures."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.plugins.bench.instances import Instance, cap, read_instances, select
from verifolio.plugins.bench.ledger import BenchLedger, content_of, content_of_query
from verifolio.plugins.bench.matching import key_of
from verifolio.plugins.bench.progress import Forecast, clock
from verifolio.plugins.bench.results import InstanceResult, read_tool, tools_in, write_results
from verifolio.plugins.bench.runner import load
from verifolio.plugins.bench.scoring import OURS, disagreements, earnings, lines, make_contest
from verifolio.testing.samples import age

ROOT = Path(__file__).resolve().parents[3]
NETWORKS = ROOT / "examples" / "networks"
COMMAND = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", "bench"]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment()
    )


def instance(name: str = "a", timeout: float = 10.0, expected: str = "", category: str = "c") -> Instance:
    network = ((("", Path(f"{name}.onnx"))),)
    return Instance(
        category, f"{name}.onnx", f"{name}.vnnlib", network, Path(f"{name}.vnnlib"), timeout, name, expected
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestInstances:
    def test_the_competition_s_format(self, tmp_path: Path) -> None:
        table = write(tmp_path / "acasxu" / "1.0" / "instances.csv", "./onnx/a.onnx,vnnlib/p.vnnlib,116\n\n")
        (found,) = read_instances(table)
        assert (found.category, found.timeout, found.stem) == ("acasxu", 116.0, "a_p")
        assert found.networks[0][1] == table.parent / "onnx" / "a.onnx"

    def test_compressed_files_and_absolute_paths(self, tmp_path: Path) -> None:
        (tmp_path / "a.onnx.gz").write_bytes(b"")
        write(tmp_path / "p.vnnlib", "")
        table = tmp_path / "instances.csv.gz"
        table.write_bytes(gzip.compress(f"a.onnx,{tmp_path}/p.vnnlib.gz,3\n".encode()))
        (found,) = read_instances(table)
        assert found.networks[0][1].name == "a.onnx.gz"
        assert found.specification == tmp_path / "p.vnnlib"

    def test_a_header_with_more_columns(self, tmp_path: Path) -> None:
        header = "id,category,onnx,vnnlib,timeout,expected,nnenum_result,nnenum_time_s\n"
        table = write(tmp_path / "t.csv", header + "x_1,x,a.onnx,p.vnnlib,30,sat,violated,1.5\n")
        (found,) = read_instances(table)
        assert (found.id, found.category, found.expected) == ("x_1", "x", "sat")
        assert tools_in([found])[0].compare([found])[0][key_of(found)] == read_claim("sat", 1.5)

    def test_several_networks(self, tmp_path: Path) -> None:
        text = "\"[('f', 'onnx/a.onnx'), ('g', 'onnx/b.onnx')]\",p.vnnlib,9\n"
        (found,) = read_instances(write(tmp_path / "two" / "instances.csv", text))
        assert [name for name, _ in found.networks] == ["f", "g"]
        assert found.stem == "f_g_p"

    def test_a_folder_of_categories(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            write(tmp_path / name / "instances.csv", "a.onnx,p.vnnlib,9\n")
        assert [i.category for i in read_instances(tmp_path)] == ["one", "two"]

    def test_a_folder_without_a_table(self, tmp_path: Path) -> None:
        for name in ("net.onnx", "net_deep.onnx", "net_deep_1.vnnlib", "net_2.vnnlib"):
            write(tmp_path / name, "")
        found = {(i.onnx, i.vnnlib) for i in read_instances(tmp_path, timeout=5.0)}
        assert found == {("net_deep.onnx", "net_deep_1.vnnlib"), ("net.onnx", "net_2.vnnlib")}

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("", "empty"),
            ("a.onnx\n", "1 columns"),
            ("a,b,soon\n", "soon"),
            ("a,b,-1\n", "-1"),
            ("a,b,1,2\n", "4"),
        ],
    )
    def test_errors_name_the_line(self, tmp_path: Path, text: str, what: str) -> None:
        with pytest.raises(InputError, match=what):
            read_instances(write(tmp_path / "instances.csv", text))

    def test_selection(self, tmp_path: Path) -> None:
        every = [instance("a"), instance("b"), instance("c", category="other")]
        assert [i.id for i in select(every, "a,other")] == ["a", "c"]
        assert [i.id for i in select(every, ",".join(["a"] * 2000))] == [
            "a"
        ]  # too long for the name of a file
        assert [i.id for i in select(every, str(write(tmp_path / "ids.csv", "id\n# why\nb\n")))] == ["b"]
        with pytest.raises(InputError, match="nobody"):
            select(every, "a,nobody")
        assert cap(every, 3.0)[0].timeout == 3.0


def read_claim(result: str, seconds: float) -> object:
    from verifolio.plugins.bench.results import ToolClaim

    return ToolClaim(result, seconds)


class TestScores:
    def test_points_penalties_and_par2(self) -> None:
        pairs = [
            (instance("a", expected="sat"), InstanceResult(Verdict.SAT, 1.0, "pgd")),
            (instance("b", expected="unsat"), InstanceResult(Verdict.UNSAT, 3.0, "crown")),
            (instance("c", expected="sat"), InstanceResult(Verdict.UNSAT, 3.0, "crown")),
            (instance("d"), InstanceResult(Verdict.TIMEOUT, 10.0)),
        ]
        (line,) = lines(make_contest(pairs))
        assert (line.sat, line.unsat, line.wrong, line.score) == (1, 1, 1, 10 + 10 - 150)
        assert line.par2 == (1 + 3 + 20 + 20) / 4
        assert earnings(pairs)[0][:3] == ("crown", 0, 2)

    def test_late_answers_do_not_count(self) -> None:
        (line,) = lines(make_contest([(instance("a", 5.0), InstanceResult(Verdict.UNSAT, 6.0))]))
        assert (line.decided, line.score, line.par2) == (0, 0, 10.0)

    def test_others_are_compared(self, tmp_path: Path) -> None:
        pairs = [
            (instance("a"), InstanceResult(Verdict.SAT, 1.0)),
            (instance("b"), InstanceResult(Verdict.TIMEOUT, 10.0)),
        ]
        text = "c,x/a.onnx,y/a.vnnlib.gz,0.1,holds,2.0\nc,x/b.onnx,y/b.vnnlib,0.1,unsat,2.5\n"
        contest = make_contest(pairs, [read_tool(write(tmp_path / "rival.csv", text))])
        scores = {line.tool: line for line in lines(contest)}
        assert scores[OURS].score == 10
        assert scores["rival"].score == 10 - 150  # our counterexample was replayed
        assert scores["virtual best"].decided == 2
        assert "rival says unsat" in disagreements(contest)[0]

    def test_a_table_is_read_back(self, tmp_path: Path) -> None:
        write_results(tmp_path / "results.csv", [(instance("a"), InstanceResult(Verdict.MEMOUT, 2.0))])
        tool = read_tool(tmp_path / "results.csv")
        assert tool.name == tmp_path.name
        assert tool.compare([instance("a")])[0][key_of(instance("a"))] == read_claim("error", 2.0)


def test_a_forecast_learns_from_the_category() -> None:
    every = [instance(str(k), 100.0) for k in range(4)]
    forecast = Forecast(every, jobs=2)
    assert forecast.seconds() == 100.0
    forecast.finish(every[0], 10.0)
    assert forecast.seconds() == pytest.approx(15.0)
    assert clock(3725) == "1 h 02 min"


def test_the_ledger_serves_what_had_time_enough(tmp_path: Path) -> None:
    with BenchLedger(tmp_path / "s.db") as ledger:
        ledger.add("run", "x", instance("a", 10.0), InstanceResult(Verdict.UNSAT, 4.0, "crown"))
        ledger.add("run", "y", instance("b", 10.0), InstanceResult(Verdict.TIMEOUT, 10.0))
        found = ledger.find("run", "x", 5.0)
        assert found is not None
        assert found.verifier == "crown"
        assert ledger.find("run", "x", 3.0) is None
        assert ledger.find("run", "y", 5.0) is not None
        assert ledger.find("run", "y", 20.0) is None
        assert ledger.find("other", "x", 10.0) is None


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Four easy instances of the examples, as a category of their own."""
    folder = tmp_path / "digits"
    shutil.copytree(NETWORKS, folder)
    rows = (NETWORKS / "instances.csv").read_text().splitlines()
    write(folder / "instances.csv", "\n".join([*rows[:3], *rows[5:7]]) + "\n")
    return folder


def verdicts(table: Path) -> list[tuple[str, str]]:
    with table.open(newline="") as stream:
        return [(row[2], row[4]) for row in csv.reader(stream)]


def test_a_whole_run(few: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "results.csv"
    rival = write(
        tmp_path / "rival.csv", "digits,digits_dense.onnx,properties/digits_dense_45_0.01.vnnlib,0,unsat,1\n"
    )
    done = bench(few, "--output", out, "--timeout-cap", 30, "--against", rival)
    assert done.returncode == 0, done.stderr
    assert [v for _, v in verdicts(out)] == ["unsat", "sat", "unsat", "sat"]
    assert "4/4" in done.stderr
    files = out.with_name("results_files")
    assert (files / "cactus.png").stat().st_size > 1000
    assert (files / "scatter_rival.png").exists()
    assert len(list((files / "logs" / "digits").glob("*.log"))) == 4
    check_counterexamples(read_instances(few), files / "counterexamples" / "digits")
    again = bench(few, "--output", out, "--timeout-cap", 30, "--json", "--no-pictures")
    assert again.returncode == 0
    assert "1/4" not in again.stderr  # nothing is repeated
    assert [r["verdict"] for r in json.loads(again.stdout)["instances"]] == ["unsat", "sat", "unsat", "sat"]


def check_counterexamples(instances: list[Instance], folder: Path) -> None:
    """Each file is a valid counterexample to the text of the property, replayed from the file alone."""
    import numpy as np

    found = 0
    for one in instances:
        path = folder / f"{one.name}.counterexample"
        if one.expected == "sat":
            query = load(one)
            pairs = [p.strip("() ").split() for p in path.read_text().strip()[1:-1].splitlines()]
            x = np.array([float(v) for name, v in pairs if name.startswith("X")], np.float32)
            assert query.specification.check(x, query.networks[0].replay(x)).holds
            found += 1
    assert found == 2


def test_wrong_answers_and_missing_files_are_reported(few: Path, tmp_path: Path) -> None:
    rows = (few / "instances.csv").read_text().splitlines()
    write(
        few / "instances.csv",
        "\n".join([rows[0], rows[1].replace(",unsat", ",sat"), "no.onnx,no.vnnlib,3,sat"]),
    )
    done = bench(few, "--output", tmp_path / "results.csv", "--no-pictures")
    assert done.returncode == 4
    assert "contradict" in done.stderr
    assert "no.onnx" in done.stdout
    assert [v for _, v in verdicts(tmp_path / "results.csv")] == ["unsat", "error"]


def test_a_table_in_the_wrong_place(tmp_path: Path) -> None:
    done = bench(write(tmp_path / "instances.csv", "a.onnx,p.vnnlib,3\n"))
    assert done.returncode == 2
    assert "relative to the folder" in done.stderr


def test_a_changed_file_is_another_question(few: Path) -> None:
    first = read_instances(few)[0]
    before = content_of(first)
    first.specification.write_text(first.specification.read_text() + "\n; changed\n")
    assert content_of(first) != before


def test_decided_results_of_an_earlier_version_are_asked_again(few: Path, tmp_path: Path) -> None:
    first, path = read_instances(few)[0], tmp_path / "run.db"
    results = {v: InstanceResult(v, 0.1, "crown") for v in (Verdict.UNSAT, Verdict.SAT, Verdict.TIMEOUT)}
    with BenchLedger(path) as ledger:
        for verdict, result in results.items():
            ledger.add("run", verdict.value, first, result)
        assert ledger.find("run", "unsat", first.timeout) is not None
    age(path)
    with BenchLedger(path) as ledger:
        found = {v: ledger.find("run", v.value, first.timeout) for v in results}
    assert [v for v, r in found.items() if r is not None] == [Verdict.TIMEOUT]


def test_a_result_is_kept_under_what_was_loaded(few: Path) -> None:
    """A file may change between the look into the ledger, loading and the result."""
    first = read_instances(few)[0]
    query, before = load(first), content_of(first)
    first.specification.write_text(first.specification.read_text() + "\n; changed\n")
    first.networks[0][1].write_bytes(first.networks[0][1].read_bytes() + b"\0")
    assert content_of_query(first, query) == before != content_of(first)


def run_and_kill(after: int, delay: float, *arguments: object) -> None:
    """Start a run; SIGKILL it `delay` seconds after its start, or after it told of its `after`th instance."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        told = 0
        while told < after and (line := process.stderr.readline() if process.stderr else ""):
            told += " in " in line
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)


def check_kills(few: Path, tmp_path: Path, kills: int) -> None:
    """Every third kill comes while the run starts, the others while it decides the next instance."""
    import sqlite3

    undisturbed, out = tmp_path / "undisturbed.csv", tmp_path / "results.csv"
    assert bench(few, "--output", undisturbed, "--no-pictures").returncode == 0
    chance = random.Random(7)
    for k in range(kills):
        after, delay = (0, chance.uniform(0.0, 4.0)) if k % 3 == 2 else (1, chance.uniform(0.0, 1.0))
        run_and_kill(after, delay, few, "--output", out, "--no-pictures", "--jobs", 1 + k % 2, "--again")
    done = bench(few, "--output", out, "--no-pictures")
    assert done.returncode == 0, done.stderr
    assert "known from before" in done.stderr
    assert verdicts(out) == verdicts(undisturbed)
    assert [v for _, v in verdicts(out)] == [i.expected for i in read_instances(few)]
    with sqlite3.connect(out.with_suffix(".db")) as connection:
        repeated = "SELECT COUNT(*) - COUNT(DISTINCT query) FROM answers WHERE verdict IN ('sat', 'unsat')"
        assert connection.execute(repeated).fetchone()[0] == 0


def test_killed_at_random_moments_it_loses_and_repeats_nothing(few: Path, tmp_path: Path) -> None:
    """SIGKILL again and again; the end is that of an undisturbed run, and no decided instance ran twice."""
    check_kills(few, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_twenty_times(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    shutil.copytree(NETWORKS, folder)
    every = (NETWORKS / "instances.csv").read_text().splitlines()
    copies = ["onnx,vnnlib,timeout,expected", *every[1:]]
    for k in range(2):  # the same questions in other words, so that there is enough to be killed in
        for row in every[1:]:
            onnx, vnnlib, timeout, expected = row.split(",")
            text = (folder / vnnlib).read_text()
            other = write(folder / "more" / f"{k}_{Path(vnnlib).name}", text + f"; {k}\n")
            copies.append(f"{onnx},{other.relative_to(folder)},{timeout},{expected}")
    write(folder / "instances.csv", "\n".join(copies) + "\n")
    check_kills(folder, tmp_path, 20)
