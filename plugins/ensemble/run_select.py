"""From the arguments of `ensemble select` to printed results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from verifolio.cli.main import DONE, complain
from verifolio.cli.output import say, say_json, table
from verifolio.data import check_shape, in_layout, load_data
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

from .falsify import Plan
from .lattice import members
from .picture_file import picture_path
from .scores import Interval, MutualErrors
from .selection import EnsembleSelection, SelectionOptions, SelectionRequest, SelectionResult

if TYPE_CHECKING:
    from .commands import Limits


@dataclass(frozen=True)
class SelectCall:
    """The arguments as given."""

    networks: tuple[str, ...]
    data: str
    size: int
    epsilons: str
    points: int
    label: int
    method: str
    iterations: int
    rank: float
    reverse: bool
    certified: bool
    clip: bool
    test_data: str
    test_points: int
    together: int
    layout: str = ""


def run_select(call: SelectCall, limits: Limits, as_json: bool, picture: str) -> int:
    """Run, print, draw; gives the exit code."""
    target = picture_path(picture)
    request = make_request(call, limits.seed)
    options = SelectionOptions(
        call.method,  # type: ignore[arg-type]
        call.iterations,
        limits.seconds,
        call.certified,
        call.reverse,
        call.rank or None,
        call.together,
        plan=Plan(seed=limits.seed),
        keep=limits.keep,
        store=limits.store,
    )
    with limits.oracle() as oracle:
        result = EnsembleSelection(options).run(request, oracle, _tell)
    if as_json:
        say_json(describe(request, result))
    else:
        show(request, result)
    if target is not None:
        from .pictures import draw_selection

        draw_selection(request, result, target)
    return DONE


def make_request(call: SelectCall, seed: int) -> SelectionRequest:
    """Load networks and data; draw the test points."""
    networks = tuple(Network.load(n) for n in call.networks)
    if call.size >= len(networks):
        raise InputError("--size", f"fewer than the {len(networks)} networks", str(call.size))
    data = in_layout(load_data(call.data), call.layout)
    test = in_layout(load_data(call.test_data), call.layout) if call.test_data else data
    for network in networks:
        check_shape(data, network)
        check_shape(test, network)
    count = min(call.test_points, len(test))
    drawn = np.random.default_rng(seed).choice(len(test), count, replace=False)
    return SelectionRequest(
        networks,
        data,
        read_radii(call.epsilons),
        tuple(range(call.size)),
        call.points,
        None if call.label < 0 else call.label,
        call.clip,
        test,
        tuple(sorted(int(i) for i in drawn)),
    )


def read_radii(text: str) -> tuple[float, ...]:
    """Radii separated by commas."""
    try:
        return tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        raise InputError("--epsilons", "numbers such as 0.01,0.02", repr(text)) from None


def _tell(done: int, total: int, message: str) -> None:
    complain(f"{message} ({done} of {total})" if total else message)


def show(request: SelectionRequest, result: SelectionResult) -> None:
    """Mutual errors, scores, replacements, accuracies."""
    names = [n.path.stem for n in request.networks]
    say(f"{len(result.points)} agreement points, {result.errors.balls} balls that rank the members")
    say()
    table(("mutual errors", *names), matrix_rows(result.errors, names))
    if result.errors.groups:
        say()
        rows = [
            (" ".join(names[m] for m in members(g)), result.errors.score(*members(g)))
            for g in result.errors.groups
        ]
        table((f"{result.errors.together} together", "share of balls"), rows)
    for title, ensemble, scores in (
        ("first ensemble", result.start, result.scores),
        ("last ensemble", result.final, result.final_scores),
    ):
        say()
        rows = [(names[m], score) for m, score in zip(ensemble, scores, strict=True)]
        table((title, "uniqueness"), rows)
    say()
    for swap in result.swaps:
        change = f"{names[swap.removed]} ({swap.before}) -> {names[swap.added]} ({swap.after})"
        say(f"{change}, {swap.joint_errors} joint errors")
    if not result.swaps:
        say("no replacement is better")
    if result.before:
        say()
        rows_ = zip(request.epsilons, result.before, result.after, strict=True)
        table(("epsilon", "robust accuracy before", "after"), [(e, b.share, a.share) for e, b, a in rows_])
    say()
    counts = {k: v for k, v in result.stats.items() if v and not isinstance(v, dict)}
    say(f"{result.seconds:.2f} s; " + ", ".join(f"{k} {v}" for k, v in counts.items()))


def matrix_rows(errors: MutualErrors, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Counts of balls; a plus and the open ones where there are any."""
    rows = []
    for a, name in enumerate(names):
        cells = []
        for b in range(len(names)):
            left = int(errors.open[a, b])
            cells.append("" if a == b else f"{int(errors.found[a, b])}" + (f"+{left}?" if left else ""))
        rows.append((name, *cells))
    return rows


def describe(request: SelectionRequest, result: SelectionResult) -> dict[str, Any]:
    """The result for programs."""
    return {
        "networks": [str(n.path) for n in request.networks],
        "network_sha256": [n.sha256 for n in request.networks],
        "epsilons": request.epsilons,
        "points": result.points,
        "start": result.start,
        "final": result.final,
        "mutual_errors": {
            f"{e:g}": {"found": m.found, "open": m.open, "balls": m.balls} | groups_of(m)
            for e, m in zip(request.epsilons, result.by_epsilon, strict=True)
        },
        "uniqueness": {"first": _pairs(result.scores), "last": _pairs(result.final_scores)},
        "swaps": [
            {
                "removed": s.removed,
                "added": s.added,
                "before": _pair(s.before),
                "after": _pair(s.after),
                "joint_errors": s.joint_errors,
            }
            for s in result.swaps
        ],
        "robust_accuracy": {
            "before": _pairs([a.share for a in result.before]),
            "after": _pairs([a.share for a in result.after]),
        },
        "seconds": round(result.seconds, 6),
        "stats": result.stats,
    }


def groups_of(errors: MutualErrors) -> dict[str, Any]:
    """The counts of larger sets, if there are any."""
    groups = [{"networks": members(m), "found": f, "open": o} for m, (f, o) in errors.groups.items()]
    return {"groups": groups} if groups else {}


def _pair(interval: Interval) -> list[float]:
    return [float(interval.lower), float(interval.upper)]


def _pairs(intervals: Sequence[Interval]) -> list[list[float]]:
    return [_pair(i) for i in intervals]
