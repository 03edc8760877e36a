"""The list of planted errors fits the sources, and mutants are what they say."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_every_planted_error_still_has_its_place() -> None:
    from benchmarks.mutants.areas import tests_of
    from benchmarks.mutants.planted import PLANTED, stale

    assert len(PLANTED) >= 20
    assert stale(ROOT) == []
    assert [p.file for p in PLANTED if not tests_of(ROOT, p.file)] == []


def test_the_trust_base_is_there_and_has_tests() -> None:
    from benchmarks.mutants.areas import tests_of, trusted_files

    files = trusted_files(ROOT)
    assert {"core/referee.py", "plugins/crown/_boxes.c", "vnnlib/check.py"} <= set(files)
    assert [f for f in files if not tests_of(ROOT, f)] == []


def test_a_sample_is_reproducible_and_covers_every_file() -> None:
    from benchmarks.mutants.__main__ import sample
    from benchmarks.mutants.areas import trusted_files

    first = sample(ROOT, 200, 0)
    assert first == sample(ROOT, 200, 0)
    assert len(first) == len({m.key for m in first}) == 200
    assert len({m.file for m in first}) >= len(trusted_files(ROOT)) - 2


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
