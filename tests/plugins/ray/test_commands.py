"""Every command takes a cluster in the same way, and says so where there is none."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import typer

from verifolio.cli import doctor
from verifolio.cli.app import build_app
from verifolio.cli.bundles import Place
from verifolio.cli.main import run
from verifolio.plugin.manager import current_plugins


def leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """A command and those below it; a group may be a command of its own."""
    inner = getattr(command, "commands", {})
    return [(path, command), *(leaf for name, c in inner.items() for leaf in leaves(c, (*path, name)))]


def test_every_command_with_an_executor_takes_an_address() -> None:
    found = {" ".join(p): {o.name for o in c.params} for p, c in leaves(typer.main.get_command(build_app()))}
    with_executor = {name for name, options in found.items() if "executor" in options}
    assert {"verify", "bench", "critical", "measure", "train"} <= with_executor
    assert [n for n in with_executor if "address" not in found[n]] == []


def test_an_address_belongs_to_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert (Place(executor="ray", address="head:6379").place, Place().place) == ("ray@head:6379", "process")
    assert run(["verify", "n.onnx", "p.vnnlib", "--address", "head:6379"]) == 2
    assert "executor process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "words"), [("127.0.0.1:1", "ray start --head"), ("ray://127.0.0.1:10001", "HOST:PORT")]
)
def test_a_cluster_that_is_not_there(address: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    if (missing := make_missing()) is not None:
        pytest.skip(missing)
    assert run(["verify", "n.onnx", "p.vnnlib", "--executor", "ray", "--address", address]) == 2
    assert words in capsys.readouterr().err


def make_missing() -> str | None:
    from verifolio.plugins.ray.executor import RayExecutor

    return RayExecutor.available()


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if the package were not installed, which is what an entry of None means to Python."""
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["plugins"]) == 0
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("executor\tray")]
    assert "pip install 'verifolio[ray]'" in line
    (state,) = [(word, detail) for name, word, detail in doctor._plugins() if name == "executor ray"]
    assert state == ("not installed", "the package ray is not installed; pip install 'verifolio[ray]'")


def test_a_device_is_told_to_executors_that_ask() -> None:
    plugins = current_plugins()
    if make_missing() is None:
        assert plugins.make_executor("ray", 1, "cuda:0").options.device == "cuda:0"
    with plugins.make_executor("process", 1, "cuda:0") as executor:
        assert not hasattr(executor.options, "device")
