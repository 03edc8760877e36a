"""One dialect: an option means the same in every command of every installed plugin, and old names say the new one."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
import typer

from verifolio.cli.bundles import Bundle, Json, Running, RunningMany
from verifolio.cli.expand import add_command, expanded, split_docstring
from verifolio.cli.main import run
from verifolio.cli.reference import Entry, entries
from verifolio.cli.renamed import ALIVE, RENAMED, explain
from verifolio.errors import InputError
from verifolio.plugin.manager import KINDS, current_plugins
from verifolio.plugin.options import described

# Where one word differs between commands: what differs, and why.
EXCEPTIONS = {
    "--output": ({"default"}, "each command writes a file or folder of its own name"),
    "--timeout": (
        {"default"},
        "an input's --budget limits `critical` and `distribution`; fuzz asks tiny problems",
    ),
    "--epsilon": ({"default"}, "`distribution` and `critical` search for the radius, so none need be given"),
    "--pictures": (
        {"default", "kind", "help"},
        "`bench` draws into the folder of its run unless told; `verify` needs a folder's name",
    ),
    "--method": ({"default", "kind"}, "`ensemble attack` and `ensemble select` have different methods"),
}


def options(entry: Entry) -> list[Any]:
    return [p for p in entry.command.params if p.param_type_name == "option"]


def name_of(option: Any) -> str:
    return max((str(o) for o in option.opts), key=len)


def facts(entry: Entry, option: Any) -> dict[str, object]:
    """What must be the same everywhere; that an option is required is no default."""
    annotation = inspect.signature(entry.command.callback).parameters[option.name].annotation
    found: dict[str, object] = {"kind": (str(annotation), option.metavar), "help": option.help}
    return found if option.required else found | {"default": str(option.default)}


@pytest.fixture(scope="module")
def everyone() -> list[Entry]:
    return entries()


def test_all_commands_are_seen(everyone: list[Entry]) -> None:
    words = {e.words for e in everyone}
    assert {"verify", "bench", "ensemble select", "distribution run", "plugins", "plugins show"} <= words
    assert len(words) >= 24


def test_a_word_means_the_same_everywhere(everyone: list[Entry]) -> None:
    seen: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    allowed = {(name, aspect) for name, (aspects, _) in EXCEPTIONS.items() for aspect in aspects}
    for entry in everyone:
        for option in options(entry):
            for aspect, value in facts(entry, option).items():
                seen[name_of(option), aspect][repr(value)].append(entry.words)
    different = {key: dict(found) for key, found in seen.items() if len(found) > 1}
    assert different.keys() == allowed, different


def test_a_meaning_has_one_name(everyone: list[Entry]) -> None:
    names: dict[str, set[str]] = defaultdict(set)
    for entry in everyone:
        for option in options(entry):
            names[option.help].add(name_of(option))
    assert not {text: found for text, found in names.items() if len(found) > 1}
    known = {name for found in names.values() for name in found}
    assert not (known & RENAMED.keys()) - ALIVE
    assert {new for new, _ in RENAMED.values()} <= known | {"--no-pictures"}


def test_helps_are_sentences_and_teach_by_example(everyone: list[Entry]) -> None:
    for entry in everyone:
        text, example, _ = split_docstring(entry.function)
        assert text.splitlines()[0].endswith("."), entry.words
        assert example or entry.words == "plugins", entry.words
        assert all(str(p.help).endswith((".", "?")) for p in options(entry)), entry.words


def test_every_option_of_a_plugin_is_described() -> None:
    silent = []
    for kind in KINDS:
        for cls in getattr(current_plugins(), kind):
            chosen = getattr(cls, "Options", None)
            for field in fields(chosen) if kind != "estimators" and is_dataclass(chosen) else ():
                if not field.metadata.get("help"):
                    silent.append(f"{kind} {cls.name}: {field.name}")
    assert not silent


@pytest.mark.parametrize("old", RENAMED)
def test_old_names_say_the_new_one_in_every_command(old: str, everyone: list[Entry]) -> None:
    new = RENAMED[old][0]
    for entry in everyone:
        names = {str(name) for p in options(entry) for name in (*p.opts, *p.secondary_opts)}
        if old in names:
            continue
        with pytest.raises(typer.BadParameter.__mro__[1]) as caught:
            entry.command.main([old, "1"], prog_name="verifolio", standalone_mode=False)
        error: Any = caught.value
        explain(error)
        said = error.format_message()
        if new in names:
            assert said.startswith(f"{old} is now {new}"), (entry.words, said)
        else:
            assert old in said
            assert new in said or old in ALIVE, (entry.words, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["measure", "a.onnx", "--legal", "0,1"], "--legal is now --range"),
        (["ensemble", "select", "a.onnx", "--certified"], "--certified is now --proved-only"),
        (["ensemble", "attack", "a.onnx", "--budget", "3"], "--budget is now --total-budget"),
        (["distribution", "a.onnx", "--epsilons", "0.1"], "--epsilons is now --epsilon"),
        (["verify", "a.onnx", "b.vnnlib", "--timout", "3"], "Did you mean --timeout"),
        (["measure", "a.onnx", "--epsilon", "1", "--epsilon", "2"], "given more than once; write 0.1,0.2"),
        (["verfy", "a.onnx"], "Did you mean 'verify'"),
        (["vnnlib", "shwo"], "Did you mean 'show'"),
        (["measure", "a.onnx", "--data", "digits", "--epsilon", "0.1", "--norm", "inf"], "linf"),
        (["measure", "a.onnx", "--data", "digits", "--data", "mnist", "--epsilon", "1"], "one data set"),
        (["critical", "a.onnx", "--data", "digits", "--option", "k=2"], "--property-option"),
    ],
)
def test_wrong_words_are_bad_input(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verifolio.onnx_import.network.Network.load", lambda path: path)
    assert run([*arguments, *(["--executor", "inline"] if "--option" in arguments else [])]) == 2
    assert said in " ".join(capfd.readouterr().err.split())


def test_bundles_become_options_and_back() -> None:
    got: list[Any] = []

    @dataclass(frozen=True, kw_only=True)
    class Own(Bundle):
        """A bundle of a command."""

        many: tuple[str, ...] = described((), "Several words.")
        fast: bool = described(True, "Go fast.", off=True)

    def command(running: RunningMany, own: Own, written: Json) -> None:
        """Do it."""
        got.extend((running, own, written))

    command.__annotations__ = {"running": RunningMany, "own": Own, "written": Json}
    app = typer.Typer()
    add_command(app, "do", command)
    words = ["--many", "a", "--many", "b", "--no-fast", "--jobs", "3", "--option", "x=1", "--json"]
    typer.main.get_command(app).main(words, standalone_mode=False)
    assert got == [RunningMany(jobs=3, option=("x=1",)), Own(many=("a", "b"), fast=False), Json(json=True)]
    assert next(iter(inspect.signature(expanded(command)).parameters)) == "verifier"


def test_python_has_the_same_names() -> None:
    running = Running(verifier="pgd", executor="ray", address="head:1")
    assert running.place == "ray@head:1"
    assert Running().place == "process"


def test_one_parser_reads_radii() -> None:
    from verifolio.cli.parse import parse_epsilon, parse_epsilons

    assert parse_epsilon("0.25") == 0.25
    assert parse_epsilons("0.1,0.2") == (0.1, 0.2)
    assert parse_epsilons("1/255, 8/255") == (1 / 255, 8 / 255)
    assert parse_epsilons("0.1:0.3:0.1") == (0.1, 0.2, 0.3)
    for wrong in ("", "-1", "nan", "inf", "0.2,0.1", "a", "1:2", "0.1:0.2:0", "1e9999"):
        with pytest.raises(InputError, match="--epsilon"):
            parse_epsilons(wrong)
    with pytest.raises(InputError, match="one radius"):
        parse_epsilon("0.1,0.2")
