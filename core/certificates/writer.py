"""Writes certificates from what searches left behind, and repairs what the checker's rounding breaks."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.certificates.phases import ALPHABET, Leaves, Mending, row_weights, tree_of_phases
from verifolio.certificates.trees import CannotWrite, GrowingTree, Refining
from verifolio_check.bounds import GUARD, Model
from verifolio_check.certificate import FIRST, LEVELS, Goal, narrow
from verifolio_check.files import load
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.vnnlib import Region, Row

BITS, WIDE_BITS = (
    30,
    26,
)  # of the values of a node, and of one with many: with rows' bits and sums that is below 62
WIDE = 1 << 10  # values from which on sums of a node's products need more of the 62 bits
LINE = 1000  # nodes of a tree on a line
TOGETHER = 128  # claims on one line
PATIENCE, LONGEST = 60.0, 5.0  # processor seconds for writing, or so many times what the search took
# bytes: a certificate may grow with the search, by 50 MB for each minute of it
SMALLEST_CAP, CAP_PER_SECOND = 5_000_000, 50_000_000 / 60
MOST_REFINED = 20_000  # subproblems beyond the search's own; more means that its bounds were of another kind
MOST_BOXES = 1 << 22  # a limit on memory; searches that are worth writing leave far fewer


def obstacle(networks: Path | Sequence[Path], prop: Path) -> str | None:
    """Why no certificate about these files can be written, or None; needs no search."""
    try:
        load(networks, prop)
    except (Unreadable, Invalid, OSError, EOFError, ValueError) as error:
        return str(error)
    return None


def write(networks: Path | Sequence[Path], prop: Path, folder: Path, target: Path, seconds: float) -> str:
    """Write a certificate of what a search of so many seconds left in a folder; says what came of it."""
    cap = SMALLEST_CAP + CAP_PER_SECOND * seconds
    deadline = time.process_time() + max(PATIENCE, LONGEST * seconds)
    try:
        lines = certificate(networks, prop, folder, deadline)
        with gzip.GzipFile(target, "wb", mtime=0) as file:
            for line in lines:
                file.write(line.encode() + b"\n")
                check_size(target, cap)
        check_size(target, cap)
    except (CannotWrite, Unreadable, Invalid) as error:
        target.unlink(missing_ok=True)
        return f"not written: {error}"
    return str(target)


def check_size(target: Path, cap: float) -> None:
    if target.stat().st_size > cap:
        raise CannotWrite(f"it outgrew {cap / 1e6:.0f} MB")


def certificate(networks: Path | Sequence[Path], prop: Path, folder: Path, deadline: float) -> Iterator[str]:
    """The lines of the file."""
    net, regions, hashes = load(networks, prop)
    traces = [dict(np.load(path, allow_pickle=False)) for path in sorted(folder.glob("*.npz"))]
    bits = WIDE_BITS if max(node.size for node in net.nodes) > WIDE else BITS
    yield from (FIRST, f"network {hashes[0]}", f"property {hashes[1]}", f"bits {bits}")
    for k, region in enumerate(regions):
        yield f"region {k}"
        yield from region_lines(Model(net, region, bits), region, trace_of(region, traces), deadline)
    yield "end"


def trace_of(region: Region, traces: list[dict[str, Any]]) -> dict[str, Any]:
    """The trace of a region's problem, whose box is the region's rounded outward; empty if no search left one."""
    for trace in traces:
        ends = zip((*region.lower, *region.upper), (*trace["lower"], *trace["upper"]), strict=True)
        if len(trace["lower"]) == len(region.lower) and all(float(a) == b or _next(a, b) for a, b in ends):
            return trace
    return {}


def _next(exact: Any, rounded: float) -> bool:
    return bool(abs(float(exact) - rounded) <= 4 * np.spacing(abs(rounded)))


def region_lines(model: Model, region: Region, trace: dict[str, Any], deadline: float) -> Iterator[str]:
    """Claims and trees of one region."""
    for k in range(len(model.network.curves)):
        yield from claim_lines(model, k, trace, deadline)
    model.advance(len(model.network.nodes) - 1)
    goals: Goal = [[(*model.row(row), row.strict) for row in rows] for rows in region.disjuncts]
    unit = model.scale[model.network.output] + GUARD
    if "dimension" in trace:
        tree = GrowingTree.of_boxes(trace, model.scale[0])
        mend = Mending(model, region.disjuncts[0]) if len(region.disjuncts) == 1 else None
        Refining(model, tree, goals, unit, deadline, MOST_BOXES, mend, boxes=True).run()
        yield "tree " + " ".join(str(d) for d in range(len(region.disjuncts)))
        yield from tree_lines(tree.text(model))
        return
    for d, rows in enumerate(region.disjuncts):
        tree = phase_tree(model, rows, trace)
        Refining(model, tree, [goals[d]], unit, deadline, MOST_REFINED, Mending(model, rows)).run()
        yield f"tree {d}"
        yield from tree_lines(tree.text(model))


def claim_lines(model: Model, k: int, trace: dict[str, Any], deadline: float) -> Iterator[str]:
    """Ends of neurons of both signs that the search bounded better, with the trees and slopes behind that."""
    z = model.network.input_of(k)
    model.advance(z)
    if "claim_ends" not in trace or not same_neurons(model, trace):
        return
    wanted = list((flat_claims(model, k, trace) | dict(deep_claims(model, k, trace))).items())
    for first in range(0, len(wanted), TOGETHER):
        if time.process_time() > deadline:
            raise CannotWrite("the checker's bounds took too long to follow the search")
        part = [
            c for c in wanted[first : first + TOGETHER] if model.low[z][c[0][0]] < 0 < model.high[z][c[0][0]]
        ]
        if not part:
            continue
        names = [("<" if sign < 0 else ">") + str(neuron) for (neuron, sign), _ in part]
        trees = [text for _, text in part]
        narrow(model, k, names, iter(trees))
        yield f"claims {k} {' '.join(names)}"
        yield from trees


def flat_claims(model: Model, k: int, trace: dict[str, Any]) -> dict[tuple[int, int], str]:
    """By neuron and end (1: lower): a leaf with slopes."""
    starts = np.cumsum([0, *(model.network.nodes[n].size for n in model.network.curves)])
    numbers = {model.network.input_of(i): i for i in range(len(model.network.curves))}
    places = [starts[numbers[p]] + at for p, at in model.open(model.network.input_of(k) - 1)]
    column = np.concatenate([np.zeros(0, np.int64), *places])
    mine = np.flatnonzero(trace["claim_ends"][:, 0] == k)
    slopes = [ALPHABET[trace["claim_slopes"][e][column]].tobytes().decode() for e in mine]
    ends = trace["claim_ends"][mine, 1:].tolist()
    return {(n, s): f"[a{text}]." for (n, s), text in zip(ends, slopes, strict=True)}


def deep_claims(model: Model, k: int, trace: dict[str, Any]) -> Iterator[tuple[tuple[int, int], str]]:
    """By neuron and end: a tree of phases of the neurons before it."""
    neurons = model.open(model.network.input_of(k) - 1)
    for name in [n for n in trace if n.startswith("deep") and n.endswith("_node") and trace[n] == k]:
        held = {
            f: trace[name.replace("node", f)] for f in ("neuron", "sign", "phase", "alpha", "beta", "origin")
        }
        leaves_of = Leaves(model, neurons, held["origin"])
        ends = np.stack([held["neuron"], held["sign"]], 1)
        for end in np.unique(ends, axis=0):
            mine = np.flatnonzero((ends == end).all(1))
            if not held["phase"][mine].any():
                continue  # no better than a leaf with slopes of its own
            tree, leaves = tree_of_phases(held["phase"][mine], held["origin"], model)
            leaves_of.state(tree, leaves, held["alpha"][mine], held["beta"][mine])
            yield (int(end[0]), int(end[1])), "".join(tree.text(model))


def same_neurons(model: Model, trace: dict[str, Any]) -> bool:
    """Whether the search's functions are the checker's; maxima may be written with others."""
    sizes = [model.network.nodes[n].size for n in model.network.curves]
    return "sizes" in trace and sizes == trace["sizes"].tolist()


def phase_tree(model: Model, rows: tuple[Row, ...], trace: dict[str, Any]) -> GrowingTree:
    """The tree of one disjunct from a search on neurons."""
    if not same_neurons(model, trace):
        return GrowingTree()
    number, order = match(rows, trace)
    mine = np.zeros(0, bool)
    if "disjunct" in trace and number in trace["open"]:
        mine = trace["disjunct"] == trace["open"].tolist().index(number)
    if not mine.any():
        return GrowingTree()
    held = {name: trace[name][mine] for name in ("phase", "alpha", "beta", "mix")}
    tree, leaves = tree_of_phases(held["phase"], trace["origin"], model)
    weights = np.zeros((len(held["mix"]), len(rows)))
    for k in range(held["mix"].shape[1]):  # disjuncts of fewer rows repeat their first one
        place = order.index(k) if k in order else order.index(0)
        weights[:, place] += np.maximum(held["mix"][:, k], 0)
    alpha = np.rint(np.clip(held["alpha"], 0, 1) * LEVELS).astype(np.uint8)
    leaves_of = Leaves(model, model.open(len(model.network.nodes) - 1), trace["origin"])
    leaves_of.state(tree, leaves, alpha, held["beta"], lambda row: row_weights(weights[row], rows))
    return tree


def match(rows: tuple[Row, ...], trace: dict[str, Any]) -> tuple[int, list[int]]:
    """Which of the search's disjuncts has these rows, and the number there of each of them."""
    starts = np.cumsum([0, *trace["counts"]])
    for d, (first, last) in enumerate(pairwise(starts)):
        theirs = np.concatenate([trace["rows_x"], trace["rows_y"], trace["rhs"][:, None]], 1)[first:last]
        order = [k for r in rows for k in [_position(r, theirs, trace["rows_x"].shape[1])] if k is not None]
        if len(order) == len(rows) == last - first:
            return d, order
    raise CannotWrite("the search saw other disjuncts than the checker")


def _position(row: Row, theirs: Any, inputs: int) -> int | None:
    dense = np.zeros(theirs.shape[1])
    for i, c in row.inputs:
        dense[i] = float(c)
    for i, c in row.outputs:
        dense[inputs + i] = float(c)
    dense[-1] = float(row.limit)
    close = np.isclose(theirs, dense, rtol=1e-12, atol=1e-300).all(1)
    return int(close.argmax()) if close.any() else None


def tree_lines(nodes: list[str]) -> Iterator[str]:
    for k in range(0, len(nodes), LINE):
        yield "".join(nodes[k : k + LINE])
