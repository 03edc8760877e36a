"""The benchmark of a whole competition: order, resuming, and what counts as wrong."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = ROOT / "examples" / "networks"
FIELDS = ("category", "onnx", "vnnlib", "timeout", "expected", "other_result", "other_time_s")


@pytest.fixture
def vnncomp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import vnncomp as module

    yield module
    for name in [n for n in sys.modules if n.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def write_layout(folder: Path, counts: dict[str, int], expected: str = "sat") -> Path:
    """A layout with so many instances of each category, all about the same files."""
    network, prop = NETWORKS / "digits_dense.onnx", NETWORKS / "properties" / "digits_dense_45_0.2.vnnlib"
    with (folder / "instances.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for category, count in counts.items():
            for k in range(count):
                target = folder / category / f"{k}.vnnlib"
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(prop.read_bytes())
                cells = (str(network), f"{category}/{k}.vnnlib", 5, expected, "unsat", 7.0)
                writer.writerow((category, *cells))
    return folder


def row_of(module: Any, instance: Any, **changes: Any) -> Any:
    blank: dict[str, Any] = {f.name: "" for f in fields(module.Row)}
    blank |= {"seconds": 1.0, "processor_seconds": 1.0, "limit": 60.0, "cores": 2, "load": 0.0}
    blank |= {"category": instance.category, "onnx": instance.onnx, "vnnlib": instance.vnnlib}
    return module.Row(**(blank | changes))


def test_every_prefix_of_the_order_is_a_sample_of_every_category(vnncomp: Any, tmp_path: Path) -> None:
    every = vnncomp.read_layout(write_layout(tmp_path, {"a": 9, "b": 3, "c": 6}))
    order = vnncomp.ordered(every, seed=0)
    assert sorted(i.id for i in order) == sorted(i.id for i in every)
    assert Counter(i.category for i in order[:9]) == {"a": 3, "b": 3, "c": 3}
    assert [i.id for i in order] == [i.id for i in vnncomp.ordered(every, seed=0)]
    assert [i.id for i in order] != [i.id for i in vnncomp.ordered(every, seed=1)]
    assert vnncomp.ordered(every, seed=0, per_category=2) == order[:6]
    parts = [vnncomp.shard(order, f"{k}/4") for k in (1, 2, 3, 4)]
    assert sorted(i.id for part in parts for i in part) == sorted(i.id for i in every)
    with pytest.raises(SystemExit, match="--shard"):
        vnncomp.shard(order, "5/4")


def test_a_run_goes_on_from_its_rows(
    vnncomp: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_layout(tmp_path, {"a": 2})
    rows = tmp_path / "rows.csv"
    words = [str(tmp_path), "--rows", str(rows), "--commit", "one", "--limit", "30", "--cores", "1"]
    words += ["--witnesses", str(tmp_path / "found")]
    assert vnncomp.main([*words, "--per-category", "1"]) == 0
    (row,) = vnncomp.load(rows).values()
    assert (row.verdict, row.replay, row.commit, row.limit) == ("sat", "holds", "one", 30.0)
    assert row.processor_seconds > 0.5  # the worker's, too
    (point,) = (tmp_path / "found").iterdir()
    assert point.read_text().startswith("((X_0")
    kept = rows.read_text()
    assert vnncomp.main([*words, "--per-category", "1"]) == 0
    assert rows.read_text() == kept
    assert "a\tverifolio\t1\t1\t" in capsys.readouterr().out


def test_only_what_is_asked_for_is_run_again(
    vnncomp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = vnncomp.read_layout(write_layout(tmp_path, {"a": 2}))
    ran = []

    def measure(instance: Any, options: Any, commit: str) -> Any:
        ran.append((instance.vnnlib, commit))
        verdict = "timeout" if instance.vnnlib == "a/0.vnnlib" else "unsat"
        return row_of(vnncomp, instance, verdict=verdict, commit=commit)

    monkeypatch.setattr(vnncomp, "measure", measure)
    words = [str(tmp_path), "--rows", str(tmp_path / "rows.csv"), "--commit"]
    vnncomp.record(every, vnncomp.options_of([*words, "one"]))
    vnncomp.record(every, vnncomp.options_of([*words, "two", "--again", "timeout"]))
    vnncomp.record(every, vnncomp.options_of([*words, "two", "--again", "timeout"]))
    assert ran == [("a/0.vnnlib", "one"), ("a/1.vnnlib", "one"), ("a/0.vnnlib", "two")]
    assert {r.commit for r in vnncomp.load(tmp_path / "rows.csv").values()} == {"one", "two"}


@pytest.mark.parametrize(
    ("expected", "verdict", "replay", "wrong", "other_wrong"),
    [
        ("sat", "unsat", "", True, True),
        ("unsat", "sat", "replay fails a row by 0.1", True, False),
        ("unsat", "sat", "holds", False, True),
        ("unknown", "unsat", "", False, False),
        ("sat", "timeout", "", False, True),
    ],
)
def test_what_counts_as_wrong(
    vnncomp: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    expected: str,
    verdict: str,
    replay: str,
    wrong: bool,
    other_wrong: bool,
) -> None:
    (instance,) = vnncomp.read_layout(write_layout(tmp_path, {"a": 1}, expected))
    row = row_of(vnncomp, instance, verdict=verdict, replay=replay, seconds=8.0)
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(vnncomp.Row)])
        writer.writeheader()
        writer.writerow(row.__dict__)
    assert vnncomp.main([str(tmp_path), "--rows", str(path), "--table"]) == (4 if wrong else 0)
    shown = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    cells = {line[1]: line[2:] for line in shown if line[0] == "a"}
    assert cells["verifolio"][5] == str(int(wrong))
    assert ("other" not in cells and not other_wrong) or cells["other"][5] == str(int(other_wrong))
    right = verdict in ("sat", "unsat") and not wrong
    assert cells["verifolio"][1:3] == [str(int(right)), "0"]  # 8 s: not within the competition's own 5


def test_an_estimate_weighs_categories_by_their_size(vnncomp: Any, tmp_path: Path) -> None:
    every = vnncomp.read_layout(write_layout(tmp_path, {"a": 90, "b": 10}))
    first = [row_of(vnncomp, i, verdict="unsat") for i in every[:5]]
    last = [row_of(vnncomp, i, verdict="timeout") for i in every[90:]]
    mean, error = vnncomp.estimate(every, [*first, *last])
    assert mean == 90
    assert error > 5
    assert vnncomp.estimate(every, [row_of(vnncomp, i, verdict="unsat") for i in every]) == (100.0, 0.0)


def test_published_limits_and_networks_are_read(vnncomp: Any, tmp_path: Path) -> None:
    (one,) = vnncomp.read_layout(write_layout(tmp_path, {"a": 1}))
    assert one.timeout == 5
    assert one.claims == {"other": ("unsat", 7.0)}
    assert [i.timeout for i in vnncomp.capped([one], 60.0, own=True)] == [5]
    assert [i.timeout for i in vnncomp.capped([replace(one, timeout=90.0)], 60.0, own=True)] == [60]


def test_nothing_is_expected_of_files_that_share_their_names(vnncomp: Any, tmp_path: Path) -> None:
    """Published rows of safenlp's two folders were found by the same names, and contradicted replayed points."""
    rows = [("a", f"a/{part}/n.onnx", f"a/{part}/{k}.vnnlib") for part in "xy" for k in (1, 2)]
    rows += [("a", "a/x/n.onnx", "a/x/3.vnnlib")]
    with (tmp_path / "instances.csv").open("w", newline="") as file:
        csv.writer(file).writerows([FIELDS, *((*row, 5, "unsat", "unsat", 1.0) for row in rows)])
    read = vnncomp.read_layout(tmp_path)
    assert [i.expected for i in read] == ["unknown"] * 4 + ["unsat"]
    assert [len(i.claims) for i in read] == [0, 0, 0, 0, 1]


