"""The property of one's own in docs/guides/write-a-property.md works as written."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from verifolio.cli.main import run

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/guides/write-a-property.md").read_text()
TABLE = (ROOT / "docs/reference/properties.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None, f"no {language} block in docs/guides/write-a-property.md"
    return found.group(1)


@pytest.mark.parametrize("kind", ["yaml", "python"])
def test_the_example_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"confident.{'yaml' if kind == 'yaml' else 'py'}"
    file.write_text(block(kind))
    monkeypatch.chdir(ROOT)
    text = block("sh").replace("\\\n", " ")
    words = shlex.split(text.replace("confident.yaml", str(file)))[1:]
    if kind == "python":  # the class of the example has no options
        at = words.index("--property-option")
        words = words[:at] + words[at + 2 :]
    assert run([*words, "--executor", "inline", "--timeout", "5", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["property"] == "confident" and row["inputs"] == 5
    assert row["proved"] + row["refuted"] + row["open"] + row["misclassified"] == 5
    assert row["proved"] >= 1


def test_every_built_in_property_is_described() -> None:
    from verifolio.plugin.manager import current_plugins

    ours = [
        p.name
        for p in current_plugins().properties
        if p.__module__.startswith("verifolio.plugins.properties")
    ]
    assert ours and all(f"| `{name}` |" in TABLE for name in ours)
