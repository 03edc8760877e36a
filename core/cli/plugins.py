"""`verifolio plugins`: what is installed, what each can do, and why one is unavailable."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    options: Annotated[bool, typer.Option(help="Also list every option with type and default.")] = False,
) -> None:
    """List the installed plugins, what they can do, and why one cannot be used here."""
    from verifolio.cli.output import say, say_json, table

    found = list(inventory())
    if as_json:
        say_json({"plugins": found})
        return
    rows = [(p["kind"], p["name"], p["can"], p["unavailable"] or "ready") for p in found]
    table(("kind", "name", "can", "state"), rows)
    for p in found if options else []:
        for name, (kind, default) in p["options"].items():
            say(f"{p['name']}.{name}: {kind} = {default}")


def inventory() -> list[dict[str, Any]]:
    """One entry per registered class."""
    from verifolio.plugin.manager import KINDS, current_plugins
    from verifolio.plugin.options import describe_options

    found = []
    for registry in (getattr(current_plugins(), kind) for kind in KINDS):
        for cls in registry:
            options = getattr(cls, "Options", None)
            found.append(
                {
                    "kind": registry.kind,
                    "name": cls.name,
                    "can": ", ".join(capabilities(cls)),
                    "unavailable": registry.unavailable(cls.name),
                    "module": cls.__module__,
                    "options": describe_options(options) if isinstance(options, type) else {},
                }
            )
    return found


def capabilities(cls: type) -> list[str]:
    """What a class declares, in words."""
    words = {
        "can_falsify": "falsify",
        "can_prove": "prove",
        "can_minimise": "minimise",
        "differentiable": "differentiable",
    }
    return [word for name, word in words.items() if getattr(cls, name, False)]
