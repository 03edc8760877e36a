"""Table 1 and figure 3: frequency and severity by both estimators, before and after fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..drawing import picture
from ..sources import published
from ..study import Judgement, Record, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, shown
from .closest import EPSILON, WAYS
from .networks import NAMES

HERE = Path(__file__).resolve().parent
LARGEST = 60  # levels: the end of figure 3


def distances(tables: Tables, network: str, way: str) -> tuple[list[float], int]:
    """Those within the threshold, and the number of images that were asked about."""
    rows = tables.of("distances", network=network, way=way)
    return [float(r["distance"]) for r in rows if r["distance"] and float(r["distance"]) <= EPSILON], len(
        rows
    )


def frequency(tables: Tables, network: str, way: str) -> float | None:
    near, n = distances(tables, network, way)
    return 100 * len(near) / n if n else None


def severity(tables: Tables, network: str, way: str) -> float | None:
    near, _ = distances(tables, network, way)
    return float(np.mean(near)) if near else None


def accuracy(tables: Tables, network: str) -> float | None:
    found = tables.of("accuracy", network=network)
    return 100 * float(found[0]["right"]) / float(found[0]["n"]) if found else None


def table(tables: Tables) -> Shown:
    """Table 1, with what the text says beside it."""
    lines = []
    for row in published(HERE, "table1"):
        name = row["network"]
        n = ", ".join(str(distances(tables, name, way)[1]) for way in WAYS)
        cells = [f"{row['accuracy']} / {shown(accuracy(tables, name), 2)}"]
        cells += [f"{row[f'frequency_{way}']} / {shown(frequency(tables, name, way), 2)}" for way in WAYS]
        cells += [f"{row[f'severity_{way}']} / {shown(severity(tables, name, way), 1)}" for way in WAYS]
        lines.append((name, n, *cells))
    titles = ("network", "n (baseline, LP)", "accuracy %", "frequency %, baseline", "frequency %, LP")
    more = ("severity, baseline", "severity, LP")
    head = "Each cell: paper (10 000 test images) / ours (*n* images); severity is in levels of a pixel."
    return Shown([head, "", *markdown((*titles, *more), lines), "", *asides(tables)], statements(tables))


NO_NIN = "its network is not public, and training one takes a GPU"


def seconds(tables: Tables, way: str) -> str:
    """The median time of an estimator on the original network, on the wall."""
    found = [float(r["seconds"]) for r in tables.of("distances", network="lenet", way=way)]
    return f"{shown(float(np.median(found)), 2)} s (n = {len(found)})" if found else NOTHING


def asides(tables: Tables) -> list[str]:
    """Rounding, one gradient step, lazy rows: numbers from the paper's text beside ours."""
    rows = [r for r in tables.of("distances", network="lenet", way="baseline") if r["rounded"]]
    lost = [r for r in rows if r["rounded"] == "no"]
    step = tables.of("accuracy", network="lenet")
    lazy = {kind: [float(r["seconds"]) for r in tables.of("lazy", rows=kind)] for kind in ("lazy", "all")}
    median = {kind: float(np.median(v)) if v else None for kind, v in lazy.items()}
    moved = f"{step[0]['moved']} of {step[0]['stepped']}" if step else NOTHING
    lines = [
        (
            "counterexamples of the baseline that rounding loses",
            "8.3 % (training images)",
            f"{len(lost)} of {len(rows)}",
        ),
        ("counterexamples by one signed gradient step of 20 levels", "1 of 10 000 test images", moved),
        ("seconds per image, baseline", "1.5 s", seconds(tables, "baseline")),
        ("seconds per image, linear programs", "1.5 s", seconds(tables, "lp")),
        (
            "a linear program with rows added lazily",
            "1.5 s",
            f"{shown(median['lazy'], 2)} s (n = {len(lazy['lazy'])})",
        ),
        ("with all rows at once", "more than 120 s", f"{shown(median['all'], 2)} s (n = {len(lazy['all'])})"),
        ("network in network on CIFAR-10: accuracy, frequency, severity", "91.31 %, 61.5 %, 2.82", NO_NIN),
        ("the same fine-tuned on linear programs, one round", "90.35 %, 59.6 %, 3.88", NO_NIN),
    ]
    return markdown(("from the text", "paper", "ours"), lines)


