"""An oracle with plugins of its own: here and in its workers nothing else is found."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from verifolio import (
    InputError,
    Member,
    Oracle,
    Portfolio,
    Series,
    UnknownPlugin,
    Verdict,
    hookimpl,
    single_verifier,
)
from verifolio.plugin.choice import Choice
from verifolio.plugin.manager import Plugins, current_plugins, plugins_at
from verifolio.testing import EXAMPLES, hostile_verifiers

LOCAL = "verifolio.plugins.local"
STRANGER = '''
from verifolio import Bounder, Outcome, Property, Verifier, hookimpl
from verifolio.plugin.manager import current_plugins

TOLD = []


class Guess(Bounder):
    name = "guess"

    def bound(self, problems, budget=None, known=None):
        return []


class Teller(Verifier):
    """Tells what it can see."""

    name = "teller"
    can_falsify = True

    def run(self, problem, context):
        seen = [*context.bounders, *(v.name for v in current_plugins().verifiers)]
        return Outcome.unknown(" ".join(seen))


class Nothing(Property):
    name = "nothing"

    def query(self, networks, reference): ...

    def satisfied(self, points): ...

    def loss(self, points): ...


@hookimpl
def register_verifiers(registry):
    registry.add(Teller)


@hookimpl
def register_bounders(registry):
    registry.add(Guess)


@hookimpl
def register_properties(registry):
    registry.add(Nothing)


@hookimpl
def query_answered(query, answer):
    TOLD.append(answer.reason)
'''


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module on Python's path that no entry point names."""
    name = f"stranger_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(name)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_everything_comes_from_the_set(stranger: ModuleType, executor: str, tmp_path: Path) -> None:
    query = next(e for e in EXAMPLES if e.name == "corner").query(tmp_path)
    plugins = Plugins(stranger, LOCAL)
    assert [p.name for p in plugins.properties] == ["nothing"]
    with Oracle(single_verifier("teller"), executor, timeout=60, plugins=plugins) as oracle:
        answer = oracle.ask(query)
    assert (answer.verdict, answer.reason) == (Verdict.UNKNOWN, "teller: guess teller")
    assert answer.reason in stranger.TOLD
    assert "teller" not in current_plugins().verifiers


def test_names_outside_the_set_are_unknown(stranger: ModuleType, tmp_path: Path) -> None:
    query = next(e for e in EXAMPLES if e.name == "corner").query(tmp_path)
    with (
        Oracle(single_verifier("pgd"), "inline", timeout=20, plugins=Plugins(stranger, LOCAL)) as oracle,
        pytest.raises(UnknownPlugin, match=r"no verifier named 'pgd'; installed: teller"),
    ):
        oracle.ask(query)
    with pytest.raises(UnknownPlugin, match="no executor named 'process'"):
        Oracle(single_verifier("teller"), plugins=Plugins(stranger))


def test_installed_plugins_and_more(stranger: ModuleType, tmp_path: Path) -> None:
    query = next(e for e in EXAMPLES if e.name == "corner").query(tmp_path)
    plugins = current_plugins().plus(stranger)
    assert plugins.addresses is not None
    assert {stranger.__name__, "verifolio.plugins.crown"} <= set(plugins.addresses)
    both = Portfolio(Series((Member(Choice("teller")), Member(Choice("pgd")))))
    with Oracle(both, timeout=60, plugins=plugins) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.SAT
    assert {"crown", "guess", "pgd", "teller"} <= set(answer.attempts[0].reason.split())


def test_what_workers_cannot_import_is_refused(stranger: ModuleType) -> None:
    class Here:
        @hookimpl
        def register_verifiers(self, registry: object) -> None: ...

    made = ModuleType("made_up")
    made.register_verifiers = stranger.register_verifiers  # type: ignore[attr-defined]
    twin = ModuleType(hostile_verifiers.__name__)
    twin.register_verifiers = stranger.register_verifiers  # type: ignore[attr-defined]
    main = sys.modules["__main__"]
    for thing, shown in (
        (Here(), "an object of "),
        (made, "the module made_up, which only this process has"),
        (twin, f"the module {hostile_verifiers.__name__}, which only this process has"),
    ):
        expected = (
            rf"plugin .*: expected a module that workers can import, got {shown}.*; write it into a file"
        )
        with pytest.raises(InputError, match=expected):
            Oracle(single_verifier("teller"), "inline", plugins=Plugins(LOCAL, thing))
    assert Plugins(main).addresses == ()  # it has no hooks, so that nobody misses it


def test_a_name_that_cannot_be_imported_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"plugin nobodys_module: expected a module .* got ModuleNotFoundError"
    ):
        Plugins("nobodys_module")


def test_workers_keep_their_sets() -> None:
    assert plugins_at((LOCAL,)) is plugins_at((LOCAL,))
    assert [e.name for e in plugins_at((LOCAL,)).executors] == ["process", "inline"]
