"""Tables I to III and figures 4 and 5: published numbers beside ours, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..drawing import picture
from ..sources import published
from ..study import Judgement, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, shown
from .members import FIRST, SECOND
from .mutual import ENSEMBLES, RADII, WAYS, best_ensemble, joint, mutual_errors, swapped, uniqueness

HERE = Path(__file__).resolve().parent
SHOWN_RADIUS = "0.02"  # of tables I and II
Z = 1.96  # of intervals with a confidence of 95 %
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
        score = NOTHING if math.isnan(low) else f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        lines.append(
            (row["network"], f"{row['accuracy']} / {shown(mine, 2)}", f"{row['uniqueness']} / {score}")
        )
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
        lines.append((row["data"], asked, *cells, counts["verify"][1] if asked else NOTHING))
        if same:
            orders.append((row["data"], counts, asked))
    head = f"{NOTE} Each cell: paper (of 54 000 questions, and its share) / ours (of *n*, and its share)."
    table = markdown(("data", "n", "GA1", "GA2", "GA3", "verified", "ours: open"), lines)
    return Shown([head, "", *table], order_statements(tables, orders))


def cell(counts: tuple[int, int], asked: int) -> str:
    return f"{counts[0]} ({100 * counts[0] / asked:.1f} %)" if asked else NOTHING


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


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    if count == 0:
        return 0.0, 1.0
    p, z2 = hits / count, Z * Z / count
    middle, half = (p + z2 / 2) / (1 + z2), Z / (1 + z2) * math.sqrt(p * (1 - p) / count + z2 / (4 * count))
    return middle - half, middle + half


def robust_rows(tables: Tables, data: str, ensemble: str, radius: str) -> tuple[int, int, int]:
    """Proved, refuted and all points."""
    rows = tables.of("robust", data=data, ensemble=ensemble, radius=radius)
    return tuple(sum(int(r[c]) for r in rows) for c in ("robust", "broken", "points"))  # type: ignore[return-value]


def robust_accuracy(tables: Tables, data: str) -> Shown:
    """Figures 4 and 5: proved to not refuted, in percent, with the confidence of the sample."""
    lines = []
    for ensemble in ENSEMBLES:
        members = next((r["members"] for r in tables.of("robust", data=data, ensemble=ensemble)), NOTHING)
        cells, n = [], 0
        for radius in RADII:
            proved, broken, n = robust_rows(tables, data, ensemble, f"{radius:g}")
            low, high = wilson(proved, n)[0], wilson(n - broken, n)[1]
            cells.append(
                f"{100 * proved / n:.0f} to {100 * (n - broken) / n:.0f} ({100 * low:.0f}, {100 * high:.0f})"
                if n
                else NOTHING
            )
        lines.append((ensemble, members, n, *cells))
    head = "Robust accuracy in percent: proved to not refuted; in brackets the 95 % interval (Wilson) of the sample."
    more = "Outputs are averaged before the softmax; the paper averages after it, which can choose another class."
    table = markdown(("ensemble", "members", "n", *(f"{r:g}" for r in RADII)), lines)
    return Shown([head, more, "", *table], accuracy_statements(tables, data))


def accuracy_statements(tables: Tables, data: str) -> list[Statement]:
    return [
        compared(tables, data, "E1", "E1 selected", "Selection raises the robust accuracy of E1", 1),
        compared(tables, data, "E2", "E2 reversed", "Selection the wrong way round lowers that of E2", -1),
    ]


def compared(tables: Tables, data: str, before: str, after: str, text: str, sign: int) -> Statement:
    """Decided only where the intervals of the means over all radii do not overlap."""
    ends = []
    for name in (before, after):
        sums = np.array([robust_rows(tables, data, name, f"{r:g}") for r in RADII]).sum(axis=0)
        ends.append(
            (
                wilson(int(sums[0]), int(sums[2]))[0],
                wilson(int(sums[2] - sums[1]), int(sums[2]))[1],
                int(sums[2]),
            )
        )
    (low, high, n), (low2, high2, n2) = ends
    sample = f"{n}, {n2} questions over all radii"
    if not n or not n2:
        return Statement(text, Judgement.UNDECIDED, sample)
    rises = True if low2 > high else False if high2 < low else None
    holds = None if rises is None else rises == (sign > 0)
    return judged(
        text,
        holds,
        sample,
        f"[{100 * low:.0f}, {100 * high:.0f}] and [{100 * low2:.0f}, {100 * high2:.0f}] %.",
    )


def draw(tables: Tables, path: Path, data: str) -> None:
    """A band per ensemble, from proved to not refuted."""

    def paint(axes: Any) -> None:
        for k, ensemble in enumerate(ENSEMBLES):
            rows = [robust_rows(tables, data, ensemble, f"{r:g}") for r in RADII]
            if all(n for *_, n in rows):
                low, high = [p / n for p, _, n in rows], [1 - b / n for _, b, n in rows]
                axes.fill_between(RADII, low, high, color=f"C{k}", alpha=0.3, label=ensemble)
        axes.set(xlabel="radius", ylabel="robust accuracy")
        axes.legend(fontsize=7)

    picture(path, 6.0, 4.0, paint)