def statements(tables: Tables) -> list[Statement]:
    """The paper's conclusions; a tie confirms nothing."""
    counts = {(name, way): distances(tables, name, way)[1] for name in NAMES for way in WAYS}
    value = {pair: frequency(tables, *pair) for pair in counts}

    def less(text: str, small: tuple[str, str], large: tuple[str, str]) -> Statement:
        sample = f"{counts[small]} and {counts[large]} images"
        one, two = value[small], value[large]
        if one is None or two is None:
            return Statement(text, Judgement.UNDECIDED, sample)
        return judged(
            text, apart(one, two, counts[small], counts[large]), sample, f"{one:.2f} and {two:.2f} %."
        )

    last = "2" if counts["lp-2", "lp"] and counts["baseline-2", "lp"] else "1"
    tuned, other = f"lp-{last}", f"baseline-{last}"
    return [
        less(
            "Linear programs find more counterexamples than the baseline",
            ("lenet", "baseline"),
            ("lenet", "lp"),
        ),
        less(
            "Fine-tuning on the linear programs' lowers the frequency that they see",
            (tuned, "lp"),
            ("lenet", "lp"),
        ),
        less("It lowers it more than fine-tuning on the baseline's does", (tuned, "lp"), (other, "lp")),
        less(
            "Fine-tuning on the baseline's lowers the frequency that it sees itself",
            (other, "baseline"),
            ("lenet", "baseline"),
        ),
        kept_accuracy(tables),
    ]


def apart(small: float, large: float, n_small: int, n_large: int) -> bool | None:
    """Whether one share (%) is below the other by more than two standard deviations of their difference; None: no."""
    p, q = small / 100, large / 100
    deviation = 100 * float(np.sqrt(p * (1 - p) / n_small + q * (1 - q) / n_large))
    return None if abs(large - small) <= 2 * deviation else small < large


def kept_accuracy(tables: Tables) -> Statement:
    text = "Fine-tuning does not cost accuracy (a tenth of a point)"
    found = {name: accuracy(tables, name) for name in NAMES}
    have = {name: value for name, value in found.items() if value is not None}
    if "lenet" not in have or len(have) < 2:
        return Statement(text, Judgement.UNDECIDED, f"{len(have)} networks")
    return judged(text, min(have.values()) >= have["lenet"] - 0.1, f"{len(have)} networks, 10 000 images")


def figure(tables: Tables) -> Shown:
    """Figure 3 as numbers: counterexamples within so many levels."""
    steps = (5, 10, 15, 20, 30, 40)
    lines = []
    for way in WAYS:
        for name in NAMES:
            rows = tables.of("distances", network=name, way=way)
            lines.append((way, name, len(rows), *(count_within(rows, level) for level in steps)))
    head = (
        "The paper prints curves without numbers, of 10 000 test images: (a) by the baseline and (b) by linear "
        "programs, for LeNet and both networks of two rounds. Its graph (c) is about network in network on CIFAR-10, "
        "which is not public."
    )
    return Shown([head, "", *markdown(("estimator", "network", "n", *(f"within {s}" for s in steps)), lines)])


def count_within(rows: Sequence[Record], level: float) -> str:
    return str(sum(bool(r["distance"]) and float(r["distance"]) <= level for r in rows)) if rows else NOTHING


def draw(tables: Tables, path: Path) -> None:
    """A curve per network and estimator."""

    def paint(axes: Any) -> None:
        for k, way in enumerate(WAYS):
            for j, name in enumerate(("lenet", "baseline-2", "lp-2")):
                rows = tables.of("distances", network=name, way=way)
                found = sorted(float(r["distance"]) for r in rows if r["distance"])
                if rows:
                    share = np.arange(1, len(found) + 1) / len(rows)
                    axes.step(
                        found,
                        share,
                        where="post",
                        color=f"C{j}",
                        ls="-:"[k],
                        label=f"{name}, {way}, n = {len(rows)}",
                    )
        axes.set(xlabel="levels of a pixel", ylabel="share of test images", xlim=(0, LARGEST))
        axes.legend(fontsize=7)

    picture(path, 6.0, 4.0, paint)
