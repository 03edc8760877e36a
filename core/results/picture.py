"""Pictures of counterexamples and of results, each with what the network says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verifolio.results.counterexample import Counterexample, as_image, png

if TYPE_CHECKING:
    from verifolio.results.radii import CriticalRadius
    from verifolio.results.robustness import Robustness

BARS = 12  # features in a picture of a table's row
SCORES = 10  # classes whose outputs are drawn
COLOURS = {"proved": "#2a7f62", "refuted": "#c8553d", "open": "#b8b8b8", "misclassified": "#7a6c9d"}


def draw(found: Counterexample) -> bytes:
    """One counterexample as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 2.7) if found.is_image else (9.0, 3.2), layout="constrained")
    if found.is_image:
        axes = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.2))
        _images(axes, found)
    else:
        axes = figure.subplots(1, 2, width_ratios=(2, 1))
        _changes(axes[0], found)
    _outputs(axes[-1], found)
    return png(figure)


def _images(axes: Any, found: Counterexample) -> None:
    """The input, the counterexample, and their difference."""
    low, high = float(found.lower.min()), float(found.upper.max())
    low, high = min(low, float(found.original.min())), max(high, float(found.original.max()))
    titles = (f"input {found.index}: {found.label}", f"becomes {found.prediction}")
    for axis, values, title in zip(axes, (found.original, found.input), titles, strict=False):
        shown = np.clip((as_image(values) - low) / max(high - low, 1e-12), 0, 1)
        axis.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(title, fontsize=9)
    gap = as_image(found.input - found.original)
    most = max(float(np.abs(gap).max()), 1e-12)
    if gap.ndim == 3:
        axes[2].imshow(0.5 + gap / (2 * most), interpolation="nearest")
    else:
        axes[2].imshow(gap, cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
    axes[2].set_title(f"difference, at most {most:.3g}", fontsize=9)
    for axis in axes[:3]:
        axis.set_xticks([])
        axis.set_yticks([])


def _changes(axis: Any, found: Counterexample) -> None:
    """How far each feature was moved, as a part of what it may move."""
    names = list(found.changes)[:BARS]
    place = {found.feature(k): k for k in range(found.input.size)}
    room = np.maximum(np.maximum(found.upper - found.original, found.original - found.lower).ravel(), 1e-300)
    parts = [found.changes[name] / room[place[name]] for name in names]
    axis.barh(names[::-1], parts[::-1], color="#3a6ea5")
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlim(-1.05, 1.05)
    axis.set_xlabel("change, as a part of what is allowed", fontsize=8)
    axis.set_title(f"input {found.index}: {found.label} becomes {found.prediction}", fontsize=9)
    axis.tick_params(labelsize=8)


def _outputs(axis: Any, found: Counterexample) -> None:
    order = np.sort(np.argsort(-found.outputs, kind="stable")[:SCORES])
    names = (
        found.classes
        if len(found.classes) == len(found.outputs)
        else tuple(map(str, range(len(found.outputs))))
    )
    labels = [names[k] for k in order]
    colours = [
        COLOURS["proved"] if n == found.label else COLOURS["refuted"] if n == found.prediction else "#999"
        for n in labels
    ]
    axis.barh(labels[::-1], [float(found.outputs[k]) for k in order][::-1], color=colours[::-1])
    axis.set_title("outputs", fontsize=9)
    axis.tick_params(labelsize=8)


def draw_results(result: Robustness) -> Any:
    """How many inputs are proved, refuted and open, as a bar, and the first counterexamples below it."""
    from matplotlib.figure import Figure

    images = [c for c in result.counterexamples if c.is_image][:6]
    figure = Figure(figsize=(8, 1.6 + (2.0 if images else 0)), layout="constrained")
    rows: Any = figure.subfigures(2, 1, height_ratios=(1, 1.6)) if images else [figure]
    axis = rows[0].subplots()
    start = 0
    for status, count in result.counts.items():
        if count:
            axis.barh([""], [count], left=start, color=COLOURS[status], label=f"{count} {status}")
            start += count
    axis.set_xlim(0, max(start, 1))
    axis.set_title(result.headline, fontsize=9)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=4, fontsize=8, frameon=False)
    if images:
        thumbnails(rows[1], images)
    return figure


def thumbnails(figure: Any, images: Sequence[Counterexample]) -> None:
    """Counterexamples in a row."""
    cells = figure.subplots(1, max(len(images), 2), squeeze=False)[0]
    for cell in cells:
        cell.axis("off")
    for cell, found in zip(cells, images, strict=False):
        cell.imshow(as_image(found.input), cmap="gray", interpolation="nearest")
        cell.set_title(f"{found.index}: {found.label} as {found.prediction}", fontsize=8)


def draw_radii(radii: Sequence[CriticalRadius], norm: str) -> Any:
    """The share of all inputs that is robust up to each radius: a band from proved to not refuted, per network."""
    from matplotlib.figure import Figure

    images = [r.counterexample for r in radii if r.counterexample is not None and r.counterexample.is_image]
    figure = Figure(figsize=(8, 3.2 + (2.0 if images else 0)), layout="constrained")
    rows: Any = figure.subfigures(2, 1, height_ratios=(2, 1.2)) if images else [figure]
    axis = rows[0].subplots()
    ends = [v for r in radii for v in (r.lower, r.upper) if v is not None]
    grid = np.unique([0.0, *ends, 1.05 * max(ends, default=0.0) or 1.0])
    for name in dict.fromkeys(r.network for r in radii):
        mine = [r for r in radii if r.network == name]
        proved = [sum(r.proved_at(e) for r in mine) / len(mine) for e in grid]
        possible = [sum(not r.refuted_at(e) for r in mine) / len(mine) for e in grid]
        (line,) = axis.step(grid, proved, where="pre", label=name)
        axis.step(grid, possible, where="post", color=line.get_color(), linestyle="--", linewidth=0.8)
        axis.fill_between(grid, 0, proved, step="pre", color=line.get_color(), alpha=0.15)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel(f"radius ({norm})", fontsize=8)
    axis.set_ylabel("inputs proved (line), not refuted (dashed)", fontsize=8)
    axis.legend(fontsize=8, frameon=False)
    if images:
        thumbnails(rows[1], images[:6])
    return figure
