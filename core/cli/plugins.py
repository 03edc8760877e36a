"""`verifolio plugins`: what is installed, what each can do, why one is unavailable, and what its options mean."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import typer

from verifolio.cli.bundles import WRITTEN, Json
from verifolio.cli.expand import add_command, expanded
from verifolio.plugin.options import Described, described


@dataclass(frozen=True, kw_only=True)
class Listing(Json):
    """What is listed."""

    panel: ClassVar[str] = WRITTEN
    options: bool = described(False, "Also list every option with its type, default and meaning.")


def add_commands(app: typer.Typer) -> None:
    """Register the group, which lists by itself, and its commands."""
    from verifolio.cli.plugins_new import new

    group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    group.callback(help=_list.__doc__)(expanded(_list))
    add_command(group, "show", show)
    add_command(group, "new", new)
    app.add_typer(group, name="plugins")


def _list(context: typer.Context, listing: Listing) -> None:
    """List the installed plugins.

    What each can do, and where one cannot be used here, why.
    """
    from verifolio.cli.output import say, say_json, table

    if context.invoked_subcommand is not None:
        return
    found = inventory()
    if listing.json:
        say_json({"plugins": [_plain(p) for p in found]})
        return
    table(("kind", "name", "can", "state"), [(p["kind"], p["name"], p["can"], state_text(p)) for p in found])
    for p in found if listing.options else []:
        for option in p["options"]:
            say(f"{p['name']}.{option.name}: {option.kind} = {option.default}: {option.text}")


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A verifier, a property, or any other plugin.")],
    written: Json,
) -> None:
    """Explain one plugin and its options.

    What it does, whether it is ready, and what each of its options means.

    Example:
        verifolio plugins show pgd
    """
    from verifolio.cli.output import say, say_json, table
    from verifolio.errors import UnknownPlugin, near

    everyone = inventory()
    found = [p for p in everyone if p["name"] == name]
    if not found:
        known = sorted({p["name"] for p in everyone})
        raise UnknownPlugin(f"no plugin named {name!r}; installed: {', '.join(known)}{near(name, known)}")
    if written.json:
        say_json({"plugins": [_plain(p) for p in found]})
        return
    for p in found:
        can = f" ({p['can']})" if p["can"] else ""
        say(f"{p['kind']} {p['name']}{can}: {state_text(p)}")
        say(p["about"])
        rows = [(o.name, o.kind, o.default, o.text) for o in p["options"]]
        table(("option", "type", "default", "meaning"), rows) if rows else say("It has no options.")


def state(plugin: dict[str, Any]) -> tuple[str, str]:
    """ready; not installed, and what to do; or not applicable: a kind of file, which is not installed."""
    why = str(plugin["unavailable"] or "")
    if not why:
        return "ready", ""
    return ("not applicable" if "is a kind of file" in why else "not installed"), why


def state_text(plugin: dict[str, Any]) -> str:
    """The same in one cell."""
    word, why = state(plugin)
    return f"{word}: {why}" if why else word


def _plain(plugin: dict[str, Any]) -> dict[str, Any]:
    options: list[Described] = plugin["options"]
    return plugin | {"options": [asdict(o) for o in options]}


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
                    "about": (inspect.getdoc(cls) or "").partition("\n")[0],
                    "can": ", ".join(capabilities(cls)),
                    "unavailable": registry.unavailable(cls.name),
                    "module": cls.__module__,
                    "options": describe_options(options) if isinstance(options, type) else [],
                }
            )
    return found


def capabilities(cls: type) -> list[str]:
    """What a class declares, in words."""
    words = {
        "can_falsify": "falsify",
        "can_prove": "prove",
        "can_minimise": "minimise",
        "can_attack_many": "attack many",
        "can_approach_many": "approach many",
        "can_bound_many": "bound many",
        "differentiable": "differentiable",
    }
    return [word for name, word in words.items() if getattr(cls, name, False)]
