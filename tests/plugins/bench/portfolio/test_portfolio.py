"""Learned portfolios: reading runs, simulation, search, cross-validation, and files that really run."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verifolio.errors import InputError
from verifolio.plugins.bench.portfolio.explain import rows, simulated, with_defaults
from verifolio.plugins.bench.portfolio.judge import BEST, LEARNED, SINGLE, judge
from verifolio.plugins.bench.portfolio.runs import Configuration, Source, parse_configuration, read_runs
from verifolio.plugins.bench.portfolio.schedule_search import build, round_up, single_best, slices
from verifolio.plugins.bench.portfolio.table import (
    Schedule,
    ScheduleStep,
    Table,
    cost,
    make_table,
    par2,
    run_lane,
    run_schedule,
)
from verifolio.plugins.bench.portfolio.write import portfolio_text, read_back
from verifolio.plugins.default_portfolio.chooser import built_in

ROOT = Path(__file__).resolve().parents[4]
NETWORKS = ROOT / "examples" / "networks"
VERIFOLIO = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()"]
INF = math.inf


def table_of(solved: list[list[float]], spent: list[list[float]] | None = None, limit: float = 10.0) -> Table:
    times = np.array(solved)
    names = ("pgd", "crown", "smooth", "milp", "boxes")
    ended = np.minimum(times, limit) if spent is None else np.array(spent)
    configurations = tuple(Configuration(n) for n in names[: len(solved)])
    labels = tuple(f"i{k}" for k in range(times.shape[1]))
    return Table(labels, np.full(times.shape[1], limit), configurations, times, ended)


class TestSimulation:
    def test_stages_take_turns(self) -> None:
        table = table_of([[1.0, INF, INF], [5.0, 5.0, 9.5]])
        done, by = run_lane((ScheduleStep(0, 2.0), ScheduleStep(1)), table)
        assert done.tolist() == [1.0, 7.0, INF]
        assert by.tolist() == [0, 1, -1]

    def test_who_gives_up_early_leaves_its_time(self) -> None:
        table = table_of([[INF], [9.5]], [[0.25], [9.5]])
        assert run_lane((ScheduleStep(0, 2.0), ScheduleStep(1)), table)[0].tolist() == [9.75]

    def test_lanes_race(self) -> None:
        table = table_of([[1.0, INF], [5.0, 5.0]])
        done, by = run_schedule(((ScheduleStep(0),), (ScheduleStep(1),)), table)
        assert (done.tolist(), by.tolist()) == ([1.0, 5.0], [0, 1])

    def test_a_portfolio_is_simulated_like_its_schedule(self) -> None:
        rng = np.random.default_rng(1)
        times = np.where(rng.random((3, 40)) < 0.5, rng.uniform(0, 10, (3, 40)), INF)
        table = table_of(times.tolist())
        for schedule in [
            ((ScheduleStep(0, 2.0), ScheduleStep(1, 4.0), ScheduleStep(2)),),
            ((ScheduleStep(1),), (ScheduleStep(0, 3.0), ScheduleStep(2))),
        ]:
            portfolio = read_back(portfolio_text(schedule, table, []), "x.yaml")
            found = simulated(portfolio, table)
            assert not isinstance(found, str)
            assert found[0] == pytest.approx(run_schedule(schedule, table)[0].tolist())

    def test_the_default_is_compared_by_the_same_times(self) -> None:
        nothing, late = [INF, INF], [10.0, 10.0]
        refused = [0.0, 0.0]
        solved = [[0.1, INF], [5.0, 5.0], nothing, nothing, nothing]
        table = table_of(solved, [[0.1, 10.0], [5.0, 5.0], refused, late, refused])
        table = replace(table, others={"default": np.array([1.0, 9.0])})
        others = with_defaults(table).others
        assert list(others) == ["default, measured", "default_few, computed", "default, computed"]
        assert others["default, computed"].tolist() == [0.1, 5.3]

    def test_a_member_without_a_run_is_named(self) -> None:
        assert "milp" in str(simulated(built_in("default"), table_of([[1.0], [1.0]])))


class TestSearch:
    def test_an_attack_comes_first_where_it_pays(self) -> None:
        """pgd decides half at once and never the rest; crown needs five seconds for everything."""
        table = table_of([[0.1] * 10 + [INF] * 10, [5.0] * 20])
        schedule, _ = build(table, 1, "par2")
        assert [s.row for s in schedule[0]] == [0, 1]
        assert schedule[0][0].seconds == 0.22
        assert schedule[0][1].seconds is None

    def test_two_cores_race(self) -> None:
        table = table_of([[9.0, 9.0, INF, INF], [INF, INF, 9.0, 9.0]])
        schedule, part = build(table, 2, "par2")
        assert sorted(lane[0].row for lane in schedule) == [0, 1]
        assert run_schedule(schedule, part)[0].tolist() == [9.0] * 4

    def test_what_was_recorded_on_more_cores_is_not_raced(self) -> None:
        base = table_of([[9.0, INF], [INF, 9.0]])
        wide = tuple(Configuration(c.verifier, cores=2) for c in base.configurations)
        table = Table(base.labels, base.limits, wide, base.solved, base.spent)
        assert len(build(table, 2, "par2")[0]) == 1
        with pytest.raises(InputError, match="at most 1 cores"):
            build(table, 1, "par2")

    def test_the_search_is_as_good_as_trying_everything(self) -> None:
        """All orders of two members and all their slices."""
        rng = np.random.default_rng(3)
        for _ in range(5):
            times = np.where(rng.random((2, 30)) < 0.6, rng.exponential(3, (2, 30)), INF)
            table = table_of(np.where(times > 10, INF, times).tolist())
            every: list[Schedule] = [((ScheduleStep(a),),) for a in (0, 1)]
            every += [((ScheduleStep(a, s), ScheduleStep(1 - a)),) for a in (0, 1) for s in slices(table, a)]
            best = min(cost(run_schedule(x, table)[0], table.limits, "par2") for x in every)
            found = cost(run_schedule(build(table, 1, "par2")[0], table)[0], table.limits, "par2")
            assert found <= best * 1.002

    def test_the_score_wants_answers_and_not_speed(self) -> None:
        """crown decides three quickly, milp the same three and one more, slowly: a matter of goals."""
        table = table_of([[INF] * 4, [1.0, 1.0, 1.0, INF], [9.9, 9.9, 9.9, 9.9]])
        done = run_schedule(build(table, 1, "score")[0], table)[0]
        assert np.isfinite(done).all()
        assert single_best(table, "par2")[0][0].row == 1
        assert single_best(table, "score")[0][0].row == 2

    def test_slices_are_readable_and_long_enough(self) -> None:
        assert [round_up(v) for v in (0.123, 1.0, 12.01, 130.0)] == [0.13, 1.0, 13.0, 130.0]


class TestJudgement:
    def test_complementary_members_win(self) -> None:
        rng = np.random.default_rng(0)
        easy = rng.random(60) < 0.5
        table = table_of([np.where(easy, 0.1, INF).tolist(), np.where(easy, INF, 4.0).tolist()])
        result = judge(table, 1, "par2", 5)
        lines = {line.name: line for line in result.lines}
        assert lines[LEARNED].decided == lines[BEST].decided == 60
        assert lines[LEARNED].par2 < lines[SINGLE].par2
        assert result.differences[0].verdict == "learned is better than single best"
        assert all(w.loss > 0 and w.only > 0 for w in result.worths)

    def test_chance_is_not_sold_as_a_gain(self) -> None:
        """Two members that decide at random: there is nothing to learn, and the report says so."""
        rng = np.random.default_rng(5)
        times = np.where(rng.random((2, 24)) < 0.1, 9.0, INF)
        result = judge(table_of(times.tolist()), 1, "par2", 6)
        assert "is better than single" not in result.differences[0].verdict

    def test_every_instance_is_judged_by_what_was_learned_without_it(self) -> None:
        """One instance that only milp decides: nobody can learn that from the others."""
        table = table_of([[INF] * 5, [1.0] * 4 + [INF], [INF] * 4 + [1.0]])
        lines = {line.name: line for line in judge(table, 1, "par2", 5).lines}
        assert lines[LEARNED].decided == 4
        assert lines[BEST].decided == 5


def write_table(path: Path, results: dict[str, tuple[str, float]]) -> Path:
    with path.open("w", newline="") as stream:
        for name, (result, seconds) in results.items():
            csv.writer(stream).writerow(["c", f"{name}.onnx", f"{name}.vnnlib", 0, result, seconds])
    return path


class TestRuns:
    def test_tables_and_configurations(self, tmp_path: Path) -> None:
        crown = write_table(tmp_path / "crown.csv", {"a": ("unsat", 2.0), "b": ("timeout", 10.0)})
        pgd = write_table(tmp_path / "x.csv", {"a": ("unknown", 0.5), "b": ("sat", 0.5), "z": ("sat", 1.0)})
        default = write_table(tmp_path / "default.csv", {"a": ("unsat", 2.5), "b": ("sat", 0.5)})
        runs = read_runs([str(crown), f"pgd:restarts=3={pgd}", str(default)], Source(timeout=10.0))
        assert [r.name for r in runs] == ["crown", "pgd:restarts=3", "default"]
        table = make_table(runs, {})
        assert [label.split("-")[0] for label in table.labels] == ["c/a_a", "c/b_b"]
        assert table.configurations[1].options == {"restarts": 3}
        assert table.solved.tolist() == [[2.0, INF], [INF, 0.5]]
        assert table.spent.tolist() == [[2.0, 10.0], [0.5, 0.5]]
        assert table.others["default"].tolist() == [2.5, 0.5]
        assert "1 instances" in table.notes[0]

    def test_wrong_answers_disqualify(self, tmp_path: Path) -> None:
        crown = write_table(tmp_path / "crown.csv", {"a": ("sat", 2.0)})
        milp = write_table(tmp_path / "milp.csv", {"a": ("unsat", 1.0)})
        table = make_table(read_runs([str(crown), str(milp)], Source()), {})
        assert [c.name for c in table.configurations] == ["crown"]
        assert "milp is left out: 1 wrong" in table.notes[0]

    def test_late_answers_do_not_count(self, tmp_path: Path) -> None:
        crown = write_table(tmp_path / "crown.csv", {"a": ("sat", 2.0)})
        table = make_table(read_runs([str(crown)], Source(cap=1.0)), {})
        assert table.solved.tolist() == [[INF]]
        assert par2(table.solved[0], table.limits) == 2.0

    def test_errors_say_what_to_write(self, tmp_path: Path) -> None:
        odd = write_table(tmp_path / "mine.csv", {"a": ("sat", 2.0)})
        with pytest.raises(InputError, match="VERIFIER=FILE"):
            read_runs([str(odd)], Source())
        with pytest.raises(InputError, match="nothing there"):
            read_runs(["crown=none.csv"], Source())
        with pytest.raises(InputError, match="OPTION=VALUE"):
            parse_configuration("pgd:restarts")
        with pytest.raises(InputError, match="store of"):
            odd.rename(tmp_path / "mine.db")
            read_runs([f"pgd={tmp_path / 'mine.db'}"], Source())


def test_time_in_words_and_numbers() -> None:
    found = [r for r in rows(built_in("default").root, 100.0) if r.member is not None]
    assert [r.title for r in found] == ["pgd", "smooth", "crown", "pgd", "milp"]
    assert sum(r.seconds for r in found) == pytest.approx(100.0)
    assert found[0].limit == "at most 0.3 s and 5 %"
    assert found[1].limit == "at most 80 %"
    assert found[2].limit == "what is left"


PLUGIN = '''
"""A verifier that writes down its options."""
import json, os
from dataclasses import asdict, dataclass
from pathlib import Path
from verifolio import Outcome, Verifier, hookimpl

@dataclass(frozen=True)
class Options:
    word: str = "default"
    number: int = 1

class Recorder(Verifier):
    name = "recorder"
    can_falsify = True
    Options = Options

    def run(self, problem, context):
        said = asdict(self.options) | {"seconds": context.budget.remaining}
        Path(os.environ["RECORDED"]).write_text(json.dumps(said))
        return Outcome.unknown("only writes down")

@hookimpl
def register_verifiers(registry):
    registry.add(Recorder)
'''


def call(place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(place / "site"),
        "RECORDED": str(place / "recorded.json"),
        "OMP_NUM_THREADS": "1",
    }
    command = [*VERIFOLIO, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=place, env=environment)


def install(place: Path) -> None:
    """A package on the path with an entry point, as an installer would leave it."""
    info = place / "site" / "recorder-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: recorder\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verifolio]\nrecorder = recorder\n")
    (place / "site" / "recorder.py").write_text(PLUGIN)


def test_a_built_portfolio_runs_and_its_options_reach_the_member(tmp_path: Path) -> None:
    """From recorded runs to a file, from the file to a verifier of somebody else's, with options and slice."""
    install(tmp_path)
    good = {f"i{k}": ("sat", 1.0) for k in range(8)} | {f"j{k}": ("unknown", 1.5) for k in range(8)}
    bad = {f"i{k}": ("timeout", 60.0) for k in range(8)} | {f"j{k}": ("unsat", 3.0) for k in range(8)}
    write_table(tmp_path / "good.csv", good)
    write_table(tmp_path / "bad.csv", good | {f"i{k}": ("sat", 50.0) for k in range(8)})
    write_table(tmp_path / "crown.csv", bad)
    runs = ["recorder:word=best,number=7=good.csv", "recorder=bad.csv", "crown.csv"]
    done = call(tmp_path, "portfolio", "build", *runs, "--output", "mine.yaml", "--folds", 4)
    assert done.returncode == 0, done.stderr
    assert "learned is better than single best" in done.stdout
    file = (tmp_path / "mine.yaml").read_text()
    assert "# Cross-validated" in file
    net, prop = NETWORKS / "digits_dense.onnx", NETWORKS / "properties" / "digits_dense_45_0.01.vnnlib"
    answer = call(tmp_path, "verify", net, prop, "--portfolio", "mine.yaml", "--timeout", 40, "--json")
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert [a["verifier"] for a in said["attempts"]] == ["recorder", "crown"]
    assert said["verdict"] == "unsat"
    recorded = json.loads((tmp_path / "recorded.json").read_text())
    assert (recorded["word"], recorded["number"]) == ("best", 7)
    assert recorded["seconds"] <= 1.3  # its slice, not the query's forty seconds
    shown = call(tmp_path, "portfolio", "show", "mine.yaml", "--results", runs[0], "--results", "crown.csv")
    assert shown.returncode == 0, shown.stderr
    assert "word=best" in shown.stdout
    assert "16 of 16 decided" in shown.stdout


