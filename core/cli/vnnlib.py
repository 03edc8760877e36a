"""`verifolio vnnlib check | show | convert | export-smt`: look at property files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from verifolio.vnnlib import Case, Specification

app = typer.Typer(help="Check, show and convert property files.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class Target(StrEnum):
    """The versions that can be written."""

    ONE = "1.0"
    TWO = "2.0"


@app.callback()
def _group() -> None:
    """Check, show and convert property files."""


@app.command("check")
def check(files: Annotated[list[str], typer.Argument(help="VNN-LIB files, gzipped or not.")]) -> None:
    """Parse files; every error is shown as file:line:column with what was expected. Exit code 2 if any."""
    from verifolio.cli.main import BAD_INPUT, DONE, complain
    from verifolio.cli.output import say
    from verifolio.vnnlib import VnnlibError

    bad = 0
    for file in files:
        try:
            spec = read(file)
        except VnnlibError as error:
            complain(str(error))
            bad += 1
            continue
        say(f"{file}: ok, VNN-LIB {spec.version}, {summary(spec)}")
    raise typer.Exit(BAD_INPUT if bad else DONE)


@app.command("show")
def show(file: Annotated[str, typer.Argument(help="A VNN-LIB file.")], as_json: Json = False) -> None:
    """Show the normal form: input regions and output conditions."""
    from verifolio.cli.output import say, say_json

    spec = read(file)
    if as_json:
        say_json(describe(spec))
        return
    say(f"VNN-LIB {spec.version}, {summary(spec)}, sha256 {spec.sha256}")
    for i, case in enumerate(spec.cases):
        say(f"case {i}: {case_line(case)}")
        for k, rows in enumerate(case.disjuncts):
            for row in rows.linear_rows():
                terms = " ".join(f"{float(c):+g}*{name(spec, v)}" for v, c in row.terms)
                say(f"  disjunct {k}: {terms} {'<' if row.strict else '<='} {float(row.rhs):g}")


@app.command("convert")
def convert(
    file: Annotated[str, typer.Argument(help="A VNN-LIB file.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Write here instead of printing.")] = "",
    to: Annotated[Target, typer.Option(help="Version to write.")] = Target.TWO,
) -> None:
    """Write the same property in the other version of VNN-LIB; the set stays exactly the same."""
    from verifolio.cli.output import say
    from verifolio.vnnlib import write

    text = write(read(file), version="1.0" if to is Target.ONE else "2.0")
    if output:
        Path(output).write_text(text)
    else:
        say(text.rstrip("\n"))


@app.command("export-smt")
def export_smt(
    network: Annotated[str, typer.Argument(help="An ONNX file.")],
    file: Annotated[str, typer.Argument(help="A VNN-LIB file.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Write here instead of printing.")] = "",
) -> None:
    """Write a piecewise-linear query as SMT-LIB 2 in exact numbers; sat means a counterexample."""
    from verifolio.cli.output import say
    from verifolio.encode.smtlib import to_smtlib
    from verifolio.model.query import Query

    text = to_smtlib(Query.from_files([network], file))
    if output:
        Path(output).write_text(text)
    else:
        say(text.rstrip("\n"))


@app.command("merge")
def merge(
    files: Annotated[list[str], typer.Argument(help="ONNX files, then the VNN-LIB file over all of them.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Folder to write into.")] = "merged",
) -> None:
    """Write a query over several networks as one network and a VNN-LIB 1.0 file, for tools that know no better."""
    from verifolio.cli.output import say
    from verifolio.cli.verify import load_query
    from verifolio.encode.onnx_writer import write_onnx
    from verifolio.model.binding import check_sizes
    from verifolio.vnnlib import specification_from_cases, write

    query = load_query(files)
    check_sizes(query)
    spec = query.specification
    single = specification_from_cases(spec.cases, output_size=spec.output_size, input_size=spec.input_size)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    write_onnx(query.graph, folder / "merged.onnx")
    (folder / "merged.vnnlib").write_text(write(single, version="1.0"))
    say(f"{folder / 'merged.onnx'} and {folder / 'merged.vnnlib'}")


def read(file: str) -> Specification:
    """Load a file; a missing one is bad input."""
    from verifolio.errors import InputError
    from verifolio.vnnlib import load

    if not Path(file).is_file():
        raise InputError(file, "a VNN-LIB file", "no such file", "check the path")
    return load(Path(file))


def summary(spec: Specification) -> str:
    """Sizes in a few words."""
    rows = sum(r.count for c in spec.cases for r in c.disjuncts)
    disjuncts = sum(len(c.disjuncts) for c in spec.cases)
    return (
        f"{spec.input_size} inputs, {spec.output_size} outputs, {len(spec.cases)} input regions, "
        f"{disjuncts} disjuncts, {rows} rows"
    )


def case_line(case: Case) -> str:
    """One input region in a line."""
    if case.empty:
        return "empty"
    if len(case.lower) <= 8:
        box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(case.lower, case.upper, strict=True))
    else:
        box = f"{len(case.lower)} intervals, widest {float((case.upper - case.lower).max()):g}"
    return box + (f", {case.input_rows.count} input rows" if case.input_rows.count else "")


def name(spec: Specification, column: int) -> str:
    from verifolio.vnnlib.symbols import element_name

    return element_name(spec.networks, spec.input_size, column, spec.version)


def describe(spec: Specification) -> dict[str, Any]:
    """The normal form for programs; numbers are outward-rounded doubles."""
    cases = [
        {
            "empty": c.empty,
            "lower": c.lower,
            "upper": c.upper,
            "input_rows": c.input_rows.count,
            "disjuncts": [
                [
                    {
                        "terms": {name(spec, v): float(k) for v, k in row.terms},
                        "rhs": float(row.rhs),
                        "strict": row.strict,
                    }
                    for row in rows.linear_rows()
                ]
                for rows in c.disjuncts
            ],
        }
        for c in spec.cases
    ]
    return {
        "version": spec.version,
        "inputs": spec.input_size,
        "outputs": spec.output_size,
        "sha256": spec.sha256,
        "cases": cases,
    }
