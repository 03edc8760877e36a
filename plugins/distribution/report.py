"""A distribution's part of a report: statistics as tables, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from verifolio.errors import InputError
from verifolio.files.names import safe_name
from verifolio.plugin.section import Content, Material, Section

from . import figures, figures_between
from .costs import SearchCost, search_costs
from .ledger import DistributionLedger
from .statistics import (
    TwoSamples,
    at_radius,
    compare,
    fit_lognormal,
    rank_correlation,
    rounding_losses,
)
from .summary import summarise
from .table import Row, read_csv
from .tables import Group, make_tables

REPORT = "distribution"
SQLITE = b"SQLite format 3\x00"


def load_rows(sources: Sequence[Path], run: str = "") -> tuple[list[Row], float]:
    """The rows of stores (their last run, or the named one) and tables, and the resolution asked for."""
    rows: list[Row] = []
    step = 0.0
    for source in sources:
        if not source.is_file():
            raise InputError(str(source), "a store or a table of a distribution", "no such file")
        if not is_store(source):
            rows += read_csv(source)
            continue
        with DistributionLedger(source) as ledger:
            runs = dict(ledger.runs())
            if not runs or (run and run not in runs):
                got = f"the runs {', '.join(runs) or 'none'}"
                raise InputError(str(source), f"run {run}" if run else "a distribution", got)
            chosen = run or list(runs)[-1]
            rows += ledger.rows(chosen)
            step = max(step, resolution(runs[chosen]))
    if not any(r.measured for r in rows):
        raise InputError(str(sources[0]), "at least one measured input", f"{len(rows)} rows without any")
    return rows, step


def load_costs(sources: Sequence[Path]) -> list[SearchCost]:
    """What every run in the stores cost."""
    with ExitStack() as stack:
        return search_costs([stack.enter_context(DistributionLedger(s)) for s in sources if is_store(s)])


def is_store(source: Path) -> bool:
    with source.open("rb") as stream:
        return stream.read(16) == SQLITE


def resolution(settings: dict[str, Any]) -> float:
    """The grid step, or the tolerance of a bracket."""
    radii = settings.get("radii") or []
    if len(radii) > 1:
        return float(min(b - a for a, b in pairwise(radii)))
    return float(settings.get("tolerance", 0.0))


@dataclass(frozen=True, eq=False)
class DistributionMaterial(Material):
    """What our own sections are made of, beside the records."""

    rows: Sequence[Row]
    parts: dict[str, list[Row]]
    radii: tuple[float, ...]
    groups: tuple[Group, ...]
    splits: tuple[TwoSamples, ...]
    correlations: dict[str, tuple[list[str], Any]]
    costs: tuple[SearchCost, ...]


class Statistics(Section):
    """Every table."""

    name, report = "statistics", REPORT

    def make(self, material: DistributionMaterial) -> Content:
        return Content(tuple(make_tables(material.groups, material.splits, material.costs)))


class Pictures(Section):
    """Pictures of single distributions."""

    name, report = "pictures", REPORT

    def make(self, material: DistributionMaterial) -> Content:
        m = material
        return Content(pictures=tuple(_draw(m.parts, m.radii, m.correlations, m.folder)))


class Comparisons(Section):
    """Pictures that need two networks, two splits or a store."""

    name, report = "comparisons", REPORT

    def make(self, material: DistributionMaterial) -> Content:
        m = material
        return Content(pictures=tuple(_draw_between(m.rows, m.correlations, m.costs, m.folder)))


SECTIONS = (Statistics, Pictures, Comparisons)


def make_material(
    rows: Sequence[Row],
    folder: Path,
    radii: tuple[float, ...],
    step: float = 0.0,
    costs: Sequence[SearchCost] = (),
) -> DistributionMaterial:
    """All statistics of the rows, for sections."""
    parts = group_rows(rows)
    groups = tuple(_group(name, part, radii, step) for name, part in parts.items())
    records = [asdict(r) | {"status": r.status.value, "gap": r.gap} for r in rows]
    between = (_between_splits(rows), _correlations(rows))
    return DistributionMaterial(records, folder, rows, parts, radii, groups, *between, tuple(costs))


def group_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by network and split; the split is only named where there are several."""
    several = len({r.split for r in rows}) > 1
    found: dict[str, list[Row]] = {}
    for row in rows:
        name = row.network.removesuffix(".onnx")
        found.setdefault(f"{name} {row.split}" if several else name, []).append(row)
    return found


