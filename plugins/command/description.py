"""What a YAML file says about an external tool: where it is, how to call it, how to read what it answers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from verifolio.errors import InputError
from verifolio.files.bounded import read_text
from verifolio.files.yaml_file import load_yaml
from verifolio.trust.audit import Trust

VARIABLE = "VERIFOLIO_TOOLS"
MAX_BYTES = 100_000  # a description is a page of YAML
KEYS = (
    *("name", "path", "command", "scripts", "environment", "answer", "verdicts", "refuses", "max_inputs"),
    *("unsat", "audit_seconds", "grace", "about", "prepare"),
)
# A whole line must match, in any case. `unknown` is there so that a tool that takes a verdict back is noticed.
VERDICTS = {
    "unsat": r"unsat|holds|verified",
    "sat": r"sat|violated|falsified",
    "timeout": r"timeout|timed-out",
    "unknown": r"unknown|error",
}


@dataclass(frozen=True)
class Description:
    """An external tool.

    `command` is a list of arguments in which {onnx}, {vnnlib}, {results}, {timeout}, {folder}, {path} and
    {cores} stand for values; `scripts` instead names a folder with VNN-COMP's run_instance.sh. Its
    prepare_instance.sh runs only where `prepare` says so: many of them kill every Python there is. `answer` is
    where the verdict stands: `results`, the first line of that file, or `output`, a line of its own there. A
    verdict is a line that one of the regular expressions matches as a whole. With `unsat: untrusted` a claimed
    proof is only reported.
    """

    name: str
    path: str = ""
    command: tuple[str, ...] = ()
    scripts: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    answer: str = "results"
    verdicts: Mapping[str, str] = field(default_factory=lambda: dict(VERDICTS))
    refuses: tuple[str, ...] = ()
    max_inputs: int = 0
    unsat: Trust = "untrusted"
    audit_seconds: float = 1.0
    grace: float = 2.0
    about: str = ""
    prepare: bool = False

    def program(self) -> Path:
        """The file that must be there and executable."""
        if self.scripts:
            return self.expanded(self.scripts) / "run_instance.sh"
        return self.expanded(self.command[0])

    def expanded(self, text: str) -> Path:
        """A path with {path}, ~ and environment variables replaced."""
        root = os.path.expandvars(self.path)
        return Path(os.path.expandvars(text.replace("{path}", root))).expanduser()

    def missing(self) -> str | None:
        """Why the tool cannot be used here, or None."""
        unset = re.findall(r"\$\{?(\w+)", os.path.expandvars(self.path))
        if unset:
            return f"set {unset[0]} to the folder of {self.name}"
        program = self.program()
        if not program.is_file():
            return f"{program} does not exist"
        return None if os.access(program, os.X_OK) else f"{program} is not executable"


def described() -> list[Description]:
    """The tools that come described, and those of the folders and files in $VERIFOLIO_TOOLS.

    A file of the user's may describe a tool of the same name anew.
    """
    shipped = resources.files("verifolio.plugins.command.tools")
    files = [Path(str(f)) for f in shipped.iterdir() if f.name.endswith(".yaml")]
    for place in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        path = Path(place)
        files += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    found = {d.name: d for d in map(read_description, files)}
    return list(found.values())


def read_description(path: Path) -> Description:
    """The tool a file describes; errors name the file and the key."""
    text = read_text(path, "the description of a tool (YAML)", MAX_BYTES)
    return parse_description(load_yaml(text, str(path)), str(path))


def parse_description(data: Any, where: str) -> Description:
    """A description from plain values, every one of them checked."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise InputError(where, "a mapping with `name`", type(data).__name__)
    strangers = [str(k) for k in data if k not in KEYS]
    if strangers:
        raise InputError(where, f"keys of {', '.join(KEYS)}", ", ".join(strangers))
    if bool(data.get("command")) == bool(data.get("scripts")):
        raise InputError(where, "either `command` or `scripts`", "both or neither")
    checked = {k: _checked(k, v, f"{where}: {k}") for k, v in data.items()}
    return Description(**checked)


def _checked(key: str, value: Any, where: str) -> Any:
    if key in ("command", "refuses"):
        if not isinstance(value, list) or not all(isinstance(v, str | int | float) for v in value):
            raise InputError(where, "a list of texts", repr(value))
        return tuple(str(v) for v in value)
    if key in ("environment", "verdicts"):
        if not isinstance(value, dict):
            raise InputError(where, "a mapping of texts", repr(value))
        if key == "verdicts":
            return VERDICTS | _patterns(value, where)
        return {str(k): str(v) for k, v in value.items()}
    if key in ("max_inputs", "audit_seconds", "grace"):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise InputError(where, "a number", repr(value))
        return int(value) if key == "max_inputs" else float(value)
    if key == "prepare":
        if not isinstance(value, bool):
            raise InputError(where, "true or false", repr(value))
        return value
    choices = {"answer": ("results", "output"), "unsat": ("trusted", "untrusted")}
    if key in choices and value not in choices[key]:
        raise InputError(where, " or ".join(choices[key]), repr(value))
    return str(value)


def _patterns(value: Mapping[Any, Any], where: str) -> dict[str, str]:
    for verdict, pattern in value.items():
        if verdict not in VERDICTS:
            raise InputError(where, f"verdicts of {', '.join(VERDICTS)}", repr(verdict))
        try:
            re.compile(str(pattern))
        except re.error as error:
            raise InputError(where, "a regular expression", f"{pattern!r}: {error}") from None
    return {str(k): str(v) for k, v in value.items()}
