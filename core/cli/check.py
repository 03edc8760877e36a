"""`verifolio check NETWORK PROPERTY FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verifolio.cli.bundles import NetworkFile, PropertyFile
from verifolio.cli.expand import add_command
from verifolio.cli.output import say

ProofFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="What `verify --certificate` or `verify --counterexample` wrote.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the command."""
    add_command(app, "check", check)


def check(network: NetworkFile, property_file: PropertyFile, proof: ProofFile) -> None:
    """Check a certificate of unsat, or a counterexample.

    The checker computes in integers and imports nothing of the verifiers. The line printed is `valid`, or
    names the first step that is not, which exits with 5.

    Example:
        verifolio verify examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.01.vnnlib --certificate proof.gz
        verifolio check examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.01.vnnlib proof.gz
    """
    from verifolio_check.main import run

    code, line = run(Path(network), Path(property_file), Path(proof))
    say(line)
    raise typer.Exit(code)
