"""Pictures of a benchmark run: how many instances within how much time, and tool against tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verifolio.files.names import safe_name

from .scoring import Contest

LEAST = 0.01  # seconds; the left end of logarithmic axes


def draw(contest: Contest, folder: Path) -> list[Path]:
    """A cactus plot of all tools and a scatter plot for each of the others; gives the files."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    written = [_cactus(contest, folder / "cactus.png")]
    for tool in contest.claims:
        if tool != contest.ours:
            written.append(_scatter(contest, tool, folder / f"scatter_{safe_name(tool)}.png"))
    return written


def _axes(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.25)
    return figure, axes


def _cactus(contest: Contest, path: Path) -> Path:
    figure, axes = _axes(f"{len(contest.instances)} instances")
    for tool, claims in contest.claims.items():
        times = sorted(
            max(c.seconds, LEAST)
            for k, c in enumerate(claims)
            if contest.counts(tool, k) and c.seconds == c.seconds
        )
        heavy = 2.5 if tool == contest.ours else 1.2
        axes.step(
            range(1, len(times) + 1), times, where="post", label=f"{tool} ({len(times)})", linewidth=heavy
        )
    axes.set_yscale("log")
    axes.set_xlabel("instances decided")
    axes.set_ylabel("seconds each")
    axes.legend()
    figure.savefig(path, dpi=150)
    return path


def _scatter(contest: Contest, tool: str, path: Path) -> Path:
    figure, axes = _axes(f"{contest.ours} and {tool}")
    limit = max(i.timeout for i in contest.instances)
    for truth, colour in (("sat", "tab:red"), ("unsat", "tab:blue")):
        points = []
        for k in range(len(contest.instances)):
            results = {contest.claims[t][k].result for t in (contest.ours, tool) if contest.counts(t, k)}
            if truth in results:
                points.append((_seconds(contest, contest.ours, k), _seconds(contest, tool, k)))
        if points:
            axes.scatter(
                *zip(*points, strict=True), s=14, color=colour, alpha=0.7, label=f"{truth} ({len(points)})"
            )
    axes.plot([LEAST, limit], [LEAST, limit], color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"{contest.ours}, seconds (limit where undecided)")
    axes.set_ylabel(f"{tool}, seconds")
    axes.legend()
    figure.savefig(path, dpi=150)
    return path


def _seconds(contest: Contest, tool: str, k: int) -> float:
    seconds = contest.claims[tool][k].seconds
    known = contest.counts(tool, k) and seconds == seconds
    return max(seconds, LEAST) if known else contest.instances[k].timeout
