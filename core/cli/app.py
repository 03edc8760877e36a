"""The application: the built-in commands and those that plugins add."""

from __future__ import annotations

import typer

EPILOG = (
    "Exit codes: 0 decided or done, 2 bad input, 3 undecided, 4 soundness alarm, 5 not the verdict of --expect or "
    "not a valid certificate, "
    "1 bug, 130 interrupted, 141 output closed."
)


def build_app(arguments: list[str] | None = None) -> typer.Typer:
    """All commands; plugins are only asked for theirs when the command is not one of ours."""
    from verifolio.cli import check, doctor, network, plugins_new, verify, vnnlib

    app = typer.Typer(
        name="verifolio",
        help="A portfolio of neural network verifiers: every verifier a plugin, every answer checked.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    app.command("verify")(verify.verify)
    app.command("check")(check.check)
    app.command("doctor")(doctor.doctor)
    app.add_typer(vnnlib.app, name="vnnlib")
    app.add_typer(network.app, name="network")
    app.add_typer(plugins_new.app, name="plugins")
    ours = {"verify", "check", "plugins", "doctor", "vnnlib", "network"}
    if not arguments or arguments[0] not in ours:
        from verifolio.cli.main import complain
        from verifolio.plugin.manager import current_plugins

        plugins = current_plugins()
        plugins.call("register_commands", app=app)
        for name, reason in plugins.broken.items():
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