def test_from_stores_of_real_runs(tmp_path: Path) -> None:
    """`bench` twice, then build from the two stores: configurations and limits are in them."""
    only = [
        "digits_dense_digits_dense_45_0.01",
        "digits_dense_digits_dense_45_0.2",
        "digits_conv_digits_conv_45_0.2",
    ]
    for name, more in (("pgd", ["--option", "restarts=2"]), ("crown", [])):
        out = ["--output", f"{name}.csv", "--no-pictures", "--timeout-cap", 2, "--cores", 1]
        done = call(tmp_path, "bench", NETWORKS, *out, "--only", ",".join(only), "--verifier", name, *more)
        assert done.returncode == 0, done.stderr
    done = call(tmp_path, "portfolio", "build", "pgd.db", "crown.db", "--folds", 3, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {w["name"] for w in said["without"]} == {"pgd:restarts=2", "crown"}
    assert said["instances"] == len(only)
    shown = call(tmp_path, "portfolio", "show", "default", "--results", "crown.db", "--json")
    assert shown.returncode == 0, shown.stderr
    assert [p["name"] for p in json.loads(shown.stdout)["portfolios"]] == ["default_few", "default"]


def test_what_the_default_would_do_with_a_query(tmp_path: Path) -> None:
    prop = NETWORKS / "properties" / "digits_dense_45_0.01.vnnlib"
    shown = call(tmp_path, "portfolio", "show", "default", "--on", NETWORKS / "digits_dense.onnx", prop)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("takes it") == 4
