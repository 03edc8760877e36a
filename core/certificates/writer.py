"""Writes certificates from what searches left behind, and repairs what the checker's rounding breaks."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.certificates.phases import SYMBOLS, state_leaves, tree_of_phases
from verifolio.certificates.trees import CannotWrite, GrowingTree, Refining
from verifolio_check.bounds import GUARD, Model
from verifolio_check.certificate import FIRST, claim, keep
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.main import load
from verifolio_check.tree import Goal, Walk, parse
from verifolio_check.vnnlib import Region, Row

BITS, WIDE_BITS = (
    30,
    26,
)  # of the values of a node, and of one with many: with rows' bits and sums that is below 62
WIDE = 1 << 10
LINE = 1000  # nodes of a tree on a line
TOGETHER = 128  # claims on one line
PATIENCE, LONGEST = 60.0, 5.0  # processor seconds for writing, or so many times what the search took
SMALLEST_CAP, CAP_PER_SECOND = 5_000_000, 50_000_000 / 60
MOST_REFINED = 20_000  # subproblems beyond the search's own; more means that its bounds were of another kind
MOST_BOXES = 1 << 22


def obstacle(network: Path, prop: Path) -> str | None:
    """Why no certificate about these files can be written, or None; needs no search."""
    try:
        load(network, prop)
    except (Unreadable, Invalid, OSError, EOFError, ValueError) as error:
        return str(error)
    return None


def write(network: Path, prop: Path, folder: Path, target: Path, seconds: float) -> str:
    """Write a certificate; says what came of it."""
    cap = SMALLEST_CAP + CAP_PER_SECOND * seconds
    deadline = time.process_time() + max(PATIENCE, LONGEST * seconds)
    try:
        lines = certificate(network, prop, folder, deadline)
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


def certificate(network: Path, prop: Path, folder: Path, deadline: float) -> Iterator[str]:
    """The lines of the file."""
    net, regions, hashes = load(network, prop)
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
        if time.process_time() > deadline:
            raise CannotWrite("the checker's bounds took too long to follow the search")
        yield from claim_lines(model, k, trace)
    model.advance(len(model.network.nodes) - 1)
    goals: Goal = [[(*model.row(row), row.strict) for row in rows] for rows in region.disjuncts]
    unit = model.scale[model.network.output] + GUARD
    if "dimension" in trace:
        tree = GrowingTree.of_boxes(trace, model.scale[0])
        Refining(model, tree, goals, unit, deadline, MOST_BOXES).run()
        yield "tree " + " ".join(str(d) for d in range(len(region.disjuncts)))
        yield from tree_lines(tree.text(model))
        return
    for d, rows in enumerate(region.disjuncts):
        tree = phase_tree(model, rows, trace)
        Refining(model, tree, [goals[d]], unit, deadline, MOST_REFINED).run()
        yield f"tree {d}"
        yield from tree_lines(tree.text(model))


def claim_lines(model: Model, k: int, trace: dict[str, Any]) -> Iterator[str]:
    """Ends of neurons of both signs that the search's kind of slopes narrows; what narrows nothing is not written."""
    z = model.network.input_of(k)
    model.advance(z)
    if "claim_ends" not in trace or not same_neurons(model, trace):
        return
    curves = model.network.curves
    starts = np.cumsum([0, *(model.network.nodes[n].size for n in curves)])
    numbers = {model.network.input_of(i): i for i in range(len(curves))}
    column = [starts[numbers[p]] + int(j) for p, at in model.open(z - 1) for j in at]
    ends = trace["claim_ends"]
    mine = np.flatnonzero(ends[:, 0] == k)
    mine = mine[((model.low[z] < 0) & (model.high[z] > 0))[ends[mine, 1]]]
    for part in np.array_split(mine, max(1, -(-len(mine) // TOGETHER))):
        if not len(part):
            continue
        trees = [f"[a{''.join(SYMBOLS[v] for v in trace['claim_slopes'][e][column])}]." for e in part]
        names = [("<" if sign < 0 else ">") + str(neuron) for _, neuron, sign in ends[part]]
        goals = [claim(model, z, int(neuron), int(sign)) for _, neuron, sign in ends[part]]
        walk = Walk(model, parse(iter(trees), model, len(trees)), goals, model.scale[z] + GUARD, z - 1)
        keep(model, z, names, walk.run())
        yield f"claims {k} {' '.join(names)}"
        yield from trees


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
    neurons = model.open(len(model.network.nodes) - 1)
    state_leaves(model, tree, leaves, neurons, {**held, "origin": trace["origin"]}, rows, weights)
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
