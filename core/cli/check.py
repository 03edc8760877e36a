"""`verifolio check NETWORK PROPERTY CERTIFICATE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verifolio.cli.output import say

NetworkFile = Annotated[str, typer.Argument(help="An ONNX file.")]
PropertyFile = Annotated[str, typer.Argument(help="A VNN-LIB file.")]
CertificateFile = Annotated[
    str, typer.Argument(help="What `verify --certificate` wrote, or a counterexample in VNN-COMP's format.")
]


def check(network: NetworkFile, property_file: PropertyFile, certificate: CertificateFile) -> None:
    """Check a certificate of unsat, or a counterexample, in exact arithmetic.

    Prints `valid`, or the first step that is not. Exit codes: 0 valid, 5 not valid, 2 unreadable.
    """
    from verifolio_check.main import run

    code, line = run(Path(network), Path(property_file), Path(certificate))
    say(line)
    raise typer.Exit(code)
