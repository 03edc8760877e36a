"""Pictures: a randomized attack point by point, and the heat map and curves of a selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .accuracy import RobustAccuracy
from .attack import AttackRequest, AttackResult
from .lattice import members
from .selection import SelectionRequest, SelectionResult

SHOWN = 12  # points of a picture that fits on a screen


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure that needs no screen, and its module."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, FigureCanvasAgg


def draw_attack(request: AttackRequest, result: AttackResult, shape: Sequence[int], path: Path) -> None:
    """The points in the first row, one row per attack; each title names the networks that are fooled."""
    count = min(SHOWN, len(request.references))
    rows = 1 + len(result.attacks)
    figure, _ = _figure(1.3 * count + 1.5, 1.6 * rows)
    axes = figure.subplots(rows, count, squeeze=False)
    names = [n.path.stem for n in request.networks]
    for j in range(count):
        reference = request.references[j]
        _draw_input(axes[0][j], reference.x, shape)
        axes[0][j].set_title(f"label {reference.label}", fontsize=7)
    for k, attack in enumerate(result.attacks, start=1):
        for j in range(count):
            _draw_input(axes[k][j], attack.points[j], shape)
            fooled = members(attack.patterns[j])
            title = "all" if len(fooled) == len(names) else "\n".join(names[c] for c in fooled)
            axes[k][j].set_title(title or "none", fontsize=6)
        axes[k][0].set_ylabel(f"{float(attack.probability):.3g}", fontsize=8)
    low, high = float(result.value_lower), float(result.value_upper)
    value = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    figure.suptitle(f"{result.verdict.value}: value {value}", fontsize=9)
    figure.savefig(path, dpi=150)


def _draw_input(axis: Any, x: NDArray[Any], shape: Sequence[int]) -> None:
    """An image where the shape is one, bars otherwise."""
    axis.set_xticks([])
    axis.set_yticks([])
    flat = np.asarray(x, np.float64).ravel()
    side = math.isqrt(len(flat))
    if len(shape) == 3 and shape[0] == 3:
        axis.imshow(np.clip(flat.reshape(shape).transpose(1, 2, 0), 0, 1))
    elif len(shape) >= 2 and math.prod(shape[-2:]) == len(flat):
        axis.imshow(flat.reshape(shape[-2:]), cmap="gray_r", vmin=0, vmax=1)
    elif side * side == len(flat) and len(flat) > 9:
        axis.imshow(flat.reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
    else:
        axis.bar(range(len(flat)), flat)


def draw_selection(request: SelectionRequest, result: SelectionResult, path: Path) -> None:
    """The mutual error scores of all pairs, and the robust accuracies over the radius."""
    figure, _ = _figure(11.0 if result.before else 5.5, 4.5)
    axes = figure.subplots(1, 2 if result.before else 1, squeeze=False)[0]
    names = [n.path.stem for n in request.networks]
    _heat_map(figure, axes[0], result, names)
    if result.before:
        first = "before: " + ", ".join(names[m] for m in result.start)
        last = "after: " + ", ".join(names[m] for m in result.final)
        for curve, label, colour in ((result.before, first, "tab:red"), (result.after, last, "tab:blue")):
            _curve(axes[1], request.epsilons, curve, label, colour)
        axes[1].set(xlabel="epsilon", ylabel="robust accuracy", ylim=(-0.02, 1.02))
        axes[1].legend(fontsize=7)
    figure.savefig(path, dpi=150)


def _heat_map(figure: Any, axis: Any, result: SelectionResult, names: Sequence[str]) -> None:
    share = 100 * result.errors.found / result.errors.balls
    dark = share.max() / 2
    np.fill_diagonal(share, np.nan)
    image = axis.imshow(share, cmap="magma_r", vmin=0)
    for a in range(len(names)):
        for b in range(len(names)):
            if a != b:
                left = "?" if result.errors.open[a, b] else ""
                text = axis.text(b, a, f"{share[a, b]:.0f}{left}", ha="center", va="center", fontsize=6)
                text.set_color("white" if share[a, b] > dark else "black")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_title("mutual errors, % of balls", fontsize=9)
    figure.colorbar(image, ax=axis, shrink=0.8)


def _curve(
    axis: Any, radii: Sequence[float], curve: Sequence[RobustAccuracy], label: str, colour: str
) -> None:
    low = [float(c.share.lower) for c in curve]
    high = [float(c.share.upper) for c in curve]
    axis.fill_between(radii, low, high, color=colour, alpha=0.25)
    axis.plot(radii, low, color=colour, marker="o", markersize=3, label=label)
    axis.plot(radii, high, color=colour, linestyle=":", linewidth=1)
