"""The six lines: at most six, the same in the examples, on the first page and in the README, which run them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["pictures.py", "tables.py"])
def test_six_lines_are_the_same_everywhere(name: str) -> None:
    text = (ROOT / "examples/start" / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 6
    for page in ("README.md", "docs/start/first-verdict.md"):
        assert text in (ROOT / page).read_text(encoding="utf-8"), page


@pytest.mark.slow  # trains a module and verifies six images
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cell after cell; what the last line of a cell gives is shown as a notebook shows it."""
    monkeypatch.syspath_prepend(str(ROOT / "examples/start"))
    monkeypatch.setenv("VERIFOLIO_CACHE", str(tmp_path))
    cells = json.loads((ROOT / "examples/start/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = []
    for source in ("".join(c["source"]) for c in cells if c["cell_type"] == "code"):
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "notebook", "exec"), names)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)  # noqa: S307
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    assert "of 6 proved" in shown[0] and "<table" in shown[1]
