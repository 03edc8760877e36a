"""Every module of the plugin stands in the table of docs/explanation/crown.md, beside tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "plugins" / "crown"


def entries() -> list[tuple[set[str], str]]:
    """The modules and the tests of every row of the table."""
    text = (ROOT / "docs/explanation/crown.md").read_text()
    section = text.split("## Which test covers which path")[1].split("\n## ")[0]
    cells = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return [(set(re.findall(r"`([\w/]+\.(?:py|c))`", modules)), tests) for modules, tests in cells]


def test_every_module_has_an_entry() -> None:
    files = [p for p in PLUGIN.rglob("*") if p.suffix in (".py", ".c") and p.name != "__init__.py"]
    present = {p.relative_to(PLUGIN).as_posix() for p in files}
    listed = set().union(*(modules for modules, _ in entries()))
    assert present - listed == set(), "these modules have no entry in docs/explanation/crown.md"
    assert listed - present == set(), "docs/explanation/crown.md lists modules that do not exist"


def test_every_entry_names_tests_that_exist() -> None:
    for modules, tests in entries():
        files = re.findall(r"`(test_\w+\.py)`", tests)
        assert files, f"{sorted(modules)}: no test is named"
        found = {name: list((ROOT / "tests").rglob(name)) for name in files}
        assert all(found.values()), f"{sorted(modules)}: not all of {files} exist"
        text = "".join(path.read_text() for paths in found.values() for path in paths)
        for name in re.findall(r"`(test_\w+)`", tests):
            assert f"def {name}(" in text, f"{name} is in none of {files}"
