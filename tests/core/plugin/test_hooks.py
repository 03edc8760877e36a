"""Plugins: found through entry points, loaded one by one, broken ones passed over and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifolio.errors import UnknownPlugin
from verifolio.plugin.hookspecs import hookimpl
from verifolio.plugin.manager import Plugins, installed_plugins
from verifolio.plugin.registry import Registry
from verifolio.plugin.verifier import Verifier
from verifolio.testing import hostile_verifiers


def install(folder: Path, name: str, source: str) -> None:
    """A stranger's distribution with one module."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[verifolio]\n{name} = {name}\n")
    (folder / f"{name}.py").write_text(source)


def test_a_broken_plugin_is_named_and_the_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "from verifolio.plugin.hookspecs import hookimpl\n@hookimpl\ndef register_verifiers(registry):\n"
    install(tmp_path, "stranger_import", "import a_module_that_nobody_has\n")
    install(tmp_path, "stranger_hook", head + "    raise KeyError('oops')\n")
    body = "    from verifolio.testing.hostile_verifiers import Noisy\n    registry.add(Noisy)\n"
    install(tmp_path, "stranger_good", head + body)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = installed_plugins.__wrapped__()  # not the ones that this process has already
    plugins.fill()
    assert set(plugins.broken) == {"stranger_import", "stranger_hook"}
    assert "a_module_that_nobody_has" in plugins.broken["stranger_import"]
    assert "oops" in plugins.broken["stranger_hook"]
    assert {"pgd", "hostile-noisy"} <= {c.name for c in plugins.verifiers}
    assert {p.name: p.distribution for p in plugins.entries}["stranger_good"] == "stranger_good"


def test_a_plugin_object_of_the_caller_may_fail_loudly() -> None:
    class Failing:
        @hookimpl
        def register_verifiers(self, registry: Registry[Verifier]) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Plugins(Failing()).fill()


def test_names_are_unique_and_unknown_ones_are_explained() -> None:
    registry = Plugins(hostile_verifiers).verifiers
    assert registry.get("hostile-corners") is hostile_verifiers.Corners
    with pytest.raises(UnknownPlugin, match="installed: "):
        registry.get("nobody")

    class Impostor(hostile_verifiers.Noisy):
        name = "hostile-corners"

    with pytest.raises(UnknownPlugin, match="already taken"):
        registry.add(Impostor)
