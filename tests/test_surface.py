"""The public surface: complete for its own types, typed, under one exception root, and the same from every side."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import verifolio
from verifolio import graph, testing, vnnlib
from verifolio.errors import VerifolioError

ROOT = Path(__file__).resolve().parent.parent
EXPORTED = {name: getattr(verifolio, name) for name in verifolio.__all__}
PUBLIC = {id(v) for v in EXPORTED.values()} | {
    id(getattr(m, n)) for m in (graph, vnnlib, testing) for n in m.__all__
}
# Errors that no user meets: each is caught by whoever it is raised for.
INTERNAL = {
    *("Lost", "Malformed", "Refused", "CannotWrite", "Undefined", "ReadError", "_Leave"),
    "OutOfRange",  # a search that cannot represent its numbers says so in its answer
    *("JobError", "PoolError", "SendError"),  # what programs do wrong with jobs, in Python's own kinds
}


def namespace(module: str) -> dict[str, object]:
    """What the names in a module's annotations mean, those that are only imported for type checkers included."""
    found = dict(vars(sys.modules[module]))
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8"))
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    for node in [n for block in blocks for n in block.body]:
        if isinstance(node, ast.ImportFrom):
            there = importlib.import_module(node.module or "")
            for alias in node.names:
                here = f"{node.module}.{alias.name}"
                value = getattr(there, alias.name, None) or importlib.import_module(here)
                found[alias.asname or alias.name] = value
        elif isinstance(node, ast.Import):
            found |= {a.asname or a.name: importlib.import_module(a.name) for a in node.names}
    return found


def functions(cls: type) -> Iterator[Any]:
    """The public methods and properties that a class defines."""
    for name, member in vars(cls).items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, staticmethod | classmethod):
            yield member.__func__
        elif isinstance(member, property):
            yield member.fget
        elif hasattr(member, "func") and inspect.isfunction(member.func):  # cached_property
            yield member.func
        elif inspect.isfunction(member) and member.__module__.startswith("verifolio"):
            yield member


def mentioned(kind: Any) -> Iterator[type]:
    """Every class in an annotation."""
    if inspect.isclass(kind) and not isinstance(kind, types.GenericAlias):
        yield kind
    origin = typing.get_origin(kind)
    if inspect.isclass(origin):
        yield origin
    for argument in get_args(kind):
        for part in argument if isinstance(argument, list) else [argument]:
            yield from mentioned(part)


def own_hints(thing: Any) -> dict[str, Any]:
    """The annotations of a function, or of a class without its bases."""
    if inspect.isclass(thing):
        own = type("Own", (), {"__annotations__": vars(thing).get("__annotations__", {})})
        return get_type_hints(own, namespace(thing.__module__))
    return get_type_hints(thing, namespace(thing.__module__))


def test_every_type_in_a_signature_is_exported() -> None:
    """Who can be handed something of ours, or has to give it, can name its type."""
    missing = set()
    for name, thing in EXPORTED.items():
        inspected = [thing, *functions(thing)] if inspect.isclass(thing) else [thing]
        for one in inspected:
            if not (inspect.isclass(one) or inspect.isfunction(one)):
                continue
            for where, kind in own_hints(one).items():
                for cls in mentioned(kind):
                    if (
                        cls.__module__.split(".")[0] == "verifolio"
                        and id(cls) not in PUBLIC
                        and where[0] != "_"
                    ):
                        missing.add(f"{name}.{getattr(one, '__name__', one)}: {where}: {cls.__name__}")
    assert not missing, "\n".join(sorted(missing))


def test_everything_exported_is_typed() -> None:
    untyped = []
    for name, thing in EXPORTED.items():
        for one in functions(thing) if inspect.isclass(thing) else [thing]:
            if inspect.isfunction(one):
                parameters = [
                    p for p in inspect.signature(one).parameters.values() if p.name not in ("self", "cls")
                ]
                if any(p.annotation is p.empty for p in parameters) or "return" not in one.__annotations__:
                    untyped.append(f"{name}.{one.__name__}")
    assert not untyped


def test_everything_exported_is_described() -> None:
    assert not [n for n, t in EXPORTED.items() if n != "hookimpl" and not (inspect.getdoc(t) or "").strip()]
    assert "private" in (verifolio.__doc__ or "")


def test_the_list_is_what_there_is() -> None:
    assert verifolio.__all__ == sorted(verifolio.__all__)
    assert set(verifolio.__all__) <= set(dir(verifolio))
    assert not hasattr(verifolio, "no_such_name")


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "core/__init__.py").read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    imported = {a.name for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert imported == set(verifolio.__all__)


def test_one_root_for_all_errors() -> None:
    """Whatever a user can cause is a VerifolioError."""
    found = []
    for folder in ("core", "plugins", "vnnlib"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name not in INTERNAL:
                    bases = {b.id for b in node.bases if isinstance(b, ast.Name)}
                    builtin = {
                        b for b in bases if b.endswith(("Error", "Exception")) and hasattr(__builtins__, b)
                    }
                    builtin |= bases & {"Exception", "ValueError", "TypeError", "RuntimeError", "OSError"}
                    if builtin and node.name != "VerifolioError" and "VerifolioError" not in bases:
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}")
    assert not found
    assert issubclass(vnnlib.VnnlibError, VerifolioError)


def test_version() -> None:
    assert verifolio.__version__ == metadata.version("verifolio")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_python_m(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "verifolio", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (verifolio.__version__ if arguments == ["--version"] else "Usage: verifolio") in done.stdout
