"""Pictures that compare: splits of one network, networks with each other, searches with each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.plugin.palette import PALETTE, colours

from .costs import SearchCost
from .figures import DASHES, in_percent, log_seconds, lowers, save
from .statistics import brackets
from .table import Row

Array = NDArray[np.float64]
HATCHES = ("", "//", "..")  # by split
Splits = Mapping[str, Mapping[str, Sequence[Row]]]  # network -> split -> rows


def panels(count: int, width: float = 4.2, height: float = 3.6) -> tuple[Any, list[Any]]:
    """A figure with `count` axes, two in a row."""
    from matplotlib.figure import Figure

    across, down = min(2, count), (count + 1) // 2
    figure = Figure(figsize=(max(5.0, width * across), height * down), layout="constrained")
    return figure, [figure.add_subplot(down, across, k + 1) for k in range(count)]


def by_median(networks: Splits, split: str) -> list[str]:
    """Networks with radii on a split, the most robust first."""
    found = {n: lowers(parts[split]) for n, parts in networks.items() if lowers(parts.get(split, ()))}
    return sorted(found, key=lambda n: (-float(np.median(found[n])), n))


def _step(axes: Any, rows: Sequence[Row], label: str, colour: str, top: float, dash: str) -> None:
    """The share of inputs with a proved radius below r, and the band up to the refuted ones."""
    pairs = brackets(rows)
    grid = np.unique([0.0, top, *(v for p in pairs for v in p if math.isfinite(v))])
    high = np.searchsorted(np.sort([lo for lo, _ in pairs]), grid, "right") / len(pairs)
    low = np.searchsorted(np.sort([up for _, up in pairs]), grid, "right") / len(pairs)
    axes.step(grid, high, where="post", color=colour, lw=1.3, ls=dash, label=label)
    axes.fill_between(grid, low, high, step="post", color=colour, alpha=0.25, lw=0)


def _curves(axes: Any, curves: Sequence[tuple[str, Sequence[Row], str, str]], title: str) -> None:
    """Curves with their names, colours and dashes."""
    top = 1.05 * max((v for _, rows, _, _ in curves for v in lowers(rows)), default=1.0)
    for label, rows, colour, dash in curves:
        _step(axes, rows, label, colour, top, dash)
    axes.set(xlabel="radius", ylabel="share of inputs", ylim=(0, 1.02), xlim=(0, top))
    in_percent(axes.yaxis)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="lower right")
    axes.grid(alpha=0.3)


def draw_extremes(path: Path, networks: Splits, split: str) -> Path | None:
    """The most robust network against the second and against the least, by their medians."""
    order = by_median(networks, split)
    if len(order) < 2:
        return None
    pairs = [(order[0], order[1]), (order[0], order[-1])] if len(order) > 2 else [(order[0], order[1])]
    figure, axes = panels(len(pairs))
    for one, pair in zip(axes, pairs, strict=True):
        shown = [(n, networks[n][split], colours(networks)[n], DASHES[0]) for n in pair]
        _curves(one, shown, f"{pair[0]} and {pair[1]}, {split}")
    return save(figure, path)


def draw_split_curves(path: Path, networks: Splits, splits: Sequence[str]) -> Path | None:
    """Both splits of the networks with the highest and the lowest median."""
    order = [n for n in by_median(networks, splits[0]) if all(lowers(networks[n].get(s, ())) for s in splits)]
    if len(splits) < 2 or not order:
        return None
    chosen = list(dict.fromkeys([order[0], order[-1]]))
    figure, axes = panels(len(chosen))
    for one, name in zip(axes, chosen, strict=True):
        colour = colours(networks)[name]
        _curves(one, [(s, networks[name][s], colour, d) for s, d in zip(splits, DASHES, strict=False)], name)
    return save(figure, path)


def draw_split_boxes(path: Path, networks: Splits, splits: Sequence[str]) -> Path | None:
    """Proved radii of every network, split by split, ordered by the smallest of the first split."""
    if len(splits) < 2:
        return None
    found = {n: [lowers(parts.get(s, ())) for s in splits] for n, parts in networks.items()}
    order = sorted(found, key=lambda n: (min(found[n][0], default=0.0), n))
    figure, (axes,) = panels(1, 7.0, 1.2 + 0.45 * max(3, len(order)) * len(splits) / 1.5)
    width = 0.8 / len(splits)
    for k, split in enumerate(splits):
        places = [i + (k - (len(splits) - 1) / 2) * width for i in range(len(order))]
        drawn = axes.boxplot(
            [found[n][k] for n in order],
            positions=places,
            widths=0.85 * width,
            orientation="horizontal",
            patch_artist=True,
            flierprops={"ms": 3},
            medianprops={"color": "black"},
        )
        for name, box in zip(order, drawn["boxes"], strict=True):
            box.set(facecolor=colours(networks)[name], alpha=0.6, hatch=HATCHES[k % len(HATCHES)])
        drawn["boxes"][0].set_label(split)
    axes.set_yticks(range(len(order)), order, fontsize=8)
    axes.set(xlabel="proved radius", xlim=(0, None))
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    return save(figure, path)


def draw_scatter(
    path: Path, networks: Splits, correlations: Mapping[str, tuple[list[str], Array]]
) -> Path | None:
    """Input by input: the two networks that agree most and those that agree least, on every split."""
    chosen = [
        (split, *pair) for split, (names, rho) in correlations.items() for pair in extreme_pairs(names, rho)
    ]
    if not chosen:
        return None
    figure, axes = panels(len(chosen), 4.2, 4.2)
    for one, (split, first, second, rho) in zip(axes, chosen, strict=True):
        _scatter(one, networks[first].get(split, ()), networks[second].get(split, ()))
        one.set(xlabel=f"proved radius, {first}", ylabel=f"proved radius, {second}")
        one.set_title(f"{split}: Spearman's rho {rho:.2f}", fontsize=10)
    return save(figure, path)


def extreme_pairs(names: Sequence[str], rho: Array) -> list[tuple[str, str, float]]:
    """The pairs of networks with the highest and the lowest correlation."""
    found = [
        (float(rho[i, j]), names[i], names[j])
        for i in range(len(names))
        for j in range(i)
        if not math.isnan(rho[i, j])
    ]
    if not found:
        return []
    picked = [max(found), min(found)] if len(found) > 1 else found
    return [(a, b, value) for value, a, b in picked]


def _scatter(axes: Any, first: Sequence[Row], second: Sequence[Row]) -> None:
    """Dots where both classify correctly, crosses (at zero) where one does not."""
    a, b = ({r.image_id: r.lower if r.measured else None for r in rows} for rows in (first, second))
    both = [(x, y) for i in a.keys() & b.keys() if (x := a[i]) is not None and (y := b[i]) is not None]
    wrong = [(a[i] or 0.0, b[i] or 0.0) for i in a.keys() & b.keys() if a[i] is None or b[i] is None]
    top = 1.05 * max((v for p in [*both, *wrong] for v in p), default=1.0)
    axes.plot([0, top], [0, top], color="grey", lw=0.8, ls=":")
    axes.plot(*zip(*both, strict=True), "o", ms=3.5, color="0.25", alpha=0.7, label="both correct")
    if wrong:
        axes.plot(*zip(*wrong, strict=True), "x", ms=5, color="0.6", label="one misclassifies")
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top), aspect="equal")
    axes.legend(fontsize=7, loc="upper left")


def draw_search_times(path: Path, costs: Sequence[SearchCost]) -> Path | None:
    """The share of inputs finished within a time: seconds that passed, and seconds of all queries."""
    costs = [c for c in costs if c.wall]
    if not costs:
        return None
    figure, axes = panels(2)
    for one, name in zip(axes, ("wall", "busy"), strict=True):
        for k, cost in enumerate(costs):
            times = np.sort([max(t, 1e-3) for t in getattr(cost, name)])
            share = np.arange(len(times) + 1) / len(times)
            one.step(
                [times[0], *times], share, where="post", color=PALETTE[k % len(PALETTE)], label=cost.label
            )
        one.set(ylim=(0, 1.02), ylabel="share of inputs")
        in_percent(one.yaxis)
        log_seconds(one, "seconds" if name == "wall" else "seconds of all queries together")
        one.grid(alpha=0.3)
        one.legend(fontsize=8, loc="upper left")
    return save(figure, path)
