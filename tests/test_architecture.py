"""The page on architecture tells the truth: the files it names exist, have what it says and import what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PATH = re.compile(r"(?:core|plugins|vnnlib|tests|checker)/[\w/.]*\w")
ROW = re.compile(r"\| `([\w/]+\.py)` \| (.+?) \| (.*?)\|$", re.MULTILINE)
WALKS = ("## From files to problems", "## One distribution", "## One round of branch and bound")


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def rows() -> list[tuple[str, list[str], list[str]]]:
    return [(file, words(has), words(uses)) for file, has, uses in ROW.findall(PAGE.read_text("utf-8"))]


def defined(path: Path) -> set[str]:
    """Functions and classes of a file, and Class.method for what a class has."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return found


def imported(path: Path) -> set[Path]:
    """The files of ours that a file imports, inside functions too."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = place(node.module or "") if node.level == 0 else path.parents[node.level - 1]
            if node.level and node.module:
                base = base.joinpath(*node.module.split("."))
            found |= {base.with_suffix(".py"), base / "__init__.py"}
            found |= {base / f"{alias.name}.py" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {place(alias.name).with_suffix(".py") for alias in node.names}
    return {p for p in found if p.is_file()}


def place(module: str) -> Path:
    """Where a module of ours lies in the repository; another place for any other."""
    parts = module.split(".")
    if parts[0] != "verifolio":
        return ROOT / "nowhere"
    folder = [] if parts[1:2] and parts[1] in ("plugins", "vnnlib") else ["core"]
    return ROOT.joinpath(*folder, *parts[1:])


def test_every_path_exists() -> None:
    named = set(PATH.findall(PAGE.read_text("utf-8")))
    assert len(named) > 40
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_each_walk_has_its_table() -> None:
    """One query, one distribution and one round of branch and bound."""
    text = PAGE.read_text("utf-8")
    assert len(rows()) >= 25
    for heading in WALKS:
        assert text.count(f"\n{heading}\n") == 1
    query, distribution, branch = (text.index(w) for w in WALKS)
    parts = (text[:query], text[distribution:branch], text[branch:])
    assert [len(ROW.findall(part)) >= 8 for part in parts] == [True] * 3


@pytest.mark.parametrize(("file", "has", "uses"), rows(), ids=[r[0] for r in rows()])
def test_a_file_has_and_imports_what_is_said(file: str, has: list[str], uses: list[str]) -> None:
    path = ROOT / file
    assert has
    assert set(has) - defined(path) == set()
    assert {ROOT / name for name in uses} - imported(path) == set()


def test_a_false_row_would_be_seen() -> None:
    walk = ROOT / "core" / "solve" / "walk.py"
    assert "Walk.run" in defined(walk)
    assert "Walk.stroll" not in defined(walk)
    assert ROOT / "core/solve/survey.py" in imported(walk)
    assert ROOT / "core/solve/batches.py" not in imported(walk)
