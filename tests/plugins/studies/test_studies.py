"""Studies: rows that resume, pages from rows, published tables that are whole, and only the public surface."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

import verifolio
from verifolio import InputError
from verifolio.cli.main import run
from verifolio.plugins.studies.page import page
from verifolio.plugins.studies.papers import PAPERS, find_study
from verifolio.plugins.studies.rows import WHEN, Rows, columns
from verifolio.plugins.studies.study import (
    Key,
    Measurement,
    Part,
    Place,
    Record,
    Shown,
    Size,
    Study,
    Tables,
    judged,
)

FOLDER = Path(__file__).resolve().parents[3] / "plugins" / "studies"
# what a command of a plugin is made of, and VNN-LIB, which is public too; everything else comes from `verifolio`
COMMANDS = ("verifolio.cli", "verifolio.plugin.options", "verifolio.vnnlib")


@dataclass
class Squares(Measurement):
    """Counts what it measures."""

    asked: list[Key] = field(default_factory=list)
    fails_at: str = ""

    name: ClassVar[str] = "squares"
    key: ClassVar[tuple[str, ...]] = ("kind", "number")
    shared: ClassVar[int] = 1
    most: ClassVar[int] = 3
    columns: ClassVar[tuple[str, ...]] = ("square",)

    def wanted(self, size: Size) -> list[Key]:
        return [(kind, str(n)) for kind in ("a", "b") for n in range(2 if size.quick else 4)]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for kind, number in keys:
            if number == self.fails_at:
                raise KeyboardInterrupt
            self.asked.append((kind, number))
            yield {"kind": kind, "number": number, "square": str(int(number) ** 2)}


def show(tables: Tables) -> Shown:
    found = tables.of("squares", kind="a")
    return Shown([f"{len(found)} squares"], [judged("all are even", False, f"n = {len(found)}", "1 is odd.")])


def study_of(one: Measurement) -> Study:
    parts = (
        Part("table", 1, "squares", show, (one,)),
        Part("figure", 2, "none", absent="Its data is not public."),
    )
    return Study("999", "Squares", "Nobody, 1.", "About squares.", parts)


def test_a_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    rows, place = Rows(tmp_path, "999"), Place(tmp_path, Size())
    with pytest.raises(KeyboardInterrupt):
        rows.fill(Squares(fails_at="2"), place, 60)
    again = Squares()
    assert rows.fill(again, place, 60) == 0
    assert again.asked == [("a", "2"), ("a", "3"), ("b", "0"), ("b", "1"), ("b", "2"), ("b", "3")]
    assert [r["square"] for r in rows.read(again)] == ["0", "1", "4", "9"] * 2
    assert rows.fill(Squares(), place, 60) == 0
    assert all(r["date"] and r["commit"] and float(r["load"]) >= 0 for r in rows.read(again))


def test_time_and_words_limit_what_is_measured(tmp_path: Path) -> None:
    rows = Rows(tmp_path, "999")
    assert rows.fill(Squares(), Place(tmp_path, Size()), 0.0) == 8
    assert not rows.path("squares").exists()
    assert rows.fill(Squares(), Place(tmp_path, Size()), 1e-9) == 5, "what is measured together is kept"
    one = Squares()
    rows.fill(one, Place(tmp_path, Size(), only=("b",)), 60)
    assert {kind for kind, _ in one.asked} == {"b"}
    two = Squares()
    rows.fill(two, Place(tmp_path, Size(), only=("squares",)), 60)
    assert {kind for kind, _ in two.asked} == {"a"}
    assert rows.missing(two, Place(tmp_path, Size(), only=("other",))) == []


def test_rows_are_measured_in_groups() -> None:
    keys = Squares().wanted(Size())
    assert [len(group) for group in Squares().groups(keys)] == [3, 1, 3, 1]
    assert [key for group in Squares().groups(keys) for key in group] == keys


def test_a_quick_run_wants_less(tmp_path: Path) -> None:
    rows = Rows(tmp_path, "999")
    rows.fill(Squares(), Place(tmp_path, Size(quick=True)), 60)
    assert len(rows.read(Squares())) == 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind,other\n", r"999-squares\.csv:1: expected the columns kind, number"),
        ("", "expected the columns"),
        ("kind,number,square,date,commit,load\na,1,1,x,y,1\na,2", r"csv:3: expected a value for every"),
    ],
)
def test_files_that_are_no_rows_are_explained(tmp_path: Path, content: str, said: str) -> None:
    rows = Rows(tmp_path, "999")
    rows.path("squares").write_text(content)
    with pytest.raises(InputError, match=said):
        rows.read(Squares())


def test_a_page_has_every_part_and_every_judgement(tmp_path: Path) -> None:
    rows, one = Rows(tmp_path, "999"), Squares()
    rows.fill(one, Place(tmp_path, Size()), 60)
    text = page(study_of(one), rows)
    assert "## Table 1: squares" in text and "4 squares" in text
    assert "## Figure 2: none\n\nIts data is not public." in text
    assert "| table 1 | all are even | **refuted** | n = 4 | 1 is odd. |" in text
    assert "`verifolio study 999 --table 1`" in text
    assert re.search(r"`999-squares\.csv`, 8, \d{4}-\d\d-\d\d, commit \S+, load", text)


def test_judgements() -> None:
    assert [str(judged("x", holds, "").judgement) for holds in (True, False, None)] == [
        "confirmed",
        "refuted",
        "not decided",
    ]


@pytest.mark.parametrize("number", PAPERS)
def test_parts_have_their_own_numbers_and_say_something_without_rows(number: str, tmp_path: Path) -> None:
    study = find_study(number)
    names = [part.name for part in study.parts]
    assert len(set(names)) == len(names)
    text = page(study, Rows(tmp_path, number))
    assert all(f"## {part.name.capitalize()}: {part.title}" in text for part in study.parts)
    for several in study.measurements.values():
        assert len({columns(one) for one in several}) == 1, "one file, one set of columns"
        assert columns(several[0])[-3:] == WHEN


def test_every_table_and_figure_of_the_papers_is_there() -> None:
    """As many as the papers have."""
    known = {"000": (6, 4), "001": (3, 5), "002": (3, 14), "003": (1, 3), "004": (23, 15)}
    for number, (tables, figures) in known.items():
        study = find_study(number)
        assert [p.number for p in study.parts if p.kind == "table"] == list(range(1, tables + 1))
        assert [p.number for p in study.parts if p.kind == "figure"] == list(range(1, figures + 1))


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "004"]) == 0
    assert "table 23" in capsys.readouterr().out
    assert run(["study", "005"]) == 2
    assert "expected one of 000" in capsys.readouterr().err
    assert run(["study", "000", "--table", "9"]) == 2
    assert "--table: expected one of 1, 2, 3, 4, 5, 6" in capsys.readouterr().err


def test_missing_data_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VERIFOLIO_DATA", raising=False)
    assert run(["study", "004", "--table", "9", "--rows", str(tmp_path)]) == 2
    assert "VERIFOLIO_DATA" in capsys.readouterr().err


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name != "verifolio")
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            if node.module == "verifolio":
                yield from (f"verifolio.{a.name}" for a in node.names)
            elif node.module:
                yield node.module


def test_studies_use_the_public_surface_only() -> None:
    public = {f"verifolio.{name}" for name in verifolio.__all__}
    found = [
        f"{path.name}: {name}"
        for path in sorted(FOLDER.rglob("*.py"))
        for name in imported(path)
        if name.startswith("verifolio") and name not in public and not name.startswith(COMMANDS)
    ]
    assert not found
