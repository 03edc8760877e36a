"""The page that documents all commands, made from the commands themselves: `python -m verifolio.cli.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifolio.cli.codes import TABLE

PAGE = Path("docs/reference/commands.md")  # in the repository
OURS = "verifolio."  # commands of other packages have pages of their own
HEAD = """\
# Commands

<!-- made from the commands by `make reference`; change their texts there -->

`verifolio COMMAND --help` says the same. A word means the same in every command, with the same default, and Python
has the same names: options are the fields of frozen dataclasses (`verifolio.cli.bundles`).

- Lists of positions are `0:100,105`; radii are `0.1`, `8/255`, `0.1,0.2` or a grid `start:stop:step`.
- An option that was called something else fails with its new name; one that is misspelled, with what is near.
- Output to a pipe is complete, tab-separated where it is a table, and without escape codes.

## Exit codes

| code | meaning |
|---|---|
"""


@dataclass(frozen=True)
class Entry:
    """One command: its words, and Typer's object for it."""

    words: str
    command: Any

    @property
    def function(self) -> Any:
        """What the command calls, with its docstring."""
        callback = self.command.callback
        return getattr(callback, "command", callback)

    @property
    def ours(self) -> bool:
        return str(getattr(self.function, "__module__", "")).startswith(OURS)


def entries() -> list[Entry]:
    """All commands of all installed plugins."""
    import typer

    from verifolio.cli.app import build_app

    return sorted(_walk(typer.main.get_command(build_app()), ""), key=lambda e: e.words)


def _walk(command: Any, words: str) -> Iterator[Entry]:
    children = getattr(command, "commands", None)
    if children is None or getattr(command, "invoke_without_command", False):
        yield Entry(words, command)
    for name, child in (children or {}).items():
        yield from _walk(child, f"{words} {name}".strip())


def render() -> str:
    """The page."""
    codes = "".join(f"| {code} | {text} |\n" for code, _, text in TABLE)
    return HEAD + codes + "".join(_section(e) for e in entries() if e.ours) + "\n".join(_plugin_options())


def _plugin_options() -> Iterator[str]:
    """What --option, --attack-option and --property-option can say."""
    from verifolio.cli.plugins import inventory

    yield "\n## Options of verifiers and properties"
    yield "`verifolio plugins show NAME` prints the same for every plugin that is installed.\n"
    yield "| plugin | option | takes | default | |"
    yield "|---|---|---|---|---|"
    for plugin in inventory():
        if plugin["kind"] in ("verifier", "property") and plugin["module"].startswith(OURS):
            for o in plugin["options"]:
                cells = (plugin["name"], f"`{o.name}`", f"`{o.kind}`", f"`{o.default}`", o.text)
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _section(entry: Entry) -> str:
    from verifolio.cli.expand import split_docstring

    text, example, not_run = split_docstring(entry.function)
    lines = [f"\n## {entry.words}", "```text", _usage(entry), "```", text, ""]
    for title, rows in _tables(entry.command).items():
        lines += [f"| {title.lower()} | | default |", "|---|---|---|", *rows, ""]
    if example:
        lines += [f"<!-- not run: {not_run} -->"] if not_run else []
        lines += ["```sh", example, "```"]
    return "\n".join(lines).rstrip() + "\n"


def _usage(entry: Entry) -> str:
    names = [p.metavar or p.name.upper() for p in entry.command.params if p.param_type_name == "argument"]
    return " ".join(["verifolio", entry.words, *names, "[options]"])


def _tables(command: Any) -> dict[str, list[str]]:
    """One row per option, under the headings of the bundles."""
    tables: dict[str, list[str]] = {}
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            name = ", ".join([*reversed(param.opts), *param.secondary_opts])
            takes = "" if param.is_flag else f" {param.metavar or 'TEXT'}"
            cells = (f"`{name}{takes}`", param.help, default_of(param))
            row = " | ".join(cell.replace("|", "\\|") for cell in cells)
            title = getattr(param, "rich_help_panel", None) or "Options"
            tables.setdefault(title, []).append(f"| {row} |")
    return tables


def default_of(param: Any) -> str:
    """What an option is without being told; nothing where that says nothing."""
    if param.required:
        return "required"
    default = param.default
    if isinstance(default, bool) or default is None or default == "" or default == []:
        return ""
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def main() -> None:
    """Write the page, from the repository's root."""
    if not PAGE.parent.is_dir():
        sys.exit(f"{PAGE}: expected the repository's root as the working folder, got {Path.cwd()}")
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
