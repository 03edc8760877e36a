"""The hooks police themselves: each has a docstring, a section in docs/reference/hooks.md, a built-in and a test."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from verifolio.plugin import hookspecs
from verifolio.plugin.manager import current_plugins

ROOT = Path(__file__).resolve().parent.parent
HOOKS = sorted(
    name
    for name, value in vars(hookspecs).items()
    if inspect.isfunction(value) and value.__module__ == hookspecs.__name__
)
PAGE = (ROOT / "docs/reference/hooks.md").read_text(encoding="utf-8")
TESTS = "\n".join(
    p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("*.py") if p.name != "test_hooks.py"
)


def test_there_are_hooks() -> None:
    assert {"register_verifiers", "register_properties", "register_estimators"} <= set(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_documented(name: str) -> None:
    """A docstring, and a section of its own with an example."""
    function = getattr(hookspecs, name)
    assert (function.__doc__ or "").strip()
    section = re.search(rf"^## `{name}\((.*?)\)`$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"docs/reference/hooks.md has no section `{name}(...)`"
    assert "```python" in section[2], f"the section of {name} has no example"
    parameters = list(inspect.signature(function).parameters)
    assert section[1].split(", ") == parameters, (
        f"docs/reference/hooks.md: {name} takes {', '.join(parameters)}"
    )


def test_nothing_else_is_documented() -> None:
    assert sorted(re.findall(r"^## `(\w+)\(", PAGE, re.MULTILINE)) == HOOKS


@pytest.mark.parametrize("name", HOOKS)
def test_tested(name: str) -> None:
    assert f"def test_{name}(" in TESTS, f"there is no test_{name}"


@pytest.mark.parametrize("name", [n for n in HOOKS if n.startswith("register_")])
def test_implemented(name: str) -> None:
    """A hook that no built-in uses would be a privilege of nobody and a burden of everybody."""
    assert getattr(current_plugins().manager.hook, name).get_hookimpls()


def test_the_surface_is_small() -> None:
    lines = (ROOT / "core/plugin/hookspecs.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 150
