"""Writes docs/reference/api.md, the names that `verifolio` exports, from their signatures and docstrings.

    python docs/build_reference.py [--check]

`make reference` runs every docs/build_*.py. With --check nothing is written; exit code 1 says that the page is stale.
"""

from __future__ import annotations

import argparse
import enum
import inspect
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pluggy import HookimplMarker

import verifolio

PAGE = Path(__file__).resolve().parent / "reference" / "api.md"
HEAD = """# Python interface

These are the names that `verifolio` exports, in alphabetical order. They are public in the sense of
[the stability policy](stability.md). The page is generated from signatures and docstrings by `make reference`.
"""
WIDTH = 100  # longer signatures have a line for each parameter
MARKER = "Marks a function as the implementation of a [hook](hooks.md)."
# in the order of the index: what is called, what is made, what is subclassed, the rest
KINDS = ("function", "class", "data class", "abstract class", "enumeration", "decorator", "value", "error")


def exported(name: str) -> Any:
    """What `verifolio` exports under a name; a function that caches its results is the function."""
    return inspect.unwrap(getattr(verifolio, name))


def kind_of(value: object) -> str:
    """One of KINDS."""
    if isinstance(value, HookimplMarker):
        return "decorator"
    if not isinstance(value, type):
        return "function" if inspect.isfunction(value) else "value"
    if issubclass(value, BaseException):
        return "error"
    if issubclass(value, enum.Enum):
        return "enumeration"
    if inspect.isabstract(value):
        return "abstract class"
    return "data class" if is_dataclass(value) else "class"


def text_of(value: object) -> str:
    """A docstring without its indentation; what `dataclass` writes where there is none does not count."""
    if isinstance(value, HookimplMarker):
        return MARKER
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    name = getattr(value, "__name__", "")
    return "" if isinstance(value, type) and text.startswith(f"{name}(") else text


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, on one line, safe in a cell of a table."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0].replace("|", "\\|")


def annotation_of(value: object) -> str:
    if isinstance(value, str):
        return value
    return value.__name__ if isinstance(value, type) else str(value)


def default_of(value: object) -> str:
    """A default as a reader would write it; whatever has no short form is an ellipsis."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    text = repr(value)
    return "..." if text.startswith("<") else text


def parameters_of(signature: inspect.Signature, skip_first: bool) -> list[str]:
    """Each parameter as it is written, and the star before those that are given by name only."""
    words, starred = [], False
    for parameter in list(signature.parameters.values())[int(skip_first) :]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        words.append(parameter_text(parameter))
    return words


def signature_of(name: str, value: Any, skip_first: bool = False, width: float = math.inf) -> str:
    """A call as it is written, the same under every version of Python; longer than `width`, it has several lines."""
    signature = inspect.signature(value)
    words = parameters_of(signature, skip_first)
    result = signature.return_annotation
    returns = "" if result in (signature.empty, None, "None") else f" -> {annotation_of(result)}"
    line = f"{name}({', '.join(words)}){returns}"
    lines = "".join(f"    {word},\n" for word in words)
    return line if len(line) <= width else f"{name}(\n{lines}){returns}"


def parameter_text(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    typed = parameter.annotation is not parameter.empty
    if typed:
        text += f": {annotation_of(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f"{' = ' if typed else '='}{default_of(parameter.default)}"
    return text


def members_of(cls: type) -> Iterator[tuple[str, str]]:
    """How each public member is written, and its docstring: attributes, properties and methods of our own classes."""
    ours = [base for base in cls.__mro__ if base.__module__.split(".")[0] == "verifolio"]
    seen: set[str] = set()
    for base in ours:
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen or name in getattr(cls, "__dataclass_fields__", {}):
                continue
            seen.add(name)
            line = member_line(cls, name, value)
            if line:
                yield line, inspect.cleandoc(value.__doc__ or "")


def member_line(cls: type, name: str, value: object) -> str:
    """`name(parameters) -> result`, `name: type`, or nothing for what is no member of its own."""
    getter = value.func if isinstance(value, cached_property) else getattr(value, "fget", None)
    if getter is not None:
        return f"{name}: {annotation_of(inspect.signature(getter).return_annotation)}"
    if isinstance(value, classmethod | staticmethod):
        return signature_of(f"{cls.__name__}.{name}", value.__func__, isinstance(value, classmethod))
    if inspect.isfunction(value):
        return signature_of(name, value, skip_first=True)
    return ""


def attributes_of(cls: type) -> list[str]:
    """Class attributes that subclasses set: annotated as ClassVar."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        for name, annotation in inspect.get_annotations(base).items():
            inner = re.fullmatch(r"ClassVar\[(.*)\]", annotation_of(annotation), re.DOTALL)
            if inner and not name.startswith("_"):
                default = f" = {default_of(vars(base)[name])}" if name in vars(base) else ""
                found.setdefault(name, f"{name}: {inner[1]}{default}")
    return list(found.values())


def fenced(code: str) -> str:
    return f"```text\n{code}\n```"


def bullet(code: str, text: str) -> str:
    """An item of a list; paragraphs after the first are indented as MkDocs wants them."""
    first, *more = text.split("\n\n")
    item = f"- `{code}`" + (f": {' '.join(first.split())}" if first else "")
    rest = [f"    {' '.join(part.split())}" for part in more]
    return "\n\n".join([item, *rest]) + ("\n" if rest else "")


def class_lines(name: str, cls: type) -> Iterator[str]:
    """What a class is called with, says, has and does."""
    if issubclass(cls, enum.Enum):
        yield text_of(cls)
        yield "Values: " + ", ".join(f"`{member.name}` (`{member.value}`)" for member in cls) + "."
    else:
        if inspect.isfunction(
            cls.__init__
        ):  # an error without one of its own takes a message, as all errors do
            yield fenced(signature_of(name, cls, width=WIDTH))
        yield text_of(cls)
    attributes = attributes_of(cls)
    if attributes:
        yield "Class attributes: " + ", ".join(f"`{a}`" for a in attributes) + "."
    members = [bullet(code, text) for code, text in members_of(cls)]
    if members:
        yield "\n".join(members)


def section(name: str, value: Any) -> str:
    """Everything about one name."""
    parts = [f"## {name}", f"*{kind_of(value)}*"]
    if isinstance(value, type):
        parts += class_lines(name, value)
    elif inspect.isfunction(value):
        parts += [fenced(signature_of(name, value, width=WIDTH)), text_of(value)]
    else:
        parts.append(text_of(value))
    return "\n\n".join(part for part in parts if part)


def index(names: list[str]) -> str:
    """One line per name, by kind."""
    ordered = sorted(names, key=lambda n: (KINDS.index(kind_of(exported(n))), n.lower()))
    rows = ["| name | kind | what |", "|---|---|---|"]
    for name in ordered:
        value = exported(name)
        rows.append(f"| [{name}](#{name.lower()}) | {kind_of(value)} | {first_sentence(text_of(value))} |")
    return "\n".join(rows)


def page() -> str:
    """The whole of docs/reference/api.md."""
    names = sorted(verifolio.__all__, key=str.lower)
    sections = [section(name, exported(name)) for name in names]
    return "\n\n".join([HEAD.rstrip(), index(names), *sections]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the page is stale"
    )
    check: bool = parser.parse_args().check
    text = page()
    fresh = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
    if check and not fresh:
        sys.stderr.write(
            f"{PAGE.name}: expected what the code says now, got an older page; run `make reference`\n"
        )
    if not check and not fresh:
        PAGE.write_text(text, encoding="utf-8")
    return int(check and not fresh)


if __name__ == "__main__":
    raise SystemExit(main())
