"""Pictures of distributions: boxes, step curves with their bands, points against each other, a heat map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .statistics import Side

DPI = 110  # readable on a page, and a small file


def picture(path: Path, width: float, height: float, paint: Callable[[Any], None]) -> None:
    """One set of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    paint(figure.subplots())
    figure.savefig(path, dpi=DPI)


def boxes(
    path: Path, groups: Mapping[str, Sequence[float]], ylabel: str, lines: Sequence[float] = ()
) -> None:
    """A box per group; horizontal lines where a figure has them."""
    kept = {name: list(values) for name, values in groups.items() if len(values)}

    def paint(axes: Any) -> None:
        axes.boxplot(list(kept.values()), widths=0.6)
        axes.set_xticks(
            range(1, len(kept) + 1), [f"{n}\nn = {len(v)}" for n, v in kept.items()], rotation=60, fontsize=7
        )
        axes.set_ylabel(ylabel)
        for y in lines:
            axes.axhline(y, color="grey", lw=0.8, ls=":")

    if kept:
        picture(path, max(5.0, 1 + 0.7 * len(kept)), 4.0, paint)


def curves(path: Path, groups: Mapping[str, Side], overlay: bool = False) -> None:
    """The share of inputs with a counterexample within a radius; the band is what is neither proved nor refuted."""
    kept = {name: side for name, side in groups.items() if side.pairs}

    def paint(axes: Any) -> None:
        for k, (name, side) in enumerate(kept.items()):
            low, high = (np.sort([p[j] for p in side.pairs]) for j in (0, 1))
            share = np.arange(1, len(low) + 1) / len(low)
            axes.step(low, share, where="post", color=f"C{k}", label=f"{name}, n = {len(low)}")
            axes.fill_betweenx(share, low, high, step="pre", color=f"C{k}", alpha=0.25)
            if overlay:
                fitted(axes, low)
        axes.set(xlabel="radius", ylabel="share of inputs")
        axes.legend(fontsize=7)

    if kept:
        picture(path, 6.0, 4.0, paint)


def fitted(axes: Any, values: Any) -> None:
    """The log-normal distribution of the positive values."""
    from scipy import stats

    positive = values[values > 0]
    if len(positive) > 2:
        grid = np.linspace(positive.min(), positive.max(), 100)
        axes.plot(grid, stats.lognorm.cdf(grid, *stats.lognorm.fit(positive, floc=0)), "r:", lw=1)


def scatter(path: Path, panels: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """A panel per pair of networks."""
    from matplotlib.figure import Figure

    kept = {name: points for name, points in panels.items() if len(points)}
    if not kept:
        return
    figure = Figure(figsize=(4.0 * len(kept), 4.0), layout="constrained")
    for k, (name, points) in enumerate(kept.items(), 1):
        axes = figure.add_subplot(1, len(kept), k)
        axes.plot([p[0] for p in points], [p[1] for p in points], ".", ms=4)
        axes.set_title(f"{name}, n = {len(points)}", fontsize=8)
    figure.savefig(path, dpi=DPI)


def heat(path: Path, names: Sequence[str], values: Mapping[tuple[str, str], float]) -> None:
    """Symmetric values of pairs; pairs without one stay white."""
    grid = np.full((len(names), len(names)), np.nan)
    for (a, b), value in values.items():
        i, j = names.index(a), names.index(b)
        grid[i, j] = grid[j, i] = value

    def paint(axes: Any) -> None:
        axes.imshow(grid, vmin=0, vmax=1, cmap="viridis")
        axes.set_xticks(range(len(names)), names, rotation=60, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        for i, j in zip(*np.nonzero(np.isfinite(grid)), strict=True):
            axes.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", fontsize=6, color="white")

    if np.isfinite(grid).any():
        picture(path, 6.0, 5.5, paint)


def times(path: Path, groups: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """How many are done after how long."""
    kept = {name: np.sort(list(values)) for name, values in groups.items() if len(values)}

    def paint(axes: Any) -> None:
        for name, values in kept.items():
            axes.step(values, np.arange(1, len(values) + 1) / len(values), where="post", label=name)
        axes.set(xlabel=xlabel, ylabel="share of searches", xscale="log")
        axes.legend(fontsize=7)

    if kept:
        picture(path, 6.0, 4.0, paint)
