"""From the arguments of `ensemble select` to printed results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verifolio.cli.codes import DONE
from verifolio.cli.output import complain, say, say_json, table
from verifolio.data import check_shape, in_layout, load_data
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

from .lattice import members
from .picture_file import picture_path
from .scores import Interval, MutualErrors
from .selection import EnsembleSelection, SelectionOptions, SelectionRequest, SelectionResult

if TYPE_CHECKING:
    from .commands import Running, SelectInputs, SelectSearch, Written


def run_select(
    paths: Sequence[str], inputs: SelectInputs, search: SelectSearch, running: Running, written: Written
) -> int:
    """Run, print, draw; gives the exit code."""
    target = picture_path(written.picture)
    request = make_request(paths, inputs, search.size, running.seed)
    options = SelectionOptions(
        "verify" if search.method == "verify" else "attack",
        search.iterations,
        running.seconds,
        search.proved_only,
        search.reverse,
        search.rank or None,
        search.together,
        keep=written.keep_queries,
        store=running.store,
    )
    with running.oracle(method=search.method) as oracle:
        result = EnsembleSelection(options).run(request, oracle, _tell)
    if written.json:
        say_json(describe(request, result))
    else:
        show(request, result)
    if target is not None:
        from .pictures import draw_selection

        draw_selection(request, result, target)
    return DONE


def make_request(paths: Sequence[str], inputs: SelectInputs, size: int, seed: int) -> SelectionRequest:
    """Load networks and data; draw the test points."""
    networks = tuple(Network.load(n) for n in paths)
    if size >= len(networks):
        raise InputError("--size", f"fewer than the {len(networks)} networks", str(size))
    data = inputs.dataset()
    test = in_layout(load_data(inputs.test_data), inputs.layout or "") if inputs.test_data else data
    for network in networks:
        check_shape(data, network)
        check_shape(test, network)
    count = min(inputs.test_points, len(test))
    drawn = np.random.default_rng(seed).choice(len(test), count, replace=False)
    return SelectionRequest(
        networks,
        data,
        inputs.radii,
        tuple(range(size)),
        inputs.points,
        None if inputs.label < 0 else inputs.label,
        inputs.limits,
        test,
        tuple(sorted(int(i) for i in drawn)),
    )


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
    say(fewest_line(result, names))
    if result.before:
        say()
        rows_ = zip(request.epsilons, result.before, result.after, strict=True)
        table(("epsilon", "robust accuracy before", "after"), [(e, b.share, a.share) for e, b, a in rows_])
    say()
    counts = {k: v for k, v in result.stats.items() if v and not isinstance(v, dict)}
    say(f"{result.seconds:.2f} s; " + ", ".join(f"{k} {v}" for k, v in counts.items()))


def fewest_line(result: SelectionResult, names: Sequence[str]) -> str:
    """What the last ensemble could be at best."""
    best = result.fewest
    who = f"{' '.join(names[m] for m in best.ensemble)}: {best.joint_errors} joint errors"
    have = result.errors.joint_errors(result.final)
    claim = "the fewest of all ensembles of this size" if best.proved else "not proved to be the fewest"
    return f"{who}, {claim} (the last ensemble has {have})"


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
        "fewest": {
            "ensemble": result.fewest.ensemble,
            "joint_errors": result.fewest.joint_errors,
            "proved": result.fewest.proved,
        },
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
