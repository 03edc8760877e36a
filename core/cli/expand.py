"""From bundles to options: the one place where a command's bundles become Typer's parameters."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from verifolio.cli.bundles import Bundle
from verifolio.cli.codes import EPILOG
from verifolio.storage.invocation import invoked

METAVARS: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT"}
ONCE = frozenset({"epsilon"})  # takes a list: a second value means more radii, and would replace the first
NAMES = {  # options that name plugins, and of which kind: the shell completes these
    "verifier": "verifiers",
    "attack": "verifiers",
    "executor": "executors",
    "property": "properties",
    "search": "estimators",
    "data": "datasets",
}
MARK = re.compile(r"^Example(?: \(not run: (.+)\))?:$", re.MULTILINE)


class Command(TyperCommand):
    """A command whose options stand under the headings of their bundles."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses a second --epsilon; of other options the last one wins, as usual."""
        given: list[Any] = self.make_parser(ctx).parse_args(args=list(args))[2]
        for param in given:
            if param.name in ONCE and given.count(param) > 1:
                raise typer.BadParameter("given more than once; write 0.1,0.2", ctx=ctx, param=param)
        return list(super().parse_args(ctx, args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if param.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(param, "rich_help_panel", None) or kind, []).append(record)
        last = sections.pop("Options", None)  # --help itself, and what is in no bundle
        for title, records in [*sections.items(), *([("Options", last)] if last else [])]:
            with formatter.section(title):
                formatter.write_dl(records)


def add_command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Register a command: its bundles become options, its docstring the help, its example the epilog."""
    text, example, _ = split_docstring(function)
    shown = "\n".join(f"  {line}" for line in example.splitlines())
    epilog = f"\b\nExample:\n{shown}\n\n{EPILOG}" if example else EPILOG
    app.command(name, cls=Command, help=text, epilog=epilog)(expanded(function))


def make_group(text: str, **more: Any) -> typer.Typer:
    """A group of commands; without a command it prints its help."""
    group = typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None, **more)
    group.callback()(lambda: None)  # without one, a group of one command would be that command
    return group


def split_docstring(function: Callable[..., Any]) -> tuple[str, str, str]:
    """What a command does, its example, and why the example is not run with the tests (nothing: it is)."""
    text = inspect.getdoc(function) or ""
    found = MARK.search(text)
    if found is None:
        return text, "", ""
    return text[: found.start()].strip(), inspect.cleandoc(text[found.end() :]).strip(), found[1] or ""


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """A function with one parameter per option, which makes the bundles and calls `function` with them."""
    hints = get_type_hints(function, include_extras=True)
    bundles: dict[str, type[Bundle]] = {}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, Bundle):
            bundles[name] = kind
            parameters += bundle_parameters(kind)
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    def command(**given: Any) -> None:
        options = dict(given)
        made = {name: make_bundle(cls, given) for name, cls in bundles.items()}
        with invoked(function.__name__, options):
            function(**given, **made)

    command.__name__, command.__module__ = function.__name__, function.__module__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.command = function  # type: ignore[attr-defined]
    return command


def make_bundle(cls: type[Bundle], given: dict[str, Any]) -> Bundle:
    """The bundle of what was given, which is taken out of `given`."""
    values = {f.name: given.pop(f.name) for f in fields(cls)}
    return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def bundle_parameters(cls: type[Bundle]) -> list[inspect.Parameter]:
    """One parameter per field."""
    hints = get_type_hints(cls)
    return [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_option(cls, f, hints[f.name]),
            annotation=_plain(hints[f.name]),
        )
        for f in fields(cls)
    ]


def _option(cls: type[Bundle], field: Field[Any], kind: Any) -> Any:
    word = f"--{field.name.replace('_', '-')}"
    more = dict(field.metadata)
    more.setdefault("metavar", "|".join(_choices(kind)) or METAVARS.get(kind))
    declared = [f"{word}/--no-{word[2:]}" if more.pop("off", False) else word]
    declared += [more.pop("short")] if "short" in more else []
    if field.name in NAMES:
        more["autocompletion"] = _completer(NAMES[field.name])
    default = ... if field.default is MISSING else field.default
    if isinstance(default, tuple):
        default = list(default)
    shown = default not in ("", None, []) and not isinstance(default, bool)
    return typer.Option(
        default, *declared, rich_help_panel=_panel(cls, field.name), show_default=shown, **more
    )


def _completer(kind: str) -> Callable[[str], list[str]]:
    """What the shell offers: the names of the plugins of a kind; files are completed where none fits."""

    def complete(incomplete: str) -> list[str]:
        from verifolio.plugin.manager import current_plugins

        return sorted(n for n in getattr(current_plugins(), kind).usable() if n.startswith(incomplete))

    return complete


def _choices(kind: Any) -> tuple[str, ...]:
    """The words of a Literal, which may also be None."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()
    return tuple(word for part in parts for word in _choices(part))


def _panel(cls: type[Bundle], name: str) -> str:
    """The heading of the class that introduced the word."""
    owners = [c for c in cls.__mro__ if issubclass(c, Bundle) and name in inspect.get_annotations(c)]
    return owners[-1].panel


def _plain(kind: Any) -> Any:
    """The type as Typer knows it: repeatable options are lists."""
    if get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,):
        return list[get_args(kind)[0]]  # type: ignore[misc]
    if get_origin(kind) in (Union, types.UnionType):
        return Union[kind]  # noqa: UP007
    return kind
