"""The pictures: ECDF bands, box plots, histograms, heat maps, cumulative counts, counterexamples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verifolio.plugin.palette import colours

from .statistics import brackets, fit_lognormal
from .table import Row

if TYPE_CHECKING:
    from .family import Family
    from .radius_search import Critical

Array = NDArray[np.float64]
Groups = Mapping[str, Sequence[Row]]
DPI = 110  # readable on a screen in files of some ten kilobytes
DASHES = ("-", "--", ":")  # by split
BESIDE = 4  # curves whose legend fits into a plot


def _plot(width: float = 7.0, height: float = 4.4) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def save(figure: Any, path: Path) -> Path:
    """Written as `path` says; what is drawn as SVG is there as PDF too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    if path.suffix == ".svg":
        figure.savefig(path.with_suffix(".pdf"))
    return path


def whole(axis: Any) -> None:
    """Ticks at whole numbers only: there are no half inputs."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def in_percent(axis: Any) -> None:
    """Shares as percent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))


def colour_of(groups: Groups) -> dict[str, str]:
    """By group the colour of its network, the same in every picture and on the page."""
    names = {group: rows[0].network if rows else group for group, rows in groups.items()}
    found = colours(names.values())
    return {group: found[name] for group, name in names.items()}


def dash_of(groups: Groups) -> dict[str, str]:
    """By group how the lines of its split are drawn."""
    splits = list(dict.fromkeys(rows[0].split for rows in groups.values() if rows))
    return {
        group: DASHES[splits.index(rows[0].split) % len(DASHES)] if rows else "-"
        for group, rows in groups.items()
    }


def _legend(axes: Any, count: int, place: str) -> None:
    """Inside while it is small, else beside the plot, where it hides nothing."""
    if count > BESIDE:
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    elif count > 1:
        axes.legend(fontsize=8, loc=place)


def _wide(count: int) -> float:
    return 9.5 if count > BESIDE else 7.0


