"""Figures 4 and 5: ensembles before and after selection, with intervals of the sample."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..drawing import picture
from ..study import Judgement, Record, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, shown
from .ensembles import ENSEMBLES, PAPER, ensemble_of, mutual_errors
from .members import FIRST, SECOND
from .robust import RADII, named

Z = 1.96  # of intervals with a confidence of 95 %
NEAR = {"mnist": 0.2, "fashion-mnist": 0.17}  # points of accuracy within which the paper's ensembles stay


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    if count == 0:
        return 0.0, 1.0
    p, z2 = hits / count, Z * Z / count
    middle, half = (p + z2 / 2) / (1 + z2), Z / (1 + z2) * math.sqrt(p * (1 - p) / count + z2 / (4 * count))
    return middle - half, middle + half


def rows_of(tables: Tables, data: str, ensemble: str, measurement: str = "robust") -> list[Record]:
    """The rows of an ensemble as the mutual errors choose it today; earlier choices do not count."""
    members = named(ensemble_of(ensemble, mutual_errors(tables, data, "verify")[0]))
    return tables.of(measurement, data=data, ensemble=ensemble, members=members)


def robust_rows(tables: Tables, data: str, ensemble: str, radius: str) -> tuple[int, int, int]:
    """Proved, refuted and all points."""
    rows = [r for r in rows_of(tables, data, ensemble) if r["radius"] == radius]
    return tuple(sum(int(r[c]) for r in rows) for c in ("robust", "broken", "points"))  # type: ignore[return-value]


def robust_accuracy(tables: Tables, data: str) -> Shown:
    """Figures 4 and 5: proved to not refuted, in percent, with the confidence of the sample."""
    lines = []
    for ensemble in ENSEMBLES[data]:
        cells, n = [], 0
        for radius in RADII:
            proved, broken, n = robust_rows(tables, data, ensemble, f"{radius:g}")
            cells.append(cell(proved, broken, n))
        whole = rows_of(tables, data, ensemble, "ensembles")
        right = 100 * float(whole[0]["right"]) / float(whole[0]["n"]) if whole else None
        lines.append(
            (
                ensemble,
                PAPER.get(ensemble, NOTHING),
                swaps(tables, data, ensemble),
                shown(right, 2),
                n,
                *cells,
            )
        )
    titles = ("ensemble", "paper swaps", "ours swaps", "accuracy %", "n", *(f"{r:g}" for r in RADII))
    said = accuracy_statements(tables, data)
    return Shown([*HEAD, "", *averaging(tables, data), "", *markdown(titles, lines)], said)


HEAD = (
    "Robust accuracy in percent: proved to not refuted; in brackets the 95 % interval (Wilson) of the sample. The",
    "paper prints curves without numbers, for 200 test points. Networks 11 to 20 of the paper are 1 to 10 here.",
)


def cell(proved: int, broken: int, n: int) -> str:
    if not n:
        return NOTHING
    low, high = wilson(proved, n)[0], wilson(n - broken, n)[1]
    return f"{100 * proved / n:.0f} to {100 * (n - broken) / n:.0f} ({100 * low:.0f}, {100 * high:.0f})"


def swaps(tables: Tables, data: str, ensemble: str) -> str:
    """Which members were replaced by which."""
    errors, _, balls = mutual_errors(tables, data, "verify")
    members = ensemble_of(ensemble, errors)
    start = FIRST if ensemble.startswith("E1") else SECOND
    changed = [f"{a + 1} -> {b + 1}" for a, b in zip(start, members, strict=True) if a != b]
    return ", ".join(changed) or ("none" if balls and len(ensemble.split()) > 1 else NOTHING)


def averaging(tables: Tables, data: str) -> list[str]:
    """What it matters that outputs are averaged before the softmax."""
    rows = [r for e in ENSEMBLES[data] for r in rows_of(tables, data, e, "ensembles")]
    text = "Outputs are averaged before the softmax here, since a softmax is not piecewise linear."
    if not rows:
        return [text]
    most = max(int(r["otherwise"]) for r in rows)
    return [
        f"{text} Averaging after it gives another class for at most {most} of {rows[0]['n']} test images."
    ]


def accuracy_statements(tables: Tables, data: str) -> list[Statement]:
    if data == "mnist":
        pairs = [
            ("E1", "E1 swap", "Replacing the least unique member raises the robust accuracy of E1", 1),
            ("E1", "E1 other swap", "So does replacing the second least unique one", 1),
            (
                "E2",
                "E2 reverse",
                "Replacing the most unique member by the worst candidate lowers that of E2",
                -1,
            ),
            ("E2", "E2 other reverse", "So does replacing the second most unique one", -1),
        ]
    else:
        pairs = [
            ("E4", "E4 swap", "One swap raises the robust accuracy of E4", 1),
            ("E4 swap", "E4 two swaps", "A second swap raises it further", 1),
            ("E4", "E4 reverse", "One swap the wrong way round lowers it", -1),
            ("E4 reverse", "E4 two reverses", "A second one lowers it further", -1),
        ]
    return [*(compared(tables, data, *pair) for pair in pairs), kept_accuracy(tables, data)]


def compared(tables: Tables, data: str, before: str, after: str, text: str, sign: int) -> Statement:
    """Decided only where the intervals of the means over all radii do not overlap."""
    ends = []
    for name in (before, after):
        sums = np.array([robust_rows(tables, data, name, f"{r:g}") for r in RADII]).sum(axis=0)
        proved, broken, n = (int(v) for v in sums)
        ends.append((wilson(proved, n)[0], wilson(n - broken, n)[1], n))
    (low, high, n), (low2, high2, n2) = ends
    sample = f"{n}, {n2} questions over all radii"
    if not n or not n2:
        return Statement(text, Judgement.UNDECIDED, sample)
    rises = True if low2 > high else False if high2 < low else None
    holds = None if rises is None else rises == (sign > 0)
    told = f"[{100 * low:.0f}, {100 * high:.0f}] and [{100 * low2:.0f}, {100 * high2:.0f}] %."
    return judged(text, holds, sample, told)


def kept_accuracy(tables: Tables, data: str) -> Statement:
    """The accuracies of the changed ensembles beside that of the one they come from."""
    found = {e: rows[0] for e in ENSEMBLES[data] if (rows := rows_of(tables, data, e, "ensembles"))}
    text = f"The swaps change the accuracy of an ensemble by at most {NEAR[data]:g} points"
    moved = [
        100 * abs(int(r["right"]) - int(found[e.split()[0]]["right"])) / int(r["n"])
        for e, r in found.items()
        if e.split()[0] in found and e != e.split()[0]
    ]
    sample = f"{len(moved)} ensembles, whole test split"
    if not moved:
        return Statement(text, Judgement.UNDECIDED, sample)
    return judged(text, max(moved) <= NEAR[data], sample, f"At most {max(moved):.2f}.")


def draw(tables: Tables, path: Path, data: str) -> None:
    """A band per ensemble, from proved to not refuted."""

    def paint(axes: Any) -> None:
        for k, ensemble in enumerate(ENSEMBLES[data]):
            rows = [robust_rows(tables, data, ensemble, f"{r:g}") for r in RADII]
            if all(n for *_, n in rows):
                low, high = [p / n for p, _, n in rows], [1 - b / n for _, b, n in rows]
                axes.fill_between(RADII, low, high, color=f"C{k}", alpha=0.3, label=ensemble)
        axes.set(xlabel="radius", ylabel="robust accuracy")
        axes.legend(fontsize=7)

    picture(path, 6.0, 4.0, paint)