SCRIPTS = {
    "settings.py": "class Settings:\n    COUNTEREXAMPLE_ATOL, COUNTEREXAMPLE_RTOL = 1e-4, 1e-3\n",
    "counterexamples.py": (
        "def get_ce_diff(onnx, vnnlib, point, atol, rtol):\n"
        "    text = open(point).read()\n"
        "    return ('correct' if '(X_0 ' in text and atol == 1e-4 else 'spec_not_violated'), ''\n"
    ),
    "process_results.py": (
        "def get_score(tool, res, secs, rand, holds, violated, checks):\n"
        "    print('a line that nobody asked for')\n"
        "    if res == 'violated':\n"
        "        return (10 if checks[tool] == 'correct' else -150,)\n"
        "    return (10 if res == 'holds' else 0,)\n"
    ),
}


def test_scripts_of_the_organisers_judge_the_rows(
    vnncomp: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With stand-ins for their scripts, which are not part of the project."""
    from benchmarks import vnncomp_judge

    scripts, found, rows = tmp_path / "scripts", tmp_path / "found", tmp_path / "rows.csv"
    for folder in (scripts, found):
        folder.mkdir()
    for name, text in SCRIPTS.items():
        (scripts / name).write_text(text)
    every = vnncomp.read_layout(write_layout(tmp_path, {"a": 3, "b": 1}))
    verdicts = ["sat", "unsat", "timeout", "sat"]
    with rows.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(vnncomp.Row)])
        writer.writeheader()
        for instance, verdict in zip(every, verdicts, strict=True):
            writer.writerow(row_of(vnncomp, instance, verdict=verdict).__dict__)
    vnncomp.witness_file(found, every[0]).write_text("((X_0 1.0)\n(Y_0 2.0))\n")
    words = [str(tmp_path), "--scripts", str(scripts), "--rows", str(rows), "--witnesses", str(found)]
    before = list(sys.path)
    try:
        assert vnncomp_judge.main(words) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown == ["a\t20", "all\t20", "counterexamples\tcorrect 1, not kept 1"]
        vnncomp.witness_file(found, every[3]).write_text("nothing")
        assert vnncomp_judge.main(words) == 4
        assert "PENALTY: b " in capsys.readouterr().out
    finally:
        sys.path[:] = before
        for name in SCRIPTS:
            sys.modules.pop(Path(name).stem, None)
