"""`verifolio check`: certificates, counterexamples, and tables that rest on certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verifolio.cli.expand import add_command
from verifolio.cli.output import say

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="NETWORK... PROPERTY FILE | NETWORK... [TABLE.csv] FOLDER",
        help="What `--certificate` or `verify --counterexample` wrote comes last.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the command."""
    add_command(app, "check", check)


def check(files: Files) -> None:
    """Check a certificate of unsat, or a counterexample.

    The checker computes in integers and imports nothing of the verifiers. With TABLE.csv and the certificates of a
    distribution: every radius of the column `lower`. With the certificates of an ensemble: its value. The line
    printed is `valid`, or names the first step that is not, which exits with 5.

    Example:
        verifolio verify examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.01.vnnlib --certificate proof.gz
        verifolio check examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.01.vnnlib proof.gz
    """
    from verifolio.errors import InputError
    from verifolio_check.main import run

    if len(files) < 2:
        raise InputError(
            "command line", "networks, a property and a file, or networks and a folder", files[0]
        )
    code, line = run(*(Path(f) for f in files))
    say(line)
    raise typer.Exit(code)
