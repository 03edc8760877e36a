"""What the command line offers to people: whole sentences, completion, the name that was meant, states of plugins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from verifolio.cli.app import build_app
from verifolio.cli.main import run

NETWORK = str(Path(__file__).resolve().parents[3] / "examples" / "networks" / "digits_dense.onnx")
AROUND = ["--data", "digits", "--indices", "0", "--epsilon", "0.01"]
COMMAND = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()"]


def leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """A command and those below it."""
    inner = getattr(command, "commands", {})
    return [(path, command), *(leaf for name, c in inner.items() for leaf in leaves(c, (*path, name)))]


EVERY = leaves(typer.main.get_command(build_app()))


@pytest.mark.parametrize("path", [p for p, c in EVERY if getattr(c, "commands", {})])
def test_lists_of_commands_are_not_cut(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    listed = capsys.readouterr().out.split("Commands:")[1].split("Exit codes")[0]
    lines = [line for line in listed.splitlines() if line.strip()]
    assert lines and all(re.fullmatch(r"  [a-z-]+ +[A-Z].*[^.]\.", line) for line in lines), listed


@pytest.mark.parametrize(("path", "command"), [(p, c) for p, c in EVERY if not getattr(c, "commands", {})])
def test_every_command_has_an_example(path: tuple[str, ...], command: Any) -> None:
    assert "Example:" in command.epilog and f"verifolio {path[0]}" in command.epilog


def completed(words: str) -> list[str]:
    """What a shell offers at the end of these words."""
    count = len(words.split(" ")) - 1
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(count), "_VERIFOLIO_COMPLETE": "complete_bash"}
    done = subprocess.run(COMMAND, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("verifolio ver", ["verify"]),
        ("verifolio ensemble ", ["attack", "select"]),
        ("verifolio verify a.onnx --verif", ["--verifier"]),
        ("verifolio verify a.onnx --verifier cr", ["crown"]),
        ("verifolio measure a.onnx --norm l", ["l1", "l2", "linf"]),
        ("verifolio verify a.onnx --data dig", ["digits"]),
    ],
)
def test_the_shell_completes(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


def test_the_script_for_a_shell_is_shown() -> None:
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # there is no shell here
    command = [*COMMAND, "--show-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "complete -o default" in done.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["verfy", "a", "b"], "verify"),
        (["ensemble", "slect"], "select"),
        (["verify", "a.onnx", "b.vnnlib", "--timout", "3"], "--timeout"),
        (["plugins", "show", "crwon"], "crown"),
        (["verify", NETWORK, *AROUND, "--verifier", "crwon", "--executor", "inline"], "crown"),
        (["verify", NETWORK, "--data", "digit", "--epsilon", "0.1"], "digits"),
        (
            ["measure", "a.onnx", "--data", "digits", "--epsilon", "0.1", "--property", "clasification"],
            "classification",
        ),
    ],
)
def test_the_name_that_was_meant(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert re.search(rf"[Dd]id you mean '?{meant}", capsys.readouterr().err)


def test_doctor_says_what_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    checks = {c["check"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert code == (0 if all(c["ok"] for c in checks.values()) else 3)
    assert checks["verifier crown"]["state"] == "ready"
    assert checks["data set csv"]["state"] == "not applicable"
    assert checks["verifier nnenum"]["state"] == ("ready" if "NNENUM_HOME" in os.environ else "not installed")
    assert {c["state"] for c in checks.values()} <= {
        "ok",
        "PROBLEM",
        "ready",
        "not installed",
        "not applicable",
    }
