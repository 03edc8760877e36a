"""Boxes of figures 2 to 5, 8 to 11 and 13 to 15: five numbers per network, from the records and of our rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .. import drawing
from ..statistics import Side
from ..study import Record, Shown, Tables
from ..text import NOTHING, markdown, shown
from .brackets import measured, ours
from .records import FIVE
from .subjects import FIRST, MISSING, Subject
from .tables import of_records


def label(one: Subject) -> str:
    return one.network if one in FIRST else f"{one.network} {one.training}"


def groups(tables: Tables, subjects: Sequence[Subject], split: str) -> dict[str, Side]:
    """Our samples of the networks that have any."""
    found = {label(s): ours(tables, s, split) for s in subjects if s.file}
    return {name: side for name, side in found.items() if side.lower}


def quantiles(values: Sequence[float]) -> list[str]:
    """The five numbers of a box."""
    return (
        [shown(float(v), 4) for v in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))]
        if len(values)
        else [NOTHING] * 5
    )


def of_boxes(tables: Tables, one: Subject, split: str) -> Record | None:
    """The five numbers of the authors' records."""
    found = tables.of("record-boxes", network=one.network, training=one.training, split=split)
    return found[0] if found else None


def box_table(tables: Tables, subjects: Sequence[Subject], splits: Sequence[str]) -> list[str]:
    """A line of the records and one of ours per network and split."""
    lines: list[tuple[object, ...]] = []
    for split in splits:
        for one in subjects:
            theirs = of_boxes(tables, one, split)
            if theirs is not None:
                five = [shown(theirs[c], 4) for c in FIVE]
                lines.append((label(one), split, "records", theirs["n"], *five, shown(theirs["upper"], 4)))
            side = ours(tables, one, split) if one.file else Side([], [], [])
            if side.lower:
                upper = [u for u in side.upper if u is not None]
                five = quantiles(side.lower)
                lines.append((label(one), split, "ours", len(side.lower), *five, shown(median(upper), 4)))
    titles = (
        *("network", "split", "whose", "n", "lowest proved", "quartile", "median", "quartile", "largest"),
        "median refuted",
    )
    return markdown(titles, lines) if lines else ["No rows yet."]


def median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if len(values) else None


def box_figure(subjects: Sequence[Subject], splits: Sequence[str]) -> Callable[[Tables], Shown]:
    """Figures 8 to 11 as numbers, with the reason where ours is missing."""
    missing = [MISSING[data] for data in dict.fromkeys(s.data for s in subjects) if data in MISSING]
    return lambda tables: Shown([*missing, *([""] if missing else []), *box_table(tables, subjects, splits)])


def box_picture(
    subjects: Sequence[Subject], splits: Sequence[str], lines: Sequence[float] = ()
) -> Callable[[Tables, Path], None]:
    def draw(tables: Tables, path: Path) -> None:
        found = {
            f"{name} {split}": side.lower
            for split in splits
            for name, side in groups(tables, subjects, split).items()
        }
        drawing.boxes(path, found, "proved radius", lines)

    return draw


def curve_picture(
    subjects: Sequence[Subject], split: str = "test", overlay: bool = False
) -> Callable[[Tables, Path], None]:
    return lambda tables, path: drawing.curves(path, groups(tables, subjects, split), overlay)


def gaps(subjects: Sequence[Subject]) -> Callable[[Tables], Shown]:
    """Figures 13 to 15: the distance of the two sides."""

    def show(tables: Tables) -> Shown:
        lines: list[tuple[object, ...]] = []
        for one in subjects:
            theirs, records = of_boxes(tables, one, "test"), of_records(tables, one, "test")
            if theirs is not None:
                five = [shown(theirs[f"gap_{c}"], 4) for c in FIVE]
                lines.append((label(one), "records", theirs["n"], NOTHING, *five, shown(records["gap"], 4)))
            mine = [b - a for a, b in ours(tables, one, "test").pairs] if one.file else []
            if mine:
                closed = sum(r["status"] == "closed" for r in measured(tables, one, "test"))
                mean = shown(float(np.mean(mine)), 4)
                lines.append((label(one), "ours", len(mine), closed, *quantiles(mine), mean))
        titles = (
            "network",
            "whose",
            "n",
            "closed",
            "smallest",
            "quartile",
            "median",
            "quartile",
            "largest",
            "mean",
        )
        why = MISSING.get(subjects[0].data)
        table = markdown(titles, lines) if lines else ["No rows yet."]
        return Shown([*([why, ""] if why else []), *table])

    return show


def gap_picture(subjects: Sequence[Subject]) -> Callable[[Tables, Path], None]:
    def draw(tables: Tables, path: Path) -> None:
        found = {n: [b - a for a, b in side.pairs] for n, side in groups(tables, subjects, "test").items()}
        drawing.boxes(path, found, "gap")

    return draw
