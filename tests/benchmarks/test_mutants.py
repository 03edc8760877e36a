"""The list of seeded faults fits the sources, and mutants are what they say."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_every_fault_still_has_its_place() -> None:
    from benchmarks.mutants.areas import tests_of
    from benchmarks.mutants.faults import FAULTS, stale

    assert len(FAULTS) >= 20
    assert stale(ROOT) == []
    assert [p.file for p in FAULTS if not tests_of(ROOT, p.file)] == []


def test_the_trust_base_is_there_and_has_tests() -> None:
    from benchmarks.mutants.areas import tests_of, trusted_files

    files = trusted_files(ROOT)
    assert {"core/trust/referee.py", "plugins/crown/kernel/_boxes.c", "vnnlib/check.py"} <= set(files)
    assert [f for f in files if not tests_of(ROOT, f)] == []


def test_a_sample_is_reproducible_and_covers_every_file() -> None:
    from benchmarks.mutants.__main__ import sample
    from benchmarks.mutants.areas import trusted_files

    first = sample(ROOT, 400, 0)
    assert first == sample(ROOT, 400, 0)
    assert len(first) == len({m.key for m in first}) == 400
    assert len({m.file for m in first}) >= len(trusted_files(ROOT)) - 2


def test_a_change_of_one_file_leaves_the_rest_of_the_sample_alone(tmp_path: Path) -> None:
    from benchmarks.mutants.__main__ import sample
    from benchmarks.mutants.areas import trusted_files

    for name in trusted_files(ROOT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    before = {m.key for m in sample(tmp_path, 200, 0)}
    with (tmp_path / "core/trust/referee.py").open("a") as stream:
        stream.write("\n\ndef more(a: int) -> int:\n    return max(a, 0) + 1 if a < 3 else -a\n")
    after = {m.key for m in sample(tmp_path, 200, 0)}
    assert len(before & after) >= 190


def test_files_that_are_named_exist() -> None:
    from benchmarks.mutants.killers import OTHER_WRAPPER, WORKERS, WRAPPERS
    from benchmarks.mutants.scratch import KERNELS

    assert all((ROOT / name).exists() for name in (WORKERS, OTHER_WRAPPER, *WRAPPERS.values(), *KERNELS))


def test_mutants_change_one_place_and_parse() -> None:
    from benchmarks.mutants.operators import mutants

    source = "def f(a, b):\n    if a < b:\n        a = max(a, 0) + 1\n    return abs(a - b)\n"
    made = mutants("f.py", source)
    texts = [m.text(source) for m in made]
    assert all(ast.parse(t) and t != source for t in texts)
    assert len(set(texts)) == len(texts)
    assert {m.operator for m in made} == {
        "comparison",
        "condition negated",
        "arithmetic",
        "constant",
        "min and max swapped",
        "call removed",
        "statement dropped",
    }
    assert "    return (a - b)\n" in "".join(texts)


def test_the_interval_of_a_share() -> None:
    from benchmarks.mutants.__main__ import wilson

    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 0) == (0.0, 1.0)


def test_rows_are_read_back_and_survivors_are_listed_until_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.mutants.__main__ import Row, append_row, read_rows, report

    rows, judged = tmp_path / "rows.csv", tmp_path / "judged.csv"
    made = [
        Row("a", "f.py", 3, "constant", "1", "2", "killed", "FAILED t.py::test", 1.5),
        Row("b", "f.py", 4, "comparison", "<", ">=", "survived", "", 2.0),
        Row("c", "g.py", 5, "arithmetic", "+", "-", "timeout", "t.py", 60.0),
    ]
    for row in made:
        append_row(rows, row)
    assert read_rows(rows) == made
    report(rows, judged)
    shown = capsys.readouterr().out
    assert "killed 1 of 3" in shown
    assert "to judge: b f.py:4" in shown
    assert "to judge: c g.py:5" in shown
    judged.write_text("key,verdict,why\nb,equivalent,the same\nc,looser,only a wider bound\n")
    report(rows, judged)
    shown = capsys.readouterr().out
    assert "to judge" not in shown
    assert "killed 1 of 3: 33.3%" in shown
    assert "without 1 judged equivalent 1 of 2: 50.0%" in shown
    report(rows, judged, {"a", "b"})
    assert "killed 1 of 2: 50.0%" in capsys.readouterr().out


def small_tree(tree: Path) -> Path:
    import subprocess

    for name in ("core", "plugins/crown/kernel", "vnnlib"):
        (tree / name).mkdir(parents=True)
    for kernel in ("_boxes.c", "_quadratics.c"):
        (tree / "plugins" / "crown" / "kernel" / kernel).write_text("")
    (tree / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree


def serve(scratch: Any, tests: list[str], work: Callable[[Any], object], tmp_path: Path) -> Any:
    """What `work` returns in the process that has collected the tests."""
    import json

    out = tmp_path / "said.json"
    scratch.serve(tests, lambda server: out.write_text(json.dumps(work(server))))
    return json.loads(out.read_text())


def test_a_change_is_tried_in_a_copy_and_taken_back(tmp_path: Path) -> None:
    from benchmarks.mutants.scratch import Scratch

    before = "ONE = 1\n\n\nclass Two:\n    def two(self) -> int:\n        return [2 for _ in range(1)][0]\n"
    before += (
        "\n\ndef made():\n    def inner() -> int:\n        return 4\n    return inner\n\n\nfour = made()\n"
    )
    tree = small_tree(tmp_path / "tree")
    (tree / "core" / "__init__.py").write_text(before)
    lines = ["from verifolio import ONE, Two, four", "def test_one(): assert ONE == 1"]
    lines += ["def test_four(): assert four() == 4"]
    lines += ["def test_two(): assert Two().two() == 2", "def test_wrong(): assert Two().two() == 3"]
    (tree / "test_both.py").write_text("\n".join(lines) + "\n")
    scratch = Scratch(tree, tmp_path / "copy")
    tests = [
        f"test_both.py::test_{name}" for name in ("wrong", "one", "two", "four")
    ]  # the first fails in any case
    changes = {
        "in a function": before.replace("[2", "[3"),
        "in a function that another made": before.replace("return 4", "return 5"),
        "outside": before.replace("1\n", "2\n", 1),
        "harmless": before.replace("[2 ", "[1 + 1 "),
        "for ever": before.replace("return [", "while True: pass\n        return ["),
        "unreadable": before.replace("ONE", "ONE ="),
    }

    def work(server: Any) -> object:
        found = {k: scratch.changed(server, "core/__init__.py", t, tests, 3.0) for k, t in changes.items()}
        return {k: (r.status, r.test) for k, r in found.items()}

    assert serve(scratch, ["test_both.py"], work, tmp_path) == {
        "in a function": ["killed", tests[2]],
        "in a function that another made": ["killed", tests[3]],
        "outside": ["killed", tests[1]],
        "harmless": ["survived", ""],
        "for ever": ["timeout", "after 3 s"],
        "unreadable": ["killed", "collection"],
    }
    assert scratch.read("core/__init__.py") == before


def test_a_kernel_is_replaced_in_place(tmp_path: Path) -> None:
    from benchmarks.mutants.scratch import Scratch

    tree = small_tree(tmp_path / "tree")
    source = (ROOT / "tests" / "benchmarks" / "one.c").read_text()
    kernel = "plugins/crown/kernel/_boxes.c"
    (tree / kernel).write_text(source)
    for folder in ("core", "plugins", "plugins/crown", "plugins/crown/kernel"):
        (tree / folder / "__init__.py").write_text("")
    lines = ["from verifolio.plugins.crown.kernel import _boxes", "def test_one(): assert _boxes.one() == 1"]
    (tree / "test_one.py").write_text("\n".join(lines) + "\n")
    scratch = Scratch(tree, tmp_path / "copy")
    texts = [source, source.replace("FromLong(1)", "FromLong(2)"), source.replace("FromLong(1)", "")]

    def work(server: Any) -> object:
        test = ["test_one.py::test_one"]
        return [scratch.changed(server, kernel, text, test, 9.0).status for text in [*texts, source]]

    said = serve(scratch, ["test_one.py"], work, tmp_path)
    assert said == ["survived", "killed", "broken", "survived"]


def test_tests_that_run_the_changed_statement_come_first() -> None:
    from collections import Counter

    from benchmarks.mutants.killers import Traced, killers, statement_around
    from benchmarks.mutants.scratch import KERNELS

    source = "A = 1\n\n@cache\ndef f():\n    if (\n     A\n    ):\n        return 1\n    return g(\n     2\n    )\n"
    assert statement_around(source, 1) is None
    assert statement_around(source, 6) == range(5, 8)
    assert statement_around(source, 8) == range(8, 9)
    assert statement_around(source, 10) == range(9, 12)
    lines = {
        "slow": (3.0, {"core/a.py": [5, 6, 8]}),
        "quick": (1.0, {"core/a.py": [5, 9]}),
        "other": (0.5, {"core/a.py": [20]}),
        "worker": (0.1, {"core/run/pool.py": [1]}),
        "boxes": (0.2, {"plugins/crown/kernel/boxes.py": [1]}),
    }
    traced = [Traced(n, t, {f: frozenset(k) for f, k in c.items()}) for n, (t, c) in lines.items()]
    assert killers("core/a.py", source, 6, traced, Counter()) == ["quick", "slow"]
    assert killers("core/a.py", source, 6, traced, Counter(slow=1)) == ["slow", "quick"]
    assert killers("core/a.py", source, 8, traced, Counter()) == ["slow"]
    assert killers("core/a.py", source, 1, traced, Counter()) == ["other", "quick", "slow"]
    assert killers("core/b.py", source, 1, traced, Counter()) == ["worker"]  # may run it where no tracer sees
    assert killers(KERNELS[0], "", 1, traced, Counter()) == ["boxes"]


def test_without_tracing_the_nearest_tests_come_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks.mutants import killers
    from benchmarks.mutants.killers import Kill, untraced

    texts = {"far.py": "", "test_use.py": "from verifolio.a.b import c\n", "test_b.py": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(killers, "tests_of", lambda root, file: list(texts))
    tests = ["far.py::x", "far.py::y", "far.py::z", "test_use.py::u", "test_b.py::b", "other.py::o"]
    kills = [Kill("core/a/b.py", "far.py::y"), Kill("core/d.py", "far.py::z")]
    assert untraced(tmp_path, "core/a/b.py", tests, "?", kills) == [
        "far.py::y",
        "test_b.py::b",
        "test_use.py::u",
        "far.py::z",
        "far.py::x",
    ]
    assert untraced(tmp_path, "core/a/b.py", tests, "::u", [])[0] == "test_use.py::u"


def test_tests_are_traced_once_and_run_in_the_order_asked_for(tmp_path: Path) -> None:
    from benchmarks.mutants.killers import trace
    from benchmarks.mutants.scratch import Scratch

    tree = small_tree(tmp_path / "tree")
    (tree / "core" / "__init__.py").write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    lines = ["import verifolio", "def test_two(): assert verifolio.two() == 2"]
    lines += ["def test_one(): assert verifolio.one() == 1", "def test_wrong(): assert verifolio.two() == 1"]
    (tree / "test_both.py").write_text("\n".join(lines) + "\n")
    kept, name = tmp_path / "kept", "core/__init__.py"
    broken = "def one():\n    return 0\n\n\ndef two():\n    return 0\n"
    tests = ["test_both.py::test_one", "test_both.py::test_two"]

    def work(server: Any) -> object:
        scratch = copies[-1]
        traced = {
            t.test: sorted(t.lines[name]) for t in trace(scratch, server, ["test_both.py"], [name], kept)
        }
        orders = (tests, tests[::-1])
        return traced, [scratch.changed(server, name, broken, order, 60.0).test for order in orders]

    copies = [Scratch(tree, tmp_path / "copy")]
    traced, first = serve(copies[-1], ["test_both.py"], work, tmp_path)
    assert traced == {tests[1]: [5, 6], tests[0]: [1, 2]}  # without the one that fails on the unchanged tree
    assert first == tests
    (file,) = kept.glob("*/*.jsonl")
    file.write_text(file.read_text().splitlines()[0] + "\n")
    copies.append(Scratch(tree, tmp_path / "again"))
    traced, _ = serve(copies[-1], ["test_both.py"], work, tmp_path)
    assert traced == {tests[1]: [5, 6]}
