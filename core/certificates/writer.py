"""Writes certificates from what searches left behind, and repairs what the checker's rounding breaks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from verifolio_check import network as networks
from verifolio_check import vnnlib as properties
from verifolio_check.bounds import Model
from verifolio_check.certificate import FIRST, hash_of
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.main import text_of
from verifolio_check.vnnlib import Region

from verifolio.certificates.boxes import BoxTree, BoxWalk, CannotWrite

BITS = (
    26  # of the values of a node; with the coefficients' 22 bits and sums of many terms that stays below 62
)
LINE = 1000  # nodes of a tree on a line
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
    try:
        lines = certificate(network, prop, folder)
        with gzip.GzipFile(target, "wb", mtime=0) as file:
            for line in lines:
                file.write(line.encode() + b"\n")
                if target.stat().st_size > cap:
                    raise CannotWrite(f"it outgrew {cap / 1e6:.0f} MB")
    except (CannotWrite, Unreadable, Invalid) as error:
        target.unlink(missing_ok=True)
        return f"not written: {error}"
    return str(target)


def certificate(network: Path, prop: Path, folder: Path) -> Iterator[str]:
    """The lines of the file."""
    net, wanted = networks.read(network), properties.read(text_of(prop))
    traces = [dict(np.load(path, allow_pickle=False)) for path in sorted(folder.glob("*.npz"))]
    yield FIRST
    yield f"network {hash_of(network)}"
    yield f"property {hash_of(prop)}"
    yield f"bits {BITS}"
    for k, region in enumerate(wanted.regions):
        yield f"region {k}"
        yield from region_lines(Model(net, region, BITS), region, trace_of(region, traces))
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


def region_lines(model: Model, region: Region, trace: dict[str, Any]) -> Iterator[str]:
    """Claims and trees of one region."""
    for k, n in enumerate(model.relus):
        z = model.network.nodes[n].parent
        model.advance(z)
        state = model.state()
        model.bound_neurons(state, z)
        model.keep(state, z)
        yield f"bounds {k}"
    model.advance(len(model.network.nodes) - 1)
    tree = BoxTree(trace, model.scale[0])
    BoxWalk(model, tree, region.disjuncts).run()
    yield "tree " + " ".join(str(d) for d in range(len(region.disjuncts)))
    yield from tree_lines(tree.text(model.scale[0]))


def tree_lines(nodes: list[str]) -> Iterator[str]:
    for k in range(0, len(nodes), LINE):
        yield "".join(nodes[k : k + LINE])
