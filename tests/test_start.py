"""The six lines: at most six, the same in the examples, on the first page and in the README, which run them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["pictures.py", "tables.py"])
def test_six_lines_are_the_same_everywhere(name: str) -> None:
    text = (ROOT / "examples/start" / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 6
    for page in ("README.md", "docs/start/first-verdict.md"):
        assert text in (ROOT / page).read_text(encoding="utf-8"), page
