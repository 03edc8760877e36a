"""The tables of a report as text, for the page and for files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from verifolio.plugin.section import Cells, Table

from .costs import SearchCost
from .statistics import AtRadius, LogNormal, Rounding, TwoSamples
from .summary import Summary


@dataclass(frozen=True)
class Group:
    """One network on one split: all that is said about it."""

    name: str
    summary: Summary
    lower_fit: LogNormal
    upper_fit: LogNormal
    sides: TwoSamples
    rounding: Rounding
    radii: tuple[AtRadius, ...]

    @property
    def network(self) -> str:
        return self.summary.network.removesuffix(".onnx")


def make_tables(
    groups: Sequence[Group], splits: Sequence[TwoSamples], costs: Sequence[SearchCost]
) -> list[Table]:
    """Everything that has rows."""
    tables = [
        _results(groups),
        _quality(groups),
        _radii(groups),
        _counts(groups),
        _fits(groups),
        _two_samples(groups, splits),
        _times(groups),
        _searches(costs),
        _answers(costs),
        _rounding(groups),
    ]
    return [t for t in tables if t.rows]


def _results(groups: Sequence[Group]) -> Table:
    columns = (
        "network",
        "inputs",
        "misclassified",
        "measured",
        "closed",
        "critical terminations",
        "unsolved",
    )
    rows = []
    for g in groups:
        s = g.summary
        counts = (s.inputs, s.misclassified, s.measured, s.closed)
        rows.append(
            (g.name, *map(str, counts), share(s.terminated, s.measured), share(s.unsolved, s.measured))
        )
    return Table("results", "Results", columns, tuple(rows))


def _quality(groups: Sequence[Group]) -> Table:
    """Network by network, with one column per split: the quality measures."""
    parts, splits = by_split(groups)
    several = len(splits) > 1
    columns = [
        f"{what}{f' ({split})' if several else ''}"
        for what in (
            "accuracy on these inputs (%)",
            "log-normal (Lilliefors)",
            "% critical",
            "% unsolved",
            "mean gap",
        )
        for split in splits
    ]
    rows = []
    for network, mine in parts.items():
        cells: list[str] = []
        for pick in (_accuracy, _passed, _critical, _unsolved, _gap):
            cells += [pick(mine[s]) if s in mine else "" for s in splits]
        rows.append((network, *cells))
    return Table("quality", "Quality of the distributions", ("network", *columns), tuple(rows))


def _accuracy(g: Group) -> str:
    return number(100 * g.summary.accuracy)


def _passed(g: Group) -> str:
    fit = g.lower_fit
    return (
        "invalid" if fit.verdict == "invalid" else "no" if fit.verdict == "not log-normal" else "not rejected"
    )


def _critical(g: Group) -> str:
    return number(100 * g.summary.terminated / g.summary.measured) if g.summary.measured else ""


def _unsolved(g: Group) -> str:
    return number(100 * g.summary.unsolved / g.summary.measured) if g.summary.measured else ""


def _gap(g: Group) -> str:
    return number(g.summary.mean_gap)


def _radii(groups: Sequence[Group]) -> Table:
    """Network by network, with one column per split: lowest, mean, how many."""
    columns = (
        "network",
        "lowest proved",
        "mean proved",
        "mean refuted",
        "mean gap",
        "largest gap",
        "measured",
    )
    rows = [(g.name, *map(number, _radius_means(g.summary)), str(g.summary.measured)) for g in groups]
    return Table("radii", "Radii", columns, tuple(rows))


def _radius_means(s: Summary) -> tuple[float, ...]:
    return (s.lowest, s.mean_lower, s.mean_upper, s.mean_gap, s.largest_gap)


def _counts(groups: Sequence[Group]) -> Table:
    title = "Robust accuracy, adversarial frequency and severity"
    columns = (
        "network",
        "radius",
        "robust (% of measured)",
        "robust (% of all)",
        "frequency (%)",
        "severity",
    )
    rows = [
        (
            g.name,
            f"{r.radius:g}",
            r.robust.percent(),
            r.accuracy.percent(),
            r.frequency.percent(),
            r.severity.text(5),
        )
        for g in groups
        for r in g.radii
    ]
    return Table("counts", title, columns, tuple(rows))


def _fits(groups: Sequence[Group]) -> Table:
    title = "Log-normal fits (no shift, positive radii only)"
    columns = ("network", "side", "n", "zeros", "shape", "scale", "KS", "KS p", "Lilliefors p", "at 5 %")
    sides = [(g.name, *side) for g in groups for side in (("proved", g.lower_fit), ("refuted", g.upper_fit))]
    return Table("fits", title, columns, tuple(_fit(name, side, fit) for name, side, fit in sides))


def _fit(name: str, side: str, fit: LogNormal) -> Cells:
    numbers = map(number, (fit.shape, fit.scale, fit.ks, fit.ks_p, fit.lilliefors_p))
    return (name, side, str(fit.count), str(fit.zeros), *numbers, fit.verdict)


def _two_samples(groups: Sequence[Group], splits: Sequence[TwoSamples]) -> Table:
    named: Iterator[tuple[str, TwoSamples]] = ((f"{g.name}: {g.sides.name}", g.sides) for g in groups)
    rows = tuple(
        (name, str(t.first), str(t.second), *map(number, (t.ks, t.ks_p, t.t, t.t_p)))
        for name, t in [*named, *((t.name, t) for t in splits)]
    )
    columns = ("samples", "n", "m", "KS", "KS p", "t", "t-test p")
    return Table("two_samples", "Two samples", columns, rows)


def _times(groups: Sequence[Group]) -> Table:
    columns = ("network", "total s", "mean s", "median s", "most s", "queries", "cancelled", "note")
    rows = tuple(
        (
            *(g.name, *map(number, _seconds(g.summary)), str(g.summary.queries), str(g.summary.cancelled)),
            note(g.summary.reused),
        )
        for g in groups
    )
    return Table("times", "Running time and queries", columns, rows)


def _seconds(s: Summary) -> tuple[float, ...]:
    return (s.seconds, s.mean_seconds, s.median_seconds, s.most_seconds)


def _searches(costs: Sequence[SearchCost]) -> Table:
    columns = (
        *("search", "inputs", "worst case if all are answered", "least queries", "most queries"),
        *("mean queries", "mean s of all queries", "mean s that passed", "mean time-outs", "note"),
    )
    rows = tuple(
        (
            *(c.label, str(c.inputs), "n/a" if c.bound is None else str(c.bound), str(c.least), str(c.most)),
            *map(number, (c.mean, c.mean_busy, c.mean_wall, c.timeouts / c.inputs)),
            note(c.reused),
        )
        for c in costs
    )
    return Table("searches", "Searches: queries and time per input", columns, rows)


def _answers(costs: Sequence[SearchCost]) -> Table:
    columns = ("search", "queries", "time-outs", "out of memory", "cancelled", "cancelled (%)")
    rows = tuple(
        (
            *(c.label, str(c.queries), str(c.timeouts), str(c.memouts), str(c.cancelled)),
            number(100 * c.cancelled / c.queries if c.queries else math.nan),
        )
        for c in costs
    )
    return Table("answers", "Searches: queries without an answer", columns, rows)


def _rounding(groups: Sequence[Group]) -> Table:
    judged = [(g.name, g.rounding) for g in groups if g.rounding.witnesses]
    rows = tuple((name, str(r.witnesses), str(r.lost), number(100 * r.share)) for name, r in judged)
    title = "Counterexamples lost by rounding to stored levels"
    return Table("rounding", title, ("network", "found", "lost", "lost (%)"), rows)


def by_split(groups: Sequence[Group]) -> tuple[Mapping[str, Mapping[str, Group]], list[str]]:
    """Groups by network and split, and the splits in the order they come."""
    parts: dict[str, dict[str, Group]] = {}
    for g in groups:
        parts.setdefault(g.network, {})[g.summary.split] = g
    return parts, list(dict.fromkeys(g.summary.split for g in groups))


def note(reused: int) -> str:
    """Said of inputs with answers that were served from a store."""
    return f"{reused} reused, not in the times" if reused else ""


def number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.2f} %)" if whole else str(part)
