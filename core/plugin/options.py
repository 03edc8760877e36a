"""Typed options from text: every option class is a frozen dataclass, every value is checked against it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from verifolio.errors import InputError

Options = TypeVar("Options")
T = TypeVar("T")
REQUIRED: Any = MISSING
_WORDS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


@dataclass(frozen=True)
class NoOptions:
    """For whatever has nothing to set."""


def described(default: T, text: str, **more: object) -> T:
    """A field of an options class with what it means, in a sentence; `REQUIRED` leaves the default out."""
    made: Any = field(default=default, metadata={"help": text, **more})
    return made  # type: ignore[no-any-return]


def build_options(cls: type[Options], given: Mapping[str, object], where: str) -> Options:
    """An instance of `cls` with the given values; unknown names and wrong types are errors at `where`."""
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls) if f.init}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for name, value in given.items():
        key = name.replace("-", "_")
        if key not in known:
            offered = ", ".join(sorted(known)) or "none at all"
            raise InputError(
                where, f"one of the options {offered}", name, "see `verifolio plugins show NAME`"
            )
        values[key] = convert(value, hints[key], f"{where}: option {name}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise InputError(where, "valid options", str(error)) from None


def convert(value: object, kind: Any, where: str) -> object:
    """`value` (text, or what YAML made of it) as the annotated type `kind`."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(kind), where)
    if origin is Literal:
        return _choice(value, {str(a): a for a in get_args(kind)}, where)
    if origin in (tuple, list):
        return _convert_items(value, kind, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice(value, {str(a.value): a for a in kind}, where)
    if kind is bool:
        return _convert_bool(value, where)
    if kind in (int, float):
        return _convert_number(value, kind, where)
    if kind is str and not isinstance(value, (list, dict)):
        return str(value)
    if kind is Any or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    raise InputError(where, getattr(kind, "__name__", str(kind)), repr(value))


def _convert_union(value: object, kinds: tuple[Any, ...], where: str) -> object:
    if type(None) in kinds and (value is None or str(value).lower() in ("none", "null")):
        return None
    problem: InputError | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return convert(value, kind, where)
        except InputError as error:
            problem = problem or error
    raise problem or InputError(where, "none", repr(value))


def _convert_bool(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    word = _WORDS.get(str(value).lower())
    if word is None:
        raise InputError(where, "true or false", repr(value))
    return word


def _convert_number(value: object, kind: type[int] | type[float], where: str) -> float | int:
    if isinstance(value, bool):
        raise InputError(where, "a whole number" if kind is int else "a number", repr(value))
    try:
        return kind(str(value))
    except (TypeError, ValueError):
        raise InputError(where, "a whole number" if kind is int else "a number", repr(value)) from None


def _convert_items(value: object, kind: Any, where: str) -> object:
    items = list(value) if isinstance(value, (list, tuple)) else [v for v in str(value).split(",") if v]
    arguments = get_args(kind) or (str,)
    origin = get_origin(kind)
    if origin is tuple and len(arguments) > 1 and arguments[1] is not Ellipsis:
        if len(items) != len(arguments):
            raise InputError(where, f"{len(arguments)} values", str(len(items)))
        return tuple(convert(v, a, where) for v, a in zip(items, arguments, strict=True))
    converted = [convert(v, arguments[0], where) for v in items]
    return tuple(converted) if origin is tuple else converted


def _choice(value: object, choices: Mapping[str, object], where: str) -> object:
    if str(value) not in choices:
        raise InputError(where, f"one of {', '.join(choices)}", repr(value))
    return choices[str(value)]


@dataclass(frozen=True)
class Described:
    """One option for people: what it is called, what it takes, what it is without being told, what it means."""

    name: str
    kind: str
    default: str
    text: str


def describe_options(cls: type) -> list[Described]:
    """Every option of a class."""
    hints = get_type_hints(cls)
    return [
        Described(f.name, _type_text(hints[f.name]), _default_text(f), str(f.metadata.get("help", "")))
        for f in fields(cls)
        if f.init
    ]


def _type_text(kind: Any) -> str:
    """A type for people: the choices of a Literal, the name of a class."""
    if get_origin(kind) is Literal:
        return " | ".join(str(choice) for choice in get_args(kind))
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)


def _default_text(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return '""' if field.default == "" else str(field.default)
    return str(field.default_factory()) if field.default_factory is not MISSING else "required"


def split_pairs(pairs: list[str] | tuple[str, ...], where: str = "--option") -> dict[str, object]:
    """`["steps=40", ...]` as a mapping."""
    given: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(where, "key=value", pair)
        given[name.strip()] = value.strip()
    return given
