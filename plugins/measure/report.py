"""Measurements for people and programs: a table, CSV files, curves against epsilon."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from .metrics import Item, Row

CURVES = {"csat_low": "proved (CSat)", "csat_high": "not refuted", "csec": "survived (CSec)", "cacc": "CAcc"}


def show(summaries: Sequence[dict[str, object]]) -> None:
    """The table."""
    from verifolio.cli.output import table

    columns = list(dict.fromkeys(k for s in summaries for k in s))
    table(columns, [[_cell(s.get(c, "")) for c in columns] for s in summaries])


def _cell(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.4g}"


def write_summary(path: Path, summaries: Sequence[dict[str, object]]) -> None:
    """One line per network and radius."""
    columns = list(dict.fromkeys(k for s in summaries for k in s))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(summaries)


def write_items(path: Path, rows: Sequence[Row]) -> None:
    """One line per network, radius and input."""
    columns = ["network", "property", "epsilon", *(f.name for f in fields(Item))]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            head = {"network": row.network, "property": row.prop, "epsilon": row.epsilon}
            writer.writerows(head | asdict(item) for item in row.items)


def draw_curves(path: Path, summaries: Sequence[dict[str, object]]) -> None:
    """Every metric of every network against epsilon, in one picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for network in dict.fromkeys(str(s["network"]) for s in summaries):
        own = sorted(
            (s for s in summaries if s["network"] == network), key=lambda s: float(str(s["epsilon"]))
        )
        for key, name in CURVES.items():
            points = [
                (float(str(s["epsilon"])), float(str(s[key])))
                for s in own
                if not math.isnan(float(str(s.get(key, "nan"))))
            ]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=f"{network}: {name}")
    axes.set(xlabel="epsilon", ylabel="inputs (%)", ylim=(-3, 103))
    axes.legend(fontsize="small")
    figure.savefig(path)
