"""Files of the user's own: they run as Python runs them, and what is wrong with them is told by its place."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from verifolio.errors import InputError
from verifolio.files.python_file import run_python_file


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_neighbours_are_found_and_classes_can_be_pickled(tmp_path: Path) -> None:
    """Either was a bug of verifolio with a log file."""
    (tmp_path / "the_neighbour.py").write_text("FACTOR = 3\n")
    (tmp_path / "user.py").write_text(
        "from __future__ import annotations\n"
        "import pickle\n"
        "from dataclasses import dataclass\n"
        "from the_neighbour import FACTOR\n"
        "@dataclass\n"
        "class Model:\n"
        "    factor: int = FACTOR\n"
        "stored = pickle.dumps(Model())\n"
    )
    module = run_python_file(tmp_path / "user.py")
    assert pickle.loads(module.stored).factor == 3  # noqa: S301


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ny = missing\n", "user.py:2: .*got NameError: name 'missing' is not defined"),
        ("x = (\n", "user.py:1: .*SyntaxError"),
        ("import no_such_package\n", "user.py:1: .*No module named 'no_such_package'"),
        ("import sys\nsys.exit(2)\n", "user.py:2: .*SystemExit: 2"),
    ],
)
def test_errors_are_the_files_own(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(text)
    with pytest.raises(InputError, match=told):
        run_python_file(tmp_path / "user.py")
    with pytest.raises(InputError, match="no such file"):
        run_python_file(tmp_path / "other.py")