def default_radii(rows: Sequence[Row]) -> tuple[float, ...]:
    """Three round radii where something happens: quartiles of the proved ones."""
    import numpy as np

    values = sorted(r.lower for r in rows if r.measured and r.lower)
    if not values:
        return (0.01,)
    return tuple(sorted({float(f"{np.quantile(values, q):.1g}") for q in (0.25, 0.5, 0.75)}))


def _group(name: str, rows: list[Row], radii: tuple[float, ...], step: float) -> Group:
    low, high = figures.lowers(rows), figures.uppers(rows)
    return Group(
        name,
        summarise(rows[0].network, rows[0].split, rows, step),
        fit_lognormal(low),
        fit_lognormal(high),
        compare("proved and refuted radii", low, high),
        rounding_losses(rows),
        tuple(at_radius(rows, r) for r in radii),
    )


def _between_splits(rows: Sequence[Row]) -> tuple[TwoSamples, ...]:
    """Every two splits of every network."""
    found = []
    for network in dict.fromkeys(r.network for r in rows):
        mine = [r for r in rows if r.network == network]
        splits = list(dict.fromkeys(r.split for r in mine))
        for i, one in enumerate(splits):
            for other in splits[i + 1 :]:
                first = figures.lowers([r for r in mine if r.split == one])
                second = figures.lowers([r for r in mine if r.split == other])
                found.append(compare(f"{network}: {one} and {other}", first, second))
    return tuple(found)


def _correlations(rows: Sequence[Row]) -> dict[str, tuple[list[str], Any]]:
    """Per split, where there are at least two networks."""
    found = {}
    for split in dict.fromkeys(r.split for r in rows):
        radii: dict[str, dict[int, float]] = {}
        for r in rows:
            if r.split == split and r.measured and r.lower is not None:
                radii.setdefault(r.network.removesuffix(".onnx"), {})[r.image_id] = r.lower
        if len(radii) > 1:
            found[split] = rank_correlation(radii)
    return found


def _draw(
    parts: dict[str, list[Row]],
    radii: Sequence[float],
    correlations: dict[str, tuple[list[str], Any]],
    out: Path,
) -> list[tuple[str, Path]]:
    """Every picture of single distributions with its caption."""
    pictures: list[tuple[str, Path | None]] = [
        ("Share of inputs with a critical radius up to r", figures.draw_ecdf(out / "ecdf.svg", parts)),
        ("Proved radii, ordered by the smallest", figures.draw_boxes(out / "boxes.svg", parts, radii)),
        ("Density of proved radii", figures.draw_histogram(out / "histogram.svg", parts)),
        ("Inputs with a counterexample within r", figures.draw_counts(out / "counts.svg", parts, radii)),
        ("Running time", figures.draw_times(out / "times.svg", parts)),
    ]
    for split, (names, matrix) in correlations.items():
        path = figures.draw_heat_map(out / f"spearman_{safe_name(split)}.svg", names, matrix)
        pictures.append((f"Rank correlation between networks, {split}", path))
    return [(caption, path) for caption, path in pictures if path is not None]


def _draw_between(
    rows: Sequence[Row],
    correlations: dict[str, tuple[list[str], Any]],
    costs: Sequence[SearchCost],
    out: Path,
) -> list[tuple[str, Path]]:
    """Pictures that need two networks, two splits or a store; those that do not exist are left out."""
    networks: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        networks.setdefault(row.network.removesuffix(".onnx"), {}).setdefault(row.split, []).append(row)
    splits = list(dict.fromkeys(r.split for r in rows))
    between = figures_between
    made = [
        (
            f"The most robust networks and the least robust one, {splits[0]}",
            between.draw_extremes(out / "extremes.svg", networks, splits[0]),
        ),
        (
            f"Proved radii by {' and '.join(splits)}",
            between.draw_split_boxes(out / "split_boxes.svg", networks, splits),
        ),
        (
            f"Distributions on {' and '.join(splits)}",
            between.draw_split_curves(out / "split_curves.svg", networks, splits),
        ),
        (
            "Input by input, most and least alike networks",
            between.draw_scatter(out / "scatter.svg", networks, correlations),
        ),
        ("Running time by search", between.draw_search_times(out / "searches.svg", costs)),
    ]
    return [(caption, path) for caption, path in made if path is not None]
