"""The application: the built-in commands and those that plugins add."""

from __future__ import annotations

from importlib import import_module

import typer

from verifolio.cli.codes import EPILOG

OURS = ("verify", "check", "doctor", "vnnlib", "network", "plugins")  # each in a module of that name


def build_app(arguments: list[str] | None = None) -> typer.Typer:
    """The command that is asked for if it is one of ours; otherwise all of them, those of plugins too."""
    app = typer.Typer(
        name="verifolio",
        help="A portfolio of neural network verifiers: every verifier a plugin, every counterexample replayed.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    if arguments and arguments[0] in OURS:
        import_module(f"verifolio.cli.{arguments[0]}").add_commands(app)
    else:
        for name in OURS:
            import_module(f"verifolio.cli.{name}").add_commands(app)
        from verifolio.cli.output import complain
        from verifolio.plugin.manager import current_plugins

        found = current_plugins()
        found.call("register_commands", app=app)
        for name, reason in found.broken.items():
            complain(f"plugin {name} is broken: {reason}; see `verifolio doctor`")
    return app


def _version(value: bool) -> None:
    if value:
        import verifolio

        typer.echo(verifolio.__version__)
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """A portfolio of neural network verifiers."""
