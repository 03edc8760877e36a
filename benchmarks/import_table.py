"""Import every public network and print how far it is from ONNX Runtime on points of its property.

Run: `python benchmarks/import_table.py [--data DIR] [--points N] [--only TEXT]`. DIR holds `public/` and
`jair/`; it is `$VERIFOLIO_SHARED` or `../shared/data` beside the repository unless given.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.graph.module import GraphModule
from verifolio.onnx_import.network import Network
from verifolio.vnnlib import load

DEFAULT = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@dataclass(frozen=True)
class Row:
    """One network of the table; `reason` is set for a refused one."""

    category: str
    name: str
    operators: str = ""
    neurons: int = 0
    seconds: float = 0.0
    gap: float = 0.0
    reason: str = ""


def networks(data: Path) -> list[tuple[str, Path, Path | None]]:
    """(category, network, one of its properties) for every network, in the order of the instances."""
    found: dict[Path, tuple[str, Path, Path | None]] = {}
    with (data / "public" / "instances.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            path = data / "public" / line["onnx"]
            found.setdefault(path, (line["category"], path, data / "public" / line["vnnlib"]))
    jair: list[tuple[str, Path, Path | None]] = [
        ("jair", path, None) for path in sorted((data / "jair").glob("*.onnx"))
    ]
    return [*found.values(), *jair]


def sample(network: Network, prop: Path | None, count: int) -> NDArray[np.float32]:
    """Random points of the property's first box, or of the unit box."""
    draw = np.random.default_rng(0).random((count, network.input_size))
    if prop is None:
        return draw.astype(np.float32)
    case = load(prop).cases[0]
    return (case.lower + draw * (case.upper - case.lower)).astype(np.float32)


def largest_gap(computed: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """max |a - b| / max(1, |b|) over the points where ONNX Runtime gives finite numbers."""
    usable = np.isfinite(expected).all(axis=1)
    a, b = computed[usable], expected[usable]
    gaps = np.abs(a - b) / np.maximum(1.0, np.abs(b))
    return float(np.nan_to_num(gaps, nan=np.inf).max(initial=0.0))


def measure(category: str, path: Path, prop: Path | None, count: int) -> Row:
    start = time.perf_counter()
    try:
        network = Network.load(path)
        graph = network.graph
    except InputError as error:
        return Row(category, path.name, reason=str(error))
    seconds = time.perf_counter() - start
    points = sample(network, prop, count)
    with torch.no_grad():
        ours = GraphModule(graph, torch.float64)(torch.from_numpy(points).double()).numpy()
    theirs = np.stack([network.replay(p) for p in points]).astype(np.float64)
    operators = " ".join(sorted(graph.operators - {"Input"}))
    return Row(category, path.name, operators, graph.neurons, seconds, largest_gap(ours, theirs))


def show(row: Row) -> str:
    if row.reason:
        return f"{row.category:20} {row.name:48} refused: {row.reason}"
    return (
        f"{row.category:20} {row.name:48} {row.neurons:7d} {row.seconds:8.3f} {row.gap:9.1e}  {row.operators}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("VERIFOLIO_SHARED", DEFAULT)))
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--only", default="", help="networks whose path contains this text")
    options = parser.parse_args()
    if not (options.data / "public" / "instances.csv").is_file():
        parser.error(f"no public/instances.csv below {options.data}; give --data")
    print(f"{'category':20} {'network':48} {'neurons':>7} {'seconds':>8} {'gap':>9}  operators")
    rows = []
    for category, path, prop in networks(options.data):
        if options.only in str(path):
            rows.append(measure(category, path, prop, options.points))
            print(show(rows[-1]), flush=True)
    refused = [r for r in rows if r.reason]
    far = [r for r in rows if r.gap > 1e-4]
    slowest = max((r.seconds for r in rows), default=0.0)
    largest = max((r.gap for r in rows), default=0.0)
    print(
        f"{len(rows)} networks, {len(refused)} refused, {len(far)} beyond 1e-4, "
        f"largest gap {largest:.1e}, slowest import {slowest:.3f} s"
    )


if __name__ == "__main__":
    main()
