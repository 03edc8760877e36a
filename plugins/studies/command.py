"""The command `verifolio study`."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import SEARCH, WRITTEN
from verifolio.cli.output import going_on
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from .rows import Rows
    from .study import Part, Place, Study

Paper = Annotated[str, typer.Argument(metavar="PAPER", help="The paper's number: 000, 001, 002, 003 or 004.")]


@dataclass(frozen=True, kw_only=True)
class Wanted(bundles.Bundle):
    """Which parts of a paper, and how much of them."""

    panel: ClassVar[str] = SEARCH
    table: tuple[int, ...] = described((), "Measure this table of the paper; repeatable.", metavar="N")
    figure: tuple[int, ...] = described((), "Measure this figure of the paper; repeatable.", metavar="N")
    all: bool = described(False, "Measure every table and figure.")
    quick: bool = described(False, "Measure a small part only, with rows of its own.")
    select: tuple[str, ...] = described(
        (),
        "Measure only what has this name, or this value in a column that identifies rows; repeatable.",
        metavar="TEXT",
    )


@dataclass(frozen=True, kw_only=True)
class Kept(bundles.Output):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    rows: str = described(
        "out/studies",
        "The folder of rows, stores and pictures; what it has is not measured again.",
        metavar="FOLDER",
    )


def study(paper: Paper, wanted: Wanted, running: bundles.TotalBudget, kept: Kept) -> None:
    """Repeat the tables and figures of a paper.

    Our numbers stand beside the published ones. Without --table, --figure or --all it lists what there is. Data
    is looked for in the folder $VERIFOLIO_DATA. Stopped at any moment, it goes on with the rows it has. --output
    writes the page of the paper.

    Example:
        verifolio study 004
    """
    from .papers import find_study
    from .rows import Rows

    chosen = find_study(paper)
    parts = chosen_parts(chosen, wanted)
    folder = Path(kept.rows) / "quick" if wanted.quick else Path(kept.rows)
    rows = Rows(folder, chosen.number)
    with going_on("the rows that are finished are kept", f"the same command goes on from {folder}"):
        if parts:
            measure(chosen, parts, rows, place_of(folder, wanted), running.total_budget or math.inf)
        else:
            overview(chosen, rows)
        if kept.output:
            from .page import page

            Path(kept.output).write_text(page(chosen, rows), encoding="utf-8")
            typer.echo(f"written: {kept.output}")


def place_of(folder: Path, wanted: Wanted) -> Place:
    """Where measurements work."""
    from .study import Place, Size

    return Place(folder, Size(wanted.quick), lambda text: typer.echo(text, err=True), wanted.select)


def chosen_parts(chosen: Study, wanted: Wanted) -> list[Part]:
    """The parts that were asked for."""
    from verifolio import InputError

    if wanted.all:
        return list(chosen.parts)
    found = []
    for kind, numbers in (("table", wanted.table), ("figure", wanted.figure)):
        for number in numbers:
            part = chosen.part(kind, number)
            if part is None:
                there = ", ".join(str(p.number) for p in chosen.parts if p.kind == kind)
                raise InputError(
                    f"--{kind}", f"one of {there}", str(number), f"verifolio study {chosen.number}"
                )
            found.append(part)
    return found


def measure(chosen: Study, parts: list[Part], rows: Rows, place: Place, seconds: float) -> None:
    """Measure what is missing and print every part."""
    import time

    from .page import section, show

    end = time.monotonic() + seconds
    for part in parts:
        for one in part.needs:
            left = rows.fill(one, place, end - time.monotonic())
            if left:
                typer.echo(f"{one.name}: {left} rows are still missing", err=True)
    tables = rows.tables(chosen)
    for part in parts:
        sys.stdout.write("\n".join(section(chosen, part, show(part, tables), rows)) + "\n")
        if part.draw is not None and any(tables.of(one.name) for one in part.needs):
            picture = rows.folder / f"{chosen.number}-{part.kind}-{part.number}.png"
            part.draw(tables, picture)
            typer.echo(f"drawn: {picture}")


def overview(chosen: Study, rows: Rows) -> None:
    """One line for each table and figure."""
    typer.echo(f"{chosen.number}: {chosen.title}")
    for part in chosen.parts:
        have = sum(len(rows.read(one)) for one in {one.name: one for one in part.needs}.values())
        state = "cannot be had" if part.absent else f"{have} rows" if part.needs else "needs no rows"
        typer.echo(f"  {part.name:<10} {part.title} ({state})")
