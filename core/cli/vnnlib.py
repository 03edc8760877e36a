"""`verifolio vnnlib check | show | convert | export-smt`: look at property files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from verifolio.cli.bundles import Json, NetworkFile, Output, PropertyFile, with_default
from verifolio.cli.codes import BAD_INPUT, DONE
from verifolio.cli.expand import add_command, make_group

if TYPE_CHECKING:
    from verifolio.vnnlib import Case, Specification


@dataclass(frozen=True, kw_only=True)
class Folder(Output):
    """A folder to write into."""

    output: str = with_default(Output, "output", default="merged")


def add_commands(app: typer.Typer) -> None:
    """Register the group and its commands."""
    group = make_group("Check, show and convert property files.")
    for name, function in (
        ("check", check),
        ("show", show),
        ("convert", convert),
        ("export-smt", export_smt),
        ("merge", merge),
    ):
        add_command(group, name, function)
    app.add_typer(group, name="vnnlib")


def check(
    files: Annotated[list[str], typer.Argument(metavar="PROPERTY...", help="VNN-LIB files, gzipped or not.")],
) -> None:
    """Check property files for errors.

    Every error is shown as file:line:column, with what was expected.

    Example:
        verifolio vnnlib check examples/networks/properties/digits_dense_45_0.2.vnnlib
    """
    from verifolio.cli.output import complain, say
    from verifolio.cli.verify import show_warnings
    from verifolio.vnnlib import VnnlibError

    bad = 0
    for file in files:
        try:
            spec = read(file)
        except VnnlibError as error:
            complain(str(error))
            bad += 1
            continue
        show_warnings(spec)
        say(f"{file}: ok, VNN-LIB {spec.version}, {summary(spec)}")
    raise typer.Exit(BAD_INPUT if bad else DONE)


def show(file: PropertyFile, written: Json) -> None:
    """Show the normal form of a property.

    It has input regions and output conditions.

    Example:
        verifolio vnnlib show examples/networks/properties/digits_dense_45_0.2.vnnlib
    """
    from verifolio.cli.output import say, say_json

    spec = read(file)
    if written.json:
        say_json(describe(spec))
        return
    say(f"VNN-LIB {spec.version}, {summary(spec)}, sha256 {spec.sha256}")
    for i, case in enumerate(spec.cases):
        say(f"case {i}: {case_line(case)}")
        for k, rows in enumerate(case.disjuncts):
            for row in rows.linear_rows():
                terms = " ".join(f"{float(c):+g}*{spec.name(v)}" for v, c in row.terms)
                say(f"  disjunct {k}: {terms} {'<' if row.strict else '<='} {float(row.rhs):g}")


def convert(
    file: PropertyFile,
    written: Output,
    to: Annotated[Literal["1.0", "2.0"], typer.Option(help="The version of VNN-LIB to write.")] = "2.0",
) -> None:
    """Write a property in the other version of VNN-LIB.

    The set stays exactly the same. Without --output the text is printed.

    Example:
        verifolio vnnlib convert examples/networks/properties/digits_dense_45_0.2.vnnlib --to 2.0 -o two.vnnlib
    """
    from verifolio.cli.output import say
    from verifolio.vnnlib import write

    text = write(read(file), version=to)
    if written.output:
        Path(written.output).write_text(text)
    else:
        say(text.rstrip("\n"))


def export_smt(network: NetworkFile, file: PropertyFile, written: Output) -> None:
    """Write a piecewise-linear query as SMT-LIB 2.

    Numbers are exact, and sat means a counterexample. Without --output the text is printed.

    Example:
        verifolio vnnlib export-smt examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.2.vnnlib -o query.smt2
    """
    from verifolio.cli.output import say
    from verifolio.encode.smtlib import to_smtlib
    from verifolio.model.query import Query

    text = to_smtlib(Query.from_files([network], file))
    if written.output:
        Path(written.output).write_text(text)
    else:
        say(text.rstrip("\n"))


def merge(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="NETWORK... PROPERTY", help="ONNX files, then the VNN-LIB file over all of them."
        ),
    ],
    written: Folder,
) -> None:
    """Write a query over several networks as one network.

    The property becomes a VNN-LIB 1.0 file. This is for tools that read one network and version 1.0 only.

    Example:
        verifolio vnnlib merge examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.2.vnnlib -o merged
    """
    from verifolio.cli.output import say
    from verifolio.cli.verify import load_query
    from verifolio.encode.onnx_writer import write_onnx
    from verifolio.model.binding import check_sizes
    from verifolio.vnnlib import specification_from_cases, write

    query = load_query(files)
    check_sizes(query)
    spec = query.specification
    outputs = query.graph.output_size  # the merged network computes what the property multiplies
    single = specification_from_cases(spec.cases, output_size=outputs, input_size=spec.input_size)
    folder = Path(written.output)
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
                        "terms": {spec.name(v): float(k) for v, k in row.terms},
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
