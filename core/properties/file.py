"""Properties by name, from a YAML file with a formula, or from a Python file with a class."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Any

from verifolio.errors import InputError
from verifolio.files.bounded import read_text
from verifolio.files.python_file import run_python_file
from verifolio.files.yaml_file import load_yaml
from verifolio.plugin.options import build_options
from verifolio.plugin.property import Property
from verifolio.properties.formula import Formula, FormulaProperty, parse_formula

MAX_BYTES = 100_000  # a hundred times the largest property file so far
KEYS = ("name", "about", "networks", "options", "holds")


def choose_property(spec: str, options: Mapping[str, object] | None = None) -> Property:
    """What `spec` means: a registered name, a `.yaml` file, `FILE.py` or `FILE.py:Class`."""
    path, _, member = spec.partition(":")
    if path.endswith((".yaml", ".yml")):
        cls = read_property(Path(path))
    elif path.endswith(".py"):
        cls = _from_python(Path(path), member)
    else:
        from verifolio.plugin.manager import current_plugins

        cls = current_plugins().properties.get(spec)
    return cls(build_options(cls.Options, dict(options or {}), f"property {cls.name}"))


def read_property(path: Path) -> type[Property]:
    """The property class that a YAML file describes."""
    found = load_yaml(read_text(path, "a property file", MAX_BYTES), str(path))
    if not isinstance(found, dict) or "holds" not in found:
        raise InputError(str(path), "a mapping with `holds: FORMULA`", type(found).__name__)
    for key in found:
        if key not in KEYS:
            raise InputError(str(path), f"one of {', '.join(KEYS)}", repr(key))
    return formula_property(path, found)


def formula_property(path: Path, found: Mapping[str, Any]) -> type[Property]:
    """A property class with typed options from what a file says."""
    text, given = str(found["holds"]), found.get("options") or {}
    if not isinstance(given, dict) or not all(isinstance(v, int | float) for v in given.values()):
        raise InputError(str(path), "numbers under `options`", repr(given))
    for name in given:
        if not str(name).isidentifier():
            raise InputError(str(path), "option names made of letters, digits and _", repr(name))
    count = found.get("networks", 1)
    if count not in (1, 2):
        raise InputError(str(path), "1 or 2 networks", repr(count))
    defaults = {str(k): float(v) for k, v in given.items()}
    parse_formula(text, defaults, str(path))  # errors appear now, not at the first input
    Options = make_dataclass("Options", [(k, float, v) for k, v in defaults.items()], frozen=True)

    class Described(FormulaProperty):
        name = str(found.get("name") or path.stem)
        networks = int(count)
        needs_outputs = "y0" in text
        source = hashlib.sha256(f"{text} {count}".encode()).hexdigest()

        def formula(self) -> Formula:
            values = {f.name: getattr(self.options, f.name) for f in fields(self.options)}
            return parse_formula(text, values, str(path))

    Described.Options = Options
    Described.__doc__ = str(found.get("about") or text)
    return Described


def _from_python(path: Path, member: str) -> type[Property]:
    """The (named or only) property class of a Python file, which the user asks to run."""
    module = run_python_file(path)
    classes = {
        n: c
        for n, c in vars(module).items()
        if inspect.isclass(c) and issubclass(c, Property) and c.__module__ == module.__name__
    }
    chosen = [classes[member]] if member in classes else list(classes.values())
    if len(chosen) != 1 or (member and member not in classes):
        got = ", ".join(classes) or "no property class"
        raise InputError(
            str(path), f"the class {member}" if member else "one property class", got, "FILE.py:Class"
        )
    if inspect.isabstract(chosen[0]) or not hasattr(chosen[0], "name"):
        raise InputError(
            f"{path}:{chosen[0].__name__}", "a name and all methods of a property", "some missing"
        )
    chosen[0].source = hashlib.sha256(path.read_bytes()).hexdigest()
    return chosen[0]
