"""Tables 1 and 4 and figure 1: what k queries at a time gain and cost, in real runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import drawing
from ..sources import published
from ..study import Judgement, Record, Shown, Statement, Tables, judged
from ..text import markdown, shown
from .boxes import quantiles
from .subjects import HERE
from .tables import mean_of

KS = ("1", "2", "4", "8", "16")
ROUNDING = 2e-3  # between a printed share and its counts: the paper rounds and cuts


def k_search(tables: Tables, number: int) -> Shown:
    """Tables 1 and 4, from real runs."""
    rows = {k: tables.of("k-binary", k=k) for k in KS}
    lines = []
    for row in published(HERE, f"table{number}"):
        mine = rows[row["k"]]
        lines.append((row["k"], len(mine), *(k_cells(row, mine) if number == 1 else share_cells(row, mine))))
    queries = ("mean queries", "fewest", "most", "most in theory", "CPU s", "wall s", "unanswered per image")
    shares = ("queries", "cancelled", "cancelled, share", "without an answer, share", "printed shares")
    text = "Each cell: paper (all twelve networks, an hour per query) / ours (60 s per query, *n* searches)."
    more = (
        "A search against drawn times is [simulated](../measurements/distributions.md#k-binary-simulated), too."
        if number == 1
        else "Printed shares: cancelled and timeouts, as the paper has them; our other columns divide its counts."
    )
    return Shown(
        [text, more, "", *markdown(("k", "n", *(queries if number == 1 else shares)), lines)],
        k_statements(rows) if number == 1 else [misprinted()],
    )


def column(rows: Sequence[Record], name: str) -> list[float]:
    return [float(r[name]) for r in rows]


def k_cells(row: Record, mine: Sequence[Record]) -> list[str]:
    queries = column(mine, "queries")
    return [
        f"{row['mean_queries']} / {shown(mean_of(queries), 2)}",
        f"{row['fewest']} / {shown(min(queries, default=None), 0)}",
        f"{row['most']} / {shown(max(queries, default=None), 0)}",
        row["most_in_theory"],
        f"{row['cpu_seconds']} / {shown(mean_of(column(mine, 'cpu')), 1)}",
        f"{row['wall_seconds']} / {shown(mean_of(column(mine, 'wall')), 1)}",
        f"{row['timeouts']} / {shown(mean_of(column(mine, 'unanswered')), 2)}",
    ]


def share_cells(row: Record, mine: Sequence[Record]) -> list[str]:
    total = sum(column(mine, "queries"))
    cancelled = sum(column(mine, "cancelled"))
    ours = [sum(column(mine, c)) / total if total else None for c in ("cancelled", "unanswered")]
    errors = (int(row["timeouts"]) + int(row["memouts"])) / int(row["queries"])
    return [
        f"{row['queries']} / {shown(total if mine else None, 0)}",
        f"{row['cancelled']} / {shown(cancelled if mine else None, 0)}",
        f"{int(row['cancelled']) / int(row['queries']):.3f} / {shown(ours[0])}",
        f"{errors:.3f} / {shown(ours[1])}",
        f"{row['cancelled_ratio']}, {row['timeout_ratio']}",
    ]


def misprinted() -> Statement:
    """The paper's shares against its own counts."""
    pairs = (("cancelled", "cancelled_ratio"), ("timeouts", "timeout_ratio"), ("memouts", "memout_ratio"))
    rows = published(HERE, "table4")
    wrong = [
        f"k = {row['k']}, {name}: {row[ratio]} is {int(row[name]) / int(row['queries']):.3f}"
        for row in rows
        for name, ratio in pairs
        if abs(float(row[ratio]) - int(row[name]) / int(row["queries"])) > ROUNDING
    ]
    text = "The printed shares are those of the printed counts"
    return judged(text, not wrong, f"{len(rows)} lines", f"{'; '.join(wrong)}." if wrong else "")


def k_statements(rows: dict[str, list[Record]]) -> list[Statement]:
    """On the searches that every k has."""
    have = {k: {(r["network"], r["image"]): r for r in part} for k, part in rows.items() if part}
    both = set.intersection(*(set(v) for v in have.values())) if len(have) >= 2 else set()
    sample = f"{len(both)} searches, k = {', '.join(have)}"
    texts = (
        "k = 2 needs the fewest queries on average",
        "All k end with the same bracket",
        "More queries at a time cost more processor time",
    )
    if not both:
        return [Statement(t, Judgement.UNDECIDED, sample) for t in texts]
    mean = {k: mean_of([float(v[p]["queries"]) for p in both]) or 0.0 for k, v in have.items()}
    cpu = [mean_of([float(v[p]["cpu"]) for p in both]) or 0.0 for v in have.values()]
    closed = [p for p in both if all(v[p]["unanswered"] == "0" for v in have.values())]
    same = all(len({(v[p]["lower"], v[p]["upper"]) for v in have.values()}) == 1 for p in closed)
    told = ", ".join(f"{k}: {m:.1f}" for k, m in mean.items())
    reason = f"Here {told}; in the paper k = 1 repeats thousands of queries that ran out of memory."
    return [
        judged(texts[0], min(mean, key=mean.__getitem__) == "2", sample, reason),
        judged(texts[1], same if closed else None, f"{len(closed)} searches without an open query"),
        judged(texts[2], cpu == sorted(cpu), sample, ", ".join(f"{c:.1f} s" for c in cpu) + "."),
    ]


def clocks(tables: Tables) -> Shown:
    """Figure 1."""
    lines = [
        (k, len(rows), *quantiles(column(rows, "wall"))[1:4], *quantiles(column(rows, "cpu"))[1:4])
        for k in KS
        if (rows := tables.of("k-binary", k=k))
    ]
    titles = ("k", "n", "wall s: quartile", "median", "quartile", "CPU s: quartile", "median", "quartile")
    return Shown(markdown(titles, lines) if lines else ["No rows yet."])


def draw_clocks(tables: Tables, path: Path) -> None:
    found = {f"k = {k}": column(tables.of("k-binary", k=k), "cpu") for k in KS}
    drawing.times(path, found, "processor seconds")
