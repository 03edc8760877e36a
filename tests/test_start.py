"""The six lines: at most six, the same in the examples, on the first page and in the README, which run them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
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


ALONE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # importing one of them fails
import digits, verifolio, wine
verifolio.export(digits.model, digits.images, mean=0.3, std=0.37)
verifolio.export(wine.pipeline, wine.X)
"""


def test_the_first_page_needs_no_extra(tmp_path: Path) -> None:
    """The script about a table needed pandas, which came with an extra that the page did not name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=]", text)[0] for text in project["dependencies"]}
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    others = {re.split(r"[<>=\[]", text)[0] for text in extras} - needed - {"setuptools", "verifolio"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALONE, *sorted(others)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "examples/start"), "VERIFOLIO_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
