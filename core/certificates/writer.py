"""Writes certificates from what searches left behind, and repairs what the checker's rounding breaks."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.certificates.boxes import BoxTree, BoxWalk, CannotWrite, Watching
from verifolio.certificates.phases import SYMBOLS, PhaseTree, PhaseWalk, grow_tree, state_leaves
from verifolio_check import network as networks
from verifolio_check import vnnlib as properties
from verifolio_check.certificate import FIRST, hash_of, stated
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.main import text_of
from verifolio_check.vnnlib import Region, Row

BITS = (
    26  # of the values of a node; with the coefficients' 22 bits and sums of many terms that stays below 62
)
LINE = 1000  # nodes of a tree on a line
PATIENCE, LONGEST = 60.0, 20.0  # seconds for writing, or so many times what the search took
SMALLEST_CAP, CAP_PER_SECOND = 5_000_000, 50_000_000 / 60


def obstacle(network: Path, prop: Path) -> str | None:
    """Why no certificate about these files can be written, or None; needs no search."""
    try:
        net, wanted = networks.read(network), properties.read(text_of(prop))
    except Unreadable as error:
        return str(error)
    sizes = net.nodes[0].size, net.nodes[net.output].size
    if sizes != (wanted.inputs, wanted.outputs):
        return "the property is not about this network alone"
    return None


def write(network: Path, prop: Path, folder: Path, target: Path, seconds: float) -> str:
    """Write a certificate; says what came of it."""
    cap = SMALLEST_CAP + CAP_PER_SECOND * seconds
    deadline = time.monotonic() + max(PATIENCE, LONGEST * seconds)
    try:
        lines = certificate(network, prop, folder, deadline)
        with gzip.GzipFile(target, "wb", mtime=0) as file:
            for line in lines:
                file.write(line.encode() + b"\n")
                if target.stat().st_size > cap:
                    raise CannotWrite(f"it outgrew {cap / 1e6:.0f} MB")
    except (CannotWrite, Unreadable, Invalid) as error:
        target.unlink(missing_ok=True)
        return f"not written: {error}"
    return str(target)


def certificate(network: Path, prop: Path, folder: Path, deadline: float) -> Iterator[str]:
    """The lines of the file."""
    net, wanted = networks.read(network), properties.read(text_of(prop))
    traces = [dict(np.load(path, allow_pickle=False)) for path in sorted(folder.glob("*.npz"))]
    yield FIRST
    yield f"network {hash_of(network)}"
    yield f"property {hash_of(prop)}"
    yield f"bits {BITS}"
    for k, region in enumerate(wanted.regions):
        yield f"region {k}"
        model = Watching(net, region, BITS)
        model.deadline = deadline
        yield from region_lines(model, region, trace_of(region, traces))
    yield "end"


def trace_of(region: Region, traces: list[dict[str, Any]]) -> dict[str, Any]:
    """The trace of a region's problem, whose box is the region's rounded outward."""
    for trace in traces:
        ends = zip((*region.lower, *region.upper), (*trace["lower"], *trace["upper"]), strict=True)
        if len(trace["lower"]) == len(region.lower) and all(float(a) == b or _next(a, b) for a, b in ends):
            if "missing" in trace:
                raise CannotWrite(str(trace["missing"]))
            return trace
    raise CannotWrite("the proof did not come from a search that leaves a trace")


def _next(exact: Any, rounded: float) -> bool:
    return bool(abs(float(exact) - rounded) <= 4 * np.spacing(abs(rounded)))


def region_lines(model: Watching, region: Region, trace: dict[str, Any]) -> Iterator[str]:
    """Claims and trees of one region."""
    model.seen = {}
    for k, n in enumerate(model.relus):
        z = model.network.nodes[n].parent
        model.advance(z)
        state = model.state()
        model.bound_neurons(state, z)
        model.keep(state, z)
        yield f"bounds {k}"
        yield from claim_lines(model, k, z, trace)
    model.advance(len(model.network.nodes) - 1)
    if "dimension" in trace:
        tree = BoxTree(trace, model.scale[0])
        BoxWalk(model, tree, region.disjuncts).run()
        yield "tree " + " ".join(str(d) for d in range(len(region.disjuncts)))
        yield from tree_lines(tree.text(model.scale[0]))
        return
    for d, rows in enumerate(region.disjuncts):
        yield f"tree {d}"
        yield from tree_lines(phase_nodes(model, rows, trace))


def claim_lines(model: Watching, k: int, z: int, trace: dict[str, Any]) -> Iterator[str]:
    """Ends of neurons of both signs that the search's kind of slopes narrows; what narrows nothing is not written."""
    if "claim_ends" not in trace:
        return
    starts = np.cumsum([0, *(model.network.nodes[n].size for n in model.relus)])
    numbers = {model.network.nodes[n].parent: i for i, n in enumerate(model.relus)}
    before = model.open(z - 1)
    column = [starts[numbers[p]] + int(j) for p, at in before for j in at]
    for sign, word in ((1, "low"), (-1, "high")):
        ends = trace["claim_ends"]
        mine = np.flatnonzero((ends[:, 0] == k) & (ends[:, 2] == sign))
        mine = mine[((model.low[z] < 0) & (model.high[z] > 0))[ends[mine, 1]]]
        for part in np.array_split(mine, max(1, -(-len(mine) // 256))):
            texts = ["".join(SYMBOLS[v] for v in trace["claim_slopes"][e][column]) for e in part]
            if not texts:
                continue
            state = model.state()
            at, neurons = np.zeros(len(part), np.intp), ends[part, 1]
            model.bound_ends(state, z, at, neurons, sign, stated(texts, before))
            model.keep(state, z)
            yield from (f"{word} {k} {j} {text}" for j, text in zip(neurons, texts, strict=True))


def phase_nodes(model: Watching, rows: tuple[Row, ...], trace: dict[str, Any]) -> list[str]:
    """The tree of one disjunct from a search on neurons."""
    sizes = [model.network.nodes[n].size for n in model.relus]
    if sizes != trace["sizes"].tolist():
        raise CannotWrite("the checker sees other ReLUs than the search")
    number, order = match(rows, trace)
    mine = np.zeros(0, bool)
    if "disjunct" in trace and number in trace["open"]:
        mine = trace["disjunct"] == trace["open"].tolist().index(number)
    held = {name: trace[name][mine] for name in ("phase", "alpha", "beta", "mix") if mine.any()}
    numbers = {model.network.nodes[n].parent: k for k, n in enumerate(model.relus)}
    if not held:
        tree = PhaseTree()
        tree.add(-1, False)
        walk = PhaseWalk(model, tree, [rows])
    else:
        tree, leaves = grow_tree(held["phase"], trace["origin"], model)
        walk = PhaseWalk(model, tree, [rows])
        weights = np.zeros((len(held["mix"]), len(rows)))
        for k in range(held["mix"].shape[1]):  # disjuncts of fewer rows repeat their first one
            place = order.index(k) if k in order else order.index(0)
            weights[:, place] += np.maximum(held["mix"][:, k], 0)
        state_leaves(model, leaves, walk, {**held, "origin": trace["origin"]}, weights)
    walk.run()
    return tree.text(numbers)


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