def log_seconds(axes: Any, label: str) -> None:
    """A logarithmic axis with plain numbers, few enough to be read."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axes.set(xscale="log", xlabel=label)
    low, high = axes.get_xlim()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def lowers(rows: Sequence[Row]) -> list[float]:
    return [low for low, _ in brackets(rows)]


def uppers(rows: Sequence[Row]) -> list[float]:
    return [up for _, up in brackets(rows) if math.isfinite(up)]


def draw_ecdf(path: Path, groups: Groups, norm: str = "") -> Path:
    """Share of inputs with a critical radius up to r, between both sides."""
    figure, axes = _plot(_wide(len(groups)))
    top = max((v for rows in groups.values() for v in [*uppers(rows), *lowers(rows)]), default=1.0)
    colour, dash = colour_of(groups), dash_of(groups)
    for name, rows in groups.items():
        pairs = brackets(rows)
        if not pairs:
            continue
        grid = np.unique([0.0, top * 1.05, *(v for p in pairs for v in p if math.isfinite(v))])
        low = np.searchsorted(np.sort([up for _, up in pairs]), grid, "right") / len(pairs)
        high = np.searchsorted(np.sort([lo for lo, _ in pairs]), grid, "right") / len(pairs)
        axes.step(grid, high, where="post", color=colour[name], lw=1.3, ls=dash[name], label=name)
        axes.step(grid, low, where="post", color=colour[name], lw=0.6, ls=dash[name])
        axes.fill_between(grid, low, high, step="post", color=colour[name], alpha=0.25, lw=0)
    axes.set(xlabel=f"radius {norm}".strip(), ylabel="share of inputs", ylim=(0, 1.02), xlim=(0, None))
    in_percent(axes.yaxis)
    axes.set_title("Critical radii: proved (thick), refuted (thin)", fontsize=10)
    _legend(axes, len(groups), "lower right")
    return save(figure, path)


def draw_boxes(path: Path, groups: Groups, thresholds: Sequence[float] = ()) -> Path:
    """Proved radii per network, ordered by the smallest, with lines at some radii."""
    found = {n: lowers(r) for n, r in groups.items() if lowers(r)}
    order = sorted(found, key=lambda n: (min(found[n]), n))
    figure, axes = _plot(height=1.2 + 0.5 * max(3, len(order)))
    drawn = axes.boxplot(
        [found[n] for n in order],
        orientation="horizontal",
        widths=0.6,
        patch_artist=True,
        flierprops={"ms": 3},
        medianprops={"color": "black"},
    )
    for name, box in zip(order, drawn["boxes"], strict=True):
        box.set(facecolor=colour_of(groups)[name], alpha=0.5)
    axes.set_yticks(range(1, len(order) + 1), order, fontsize=8)
    for value in thresholds:
        axes.axvline(value, color="grey", lw=0.8, ls=":")
    axes.set(xlabel="proved radius", xlim=(0, None))
    axes.grid(axis="x", alpha=0.3)
    return save(figure, path)


def draw_histogram(path: Path, groups: Groups) -> Path:
    """Proved radii as histograms with a kernel density and the fitted log-normal density, one per group."""
    from matplotlib.figure import Figure

    found = {n: np.array(lowers(r)) for n, r in groups.items() if lowers(r)}
    top = max((float(v.max()) for v in found.values()), default=1.0) or 1.0
    across = min(3, len(found))
    down = math.ceil(len(found) / across)
    figure = Figure(figsize=(1.2 + 3.2 * across, 0.8 + 2.2 * down), layout="constrained")
    colour = colour_of(groups)
    for k, (name, values) in enumerate(found.items()):
        _histogram(figure.add_subplot(down, across, k + 1), name, values, top, colour[name])
    figure.supxlabel("proved radius", fontsize=10)
    figure.supylabel("density", fontsize=10)
    figure.suptitle("Histogram, kernel density (solid), log-normal fit (dotted)", fontsize=10)
    return save(figure, path)


def _histogram(axes: Any, name: str, values: Array, top: float, colour: str) -> None:
    from scipy import stats

    grid = np.linspace(top / 400, top * 1.1, 300)
    axes.hist(values, bins=np.linspace(0, top * 1.02, 20).tolist(), density=True, alpha=0.3, color=colour)
    if len(values) > 2 and np.ptp(values) > 0:
        axes.plot(grid, stats.gaussian_kde(values)(grid), color=colour, lw=1.4)
    fit = fit_lognormal(values.tolist())
    if not math.isnan(fit.shape):
        axes.plot(grid, stats.lognorm.pdf(grid, fit.shape, 0, fit.scale), color="black", lw=1.0, ls=":")
    axes.set_xlim(0, top * 1.1)
    axes.set_title(name, fontsize=9)


def draw_heat_map(path: Path, names: Sequence[str], matrix: Array) -> Path:
    """Rank correlations between networks."""
    size = 2.6 + 0.55 * len(names)
    figure, axes = _plot(size + 1.2, size)
    image = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for i, j in np.ndindex(matrix.shape):
        if not math.isnan(matrix[i, j]):
            colour = "white" if abs(matrix[i, j]) > 0.6 else "black"
            axes.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=8, color=colour)
    figure.colorbar(image, ax=axes, shrink=0.8, label="Spearman's rho")
    return save(figure, path)


def draw_counts(path: Path, groups: Groups, thresholds: Sequence[float] = ()) -> Path:
    """How many inputs have a counterexample within r: at least (thin), at most (thick)."""
    figure, axes = _plot(_wide(len(groups)))
    top = 1.03 * max((v for rows in groups.values() for v in [*uppers(rows), *lowers(rows)]), default=1.0)
    colour, dash = colour_of(groups), dash_of(groups)
    for name, rows in groups.items():
        pairs = brackets(rows)
        grid = np.unique([0.0, top, *(v for p in pairs for v in p if math.isfinite(v))])
        low = np.searchsorted(np.sort([up for _, up in pairs]), grid, "right")
        high = np.searchsorted(np.sort([lo for lo, _ in pairs]), grid, "right")
        axes.step(grid, high, where="post", color=colour[name], lw=1.3, ls=dash[name], label=name)
        axes.step(grid, low, where="post", color=colour[name], lw=0.6, ls=dash[name])
        axes.fill_between(grid, low, high, step="post", color=colour[name], alpha=0.25, lw=0)
    for value in thresholds:
        axes.axvline(value, color="grey", lw=0.8, ls=":")
    axes.set(xlabel="radius", ylabel="inputs with a counterexample within", xlim=(0, top), ylim=(0, None))
    whole(axes.yaxis)
    _legend(axes, len(groups), "upper left")
    return save(figure, path)


def draw_times(path: Path, groups: Groups) -> Path | None:
    """How many inputs were finished within a time; those with reused answers took none here."""
    timed = {name: [r for r in rows if r.measured and not r.reused] for name, rows in groups.items()}
    if not any(timed.values()):
        return None
    figure, axes = _plot(_wide(len(groups)))
    colour, dash = colour_of(groups), dash_of(groups)
    for name, rows in timed.items():
        times = np.sort([max(r.seconds, 1e-3) for r in rows])
        counts = np.arange(1, len(times) + 1)
        axes.step(times, counts, where="post", color=colour[name], ls=dash[name], label=name)
    axes.set(ylabel="inputs finished", ylim=(0, None))
    whole(axes.yaxis)
    log_seconds(axes, "seconds per input")
    axes.grid(alpha=0.3)
    _legend(axes, len(groups), "upper left")
    return save(figure, path)


def draw_counterexample(path: Path, family: Family, found: Critical, shape: tuple[int, ...]) -> Path:
    """The input, its closest known counterexample, and the difference."""
    if found.witness is None:
        raise ValueError("there is no counterexample to draw")
    from matplotlib.figure import Figure

    near = family.to_data(found.witness)
    difference = near - family.x
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    distance = family.distance(found.witness)
    before, after = family.predicted, family.class_of(found.witness)
    reach = float(np.abs(difference).max()) or 1.0
    grey: dict[str, Any] = {"vmin": family.low, "vmax": family.high, "cmap": "gray"}
    signed: dict[str, Any] = {"vmin": -reach, "vmax": reach, "cmap": "RdBu_r"}
    panels = (
        (family.x, f"input: {before}", grey),
        (near, f"counterexample: {after}", grey),
        (difference, f"difference, distance {distance:.5g}", signed),
    )
    for k, (values, title, style) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 3, k)
        picture = as_picture(values, shape, signed=style is signed)
        shown = axes.imshow(picture, interpolation="nearest", **style)  # colours ignore the style
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
        if style is signed and picture.ndim == 2:
            figure.colorbar(shown, ax=axes, shrink=0.8)
    return save(figure, path)


def as_picture(values: Array, shape: tuple[int, ...], signed: bool = False) -> Array:
    """A flat input as an image: grey (h, w), or colours (h, w, 3); a difference is shown around grey."""
    if len(shape) == 3 and shape[0] == 3:
        colours = values.reshape(shape).transpose(1, 2, 0)
        if not signed:
            return np.asarray(np.clip(colours, 0, 1))
        return np.asarray(0.5 + 0.5 * colours / (float(np.abs(colours).max()) or 1.0))
    if len(shape) >= 2:
        return values.reshape(-1, shape[-1])
    return values.reshape(1, -1)
