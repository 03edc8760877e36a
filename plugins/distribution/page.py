"""The page of a report: tables and pictures in one self-contained HTML file."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .statistics import AtRadius, LogNormal, Rounding, TwoSamples
from .summary import Summary

STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:.6em 0 1.6em;display:block;overflow-x:auto}"
    "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}h2{margin-top:1.8em}p{max-width:48em}"
)


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


def make_page(
    groups: Sequence[Group], splits: Sequence[TwoSamples], pictures: Sequence[tuple[str, Path]]
) -> str:
    """The page."""
    sections = [
        _results(groups),
        _radii(groups),
        _counts(groups),
        _fits(groups),
        _two_samples(groups, splits),
        _times(groups),
        _rounding(groups),
        *(_picture(caption, path) for caption, path in pictures),
    ]
    title = "Robustness distributions"
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>"
        "<p>A critical radius is the distance of the closest counterexample. Its lower side is proved, its "
        "upper side is the distance of a counterexample that was replayed; every count below is an interval "
        f"between what is proved and what is not refuted.</p>{''.join(sections)}</body></html>\n"
    )


def _results(groups: Sequence[Group]) -> str:
    columns = (
        "network",
        "inputs",
        "misclassified",
        "measured",
        "closed",
        "critical terminations",
        "unsolved",
    )
    return _table("Results", columns, [_result(g.name, g.summary) for g in groups])


def _result(name: str, s: Summary) -> tuple[object, ...]:
    share = f" ({100 * s.terminated / s.measured:.2f} %)" if s.measured else ""
    return (name, s.inputs, s.misclassified, s.measured, s.closed, f"{s.terminated}{share}", s.unsolved)


def _radii(groups: Sequence[Group]) -> str:
    columns = ("network", "lowest proved", "mean proved", "mean refuted", "mean gap", "largest gap")
    return _table("Radii", columns, [(g.name, *map(_n, _radius_means(g.summary))) for g in groups])


def _radius_means(s: Summary) -> tuple[float, ...]:
    return (s.lowest, s.mean_lower, s.mean_upper, s.mean_gap, s.largest_gap)


def _counts(groups: Sequence[Group]) -> str:
    title = "Robust accuracy, adversarial frequency and severity"
    columns = ("network", "radius", "robust (of measured)", "robust (of all)", "frequency", "severity")
    rows = [
        (g.name, f"{r.radius:g}", r.robust.text(), r.accuracy.text(), r.frequency.text(), r.severity.text(5))
        for g in groups
        for r in g.radii
    ]
    return _table(title, columns, rows)


def _fits(groups: Sequence[Group]) -> str:
    title = "Log-normal fits (no shift, positive radii only)"
    columns = ("network", "side", "n", "zeros", "shape", "scale", "KS", "KS p", "Lilliefors p", "at 5 %")
    sides = [(g.name, *side) for g in groups for side in (("proved", g.lower_fit), ("refuted", g.upper_fit))]
    return _table(title, columns, [_fit(name, side, fit) for name, side, fit in sides])


def _fit(name: str, side: str, fit: LogNormal) -> tuple[object, ...]:
    numbers = map(_n, (fit.shape, fit.scale, fit.ks, fit.ks_p, fit.lilliefors_p))
    return (name, side, fit.count, fit.zeros, *numbers, fit.verdict)


def _two_samples(groups: Sequence[Group], splits: Sequence[TwoSamples]) -> str:
    named: Iterator[tuple[str, TwoSamples]] = ((f"{g.name}: {g.sides.name}", g.sides) for g in groups)
    rows = [
        (name, t.first, t.second, *map(_n, (t.ks, t.ks_p, t.t, t.t_p)))
        for name, t in [*named, *((t.name, t) for t in splits)]
    ]
    return _table("Two samples", ("samples", "n", "m", "KS", "KS p", "t", "t-test p"), rows)


def _times(groups: Sequence[Group]) -> str:
    columns = ("network", "total s", "mean s", "median s", "most s", "queries", "cancelled")
    rows = [(g.name, *map(_n, _seconds(g.summary)), g.summary.queries, g.summary.cancelled) for g in groups]
    return _table("Running time and queries", columns, rows)


def _seconds(s: Summary) -> tuple[float, ...]:
    return (s.seconds, s.mean_seconds, s.median_seconds, s.most_seconds)


def _rounding(groups: Sequence[Group]) -> str:
    judged = [(g.name, g.rounding) for g in groups if g.rounding.witnesses]
    if not judged:
        return ""
    rows = [(name, r.witnesses, r.lost, _n(r.share)) for name, r in judged]
    title = "Counterexamples lost by rounding to stored levels"
    return _table(title, ("network", "found", "lost", "share"), rows)


def _n(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<h2>{html.escape(title)}</h2><table><tr>{head}</tr>{body}</table>"


def _picture(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<h2>{text}</h2><img alt='{text}' src='data:image/png;base64,{data}'>"
