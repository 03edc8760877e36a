"""Tables I to III: published numbers beside ours, with the intervals that open questions leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ..sources import published
from ..study import Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, shown
from .ensembles import (
    best_ensemble,
    joint,
    mean_uniqueness,
    mutual_errors,
    swapped,
    uniqueness,
)
from .members import DATA, FIRST, SECOND
from .mutual import WAYS

HERE = Path(__file__).resolve().parent
SHOWN_RADIUS = "0.02"  # of tables I and II
NOTE = "The networks are ours (the paper's are not public here), so numbers are not expected to agree."


def networks(tables: Tables, data: str) -> Shown:
    """Tables I and II: accuracy and uniqueness at the radius 0.02."""
    errors, left, balls = mutual_errors(tables, data, "verify", SHOWN_RADIUS)
    lines = []
    for row in (r for r in published(HERE, "networks") if r["data"] == data):
        k = (int(row["network"]) - 1) % 10
        members = FIRST if k in FIRST else SECOND
        right = tables.of("accuracy", data=data, network=str(k + 1))
        mine = 100 * float(right[0]["right"]) / float(right[0]["n"]) if right else None
        low, high = (100 * uniqueness(e, balls, k, members) for e in (errors + left, errors))
        score = f"{row['uniqueness']} / {span(low, high)}"
        lines.append((row["network"], f"{row['accuracy']} / {shown(mine, 2)}", score))
    head = f"{NOTE} Each cell: paper (200 points) / ours (n = {balls} agreement points), in percent."
    table = markdown(("network", "accuracy", "uniqueness at 0.02"), lines)
    return Shown([head, "", *table], selection(tables, data) if balls else ())


def selection(tables: Tables, data: str) -> list[Statement]:
    """What one swap does to the mutual errors, and how far the greedy swap is from the best ensemble."""
    errors, left, balls = mutual_errors(tables, data, "verify")
    before, after = joint(errors, FIRST), joint(errors, swapped(errors, FIRST))
    best, fewest = best_ensemble(errors, len(FIRST))
    sample = f"{balls} balls, {int(left.sum()) // 2} questions open"
    told = f"{before} mutual errors, {after} after one swap; the best five of the ten have {fewest} ({named(best)})."
    return [
        judged("Replacing the least unique member lowers the mutual errors", after < before, sample, told)
    ]


def named(members: Sequence[int]) -> str:
    return " ".join(f"N{m + 1}" for m in members)


def attacks(tables: Tables) -> Shown:
    """Table III: mutual errors by method."""
    lines, orders = [], []
    for row in published(HERE, "attacks"):
        counts, balls = {}, {}
        for way in WAYS:
            errors, left, balls[way] = mutual_errors(tables, row["data"], way)
            counts[way] = (int(errors.sum()) // 2, int(left.sum()) // 2)
        same = len(set(balls.values())) == 1 and balls["verify"]
        asked = balls["verify"] * 45
        cells = [f"{row[w]} ({int(row[w]) / 540:.1f} %) / {cell(counts[w], balls[w] * 45)}" for w in WAYS]
        lines.append((row["data"], *cells, counts["verify"][1] if asked else NOTHING))
        if same:
            orders.append((row["data"], counts, asked))
    head = f"{NOTE} Each cell: paper (of 54 000 questions, and its share) / ours."
    table = markdown(("data", "GA1", "GA2", "GA3", "verified", "ours: open"), lines)
    more = "Mean uniqueness in percent, over members and all radii: paper (from its text) / ours."
    return Shown([head, "", *table, "", more, "", *means(tables)], order_statements(tables, orders))


# mean uniqueness of the two arbitrary ensembles by method, from the paper's section V
MEANS = {
    ("mnist", "ga1"): ("95.4", "97.8"),
    ("mnist", "ga2"): ("87.5", "94.5"),
    ("mnist", "ga3"): ("83.1", "92.5"),
    ("mnist", "verify"): ("55", "77"),
    ("fashion-mnist", "ga3"): ("equal", "within 0.01"),
    ("fashion-mnist", "verify"): ("2 points", "apart"),
}


def means(tables: Tables) -> list[str]:
    """How each method sees the two arbitrary ensembles."""
    lines = []
    for data in DATA:
        for way in WAYS:
            errors, left, balls = mutual_errors(tables, data, way)
            left = (
                left if way == "verify" else 0 * left
            )  # an attack that fails leaves nothing open, as in the paper
            cells = []
            for members, theirs in zip(
                (FIRST, SECOND), MEANS.get((data, way), (NOTHING, NOTHING)), strict=True
            ):
                low, high = (100 * mean_uniqueness(e, balls, members) for e in (errors + left, errors))
                cells.append(f"{theirs} / {span(low, high)}")
            lines.append((data, way, balls, *cells))
    titles = ("data", "method", "n (balls)", "E1 (E3)", "E2 (E4)")
    return markdown(titles, lines)


def span(low: float, high: float, digits: int = 2) -> str:
    """A number, or the interval that open questions leave."""
    if math.isnan(low):
        return NOTHING
    return f"{low:.{digits}f}" if low == high else f"{low:.{digits}f} to {high:.{digits}f}"


def cell(counts: tuple[int, int], asked: int) -> str:
    return f"{counts[0]} of {asked} ({100 * counts[0] / asked:.1f} %)" if asked else NOTHING


Counts = dict[str, tuple[int, int]]


def order_statements(tables: Tables, orders: Sequence[tuple[str, Counts, int]]) -> list[Statement]:
    said = []
    for data, counts, asked in orders:
        found = [counts[w][0] for w in WAYS]
        said.append(
            judged(
                f"{data}: verification finds more mutual errors than GA3, that more than GA2, that more than GA1",
                found[0] < found[1] < found[2] < found[3],
                f"{asked} questions",
                f"{found[0]}, {found[1]}, {found[2]}, {found[3]}.",
            )
        )
        said.append(
            judged(
                f"{data}: the best gradient attack misses 44 % of the mutual errors",
                found[2] < 0.66 * found[3] if found[3] else None,
                f"{asked} questions",
                f"Here {100 * (1 - found[2] / max(1, found[3])):.0f} %: our third attack restarts and climbs.",
            )
        )
        share = counts["verify"][1] / asked
        said.append(
            judged(
                f"{data}: about 1 % of the questions stay open",
                share <= 0.01,
                f"{asked} questions",
                f"{100 * share:.2f} %.",
            )
        )
    return said
