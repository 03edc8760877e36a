"""docs/build_reference.py: what it writes of signatures, members and docstrings, and that it notices a stale page."""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "docs/build_reference.py"


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_reference", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def never() -> bool:
    return False


class Colour(enum.StrEnum):
    """Two colours."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Thing:
    """A thing. It has two sentences.

    And a second paragraph with a | in it.
    """

    limit: ClassVar[int] = 3
    name: str
    stop: Callable[[], bool] = never
    tags: list[str] = field(default_factory=list)

    @property
    def short(self) -> str:
        """Its first letter."""
        return self.name[:1]

    @cached_property
    def long(self) -> str:
        return self.name * 2

    @classmethod
    def make(cls, *names: str, colour: Colour = Colour.RED, **more: object) -> Thing:
        """A thing of many names.

        Of all of them.
        """
        return cls("".join(names))

    def find(self, where: str | None = None, *, deep: bool = False) -> None:
        """Find it."""


Thing.__module__ = "verifolio.thing"  # members count where their class is ours


def test_signatures(builder: ModuleType) -> None:
    assert (
        builder.signature_of("find", Thing.find, skip_first=True)
        == "find(where: str | None = None, *, deep: bool = False)"
    )
    wide = builder.signature_of("Thing", Thing, width=20)
    assert (
        wide == "Thing(\n    name: str,\n    stop: Callable[[], bool] = ...,\n    tags: list[str] = ...,\n)"
    )


def test_members(builder: ModuleType) -> None:
    """Properties and methods with their docstrings; fields are in the signature already."""
    assert dict(builder.members_of(Thing)) == {
        "short: str": "Its first letter.",
        "long: str": "",
        "Thing.make(*names: str, colour: Colour = Colour.RED, **more: object) -> Thing": (
            "A thing of many names.\n\nOf all of them."
        ),
        "find(where: str | None = None, *, deep: bool = False)": "Find it.",
    }
    assert builder.attributes_of(Thing) == ["limit: int = 3"]


def test_texts(builder: ModuleType) -> None:
    assert builder.first_sentence(builder.text_of(Thing)) == "A thing."
    assert builder.first_sentence("all | of it") == "all \\| of it"
    assert builder.bullet("f()", "One\nline.\n\nMore.") == "- `f()`: One line.\n\n    More.\n"
    assert "Values: `RED` (`red`), `BLUE` (`blue`)." in builder.section("Colour", Colour)

    @dataclass
    class Silent:
        x: int

    assert builder.text_of(Silent) == ""  # what dataclass writes is no docstring


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Thing, "data class"),
        (Colour, "enumeration"),
        (never, "function"),
        (ValueError, "error"),
        (3, "value"),
    ],
)
def test_kinds(builder: ModuleType, value: object, kind: str) -> None:
    assert builder.kind_of(value) == kind
    assert kind in builder.KINDS


def test_a_stale_page_is_noticed_and_mended(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "api.md"
    monkeypatch.setattr(builder, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["build_reference.py", "--check"])
    assert builder.main() == 1
    assert "make reference" in capsys.readouterr().err and not page.exists()
    monkeypatch.setattr("sys.argv", ["build_reference.py"])
    assert builder.main() == 0 and page.is_file()
    monkeypatch.setattr("sys.argv", ["build_reference.py", "--check"])
    assert builder.main() == 0
