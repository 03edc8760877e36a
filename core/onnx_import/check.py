"""Import with a comparison against ONNX Runtime: it proves nothing, but it catches blunders."""

from __future__ import annotations

import numpy as np
import torch

from verifolio.errors import InputError
from verifolio.graph.graph import Graph
from verifolio.graph.module import GraphModule
from verifolio.graph.ops import Array
from verifolio.network import Network
from verifolio.onnx_import.lower import lower_network
from verifolio.onnx_import.reader import EXPORT_AGAIN
from verifolio.threads import one_thread

TOLERANCE = 1e-3


def import_graph(network: Network) -> Graph:
    """The graph of a network; raises InputError for files that cannot be read or represented."""
    lowered = lower_network(network)
    where = str(network.path)
    inputs = sum(t.size for t in lowered.inputs)
    points = probe_points(inputs)
    expected = [_replayed(network, x) for x in points]
    if any(y.size != lowered.graph.output_size for y in expected):
        sizes = f"{expected[0].size} numbers from ONNX Runtime, {lowered.graph.output_size} here"
        raise InputError(where, "equal output sizes", sizes, EXPORT_AGAIN)
    gap = largest_gap(_computed(lowered.graph, points), np.stack(expected))
    if gap > TOLERANCE:
        raise InputError(
            where,
            f"agreement with ONNX Runtime within {TOLERANCE:g}",
            f"a difference of {gap:.3g}",
            "the file uses an operator in a way that is imported wrongly; please report it",
        )
    return lowered.graph


def _computed(graph: Graph, points: Array) -> Array:
    """The graph at the points."""
    with one_thread(), torch.no_grad():
        out: Array = GraphModule(graph, torch.float64)(torch.from_numpy(points)).numpy()
    return out


def probe_points(inputs: int) -> Array:
    """Two points of the unit box and two near zero; float32 numbers, the same for every call."""
    random = np.random.default_rng(inputs)
    box = random.random((2, inputs))
    small = 0.1 * random.standard_normal((2, inputs))
    return np.concatenate([box, small]).astype(np.float32).astype(np.float64)


def _replayed(network: Network, x: Array) -> Array:
    try:
        return np.asarray(network.replay(x), np.float64)
    except InputError:
        raise
    except Exception as error:  # the runtime raises a dozen unrelated types for a bad file
        got = " ".join(str(error).split())[:300]
        where = str(network.path)
        raise InputError(where, "a model that ONNX Runtime runs", got, EXPORT_AGAIN) from error


def largest_gap(computed: Array, expected: Array) -> float:
    """max |a - b| / max(1, |b|) over the points where ONNX Runtime gives finite numbers."""
    usable = np.isfinite(expected).all(axis=1)
    a, b = computed[usable], expected[usable]
    gaps = np.abs(a - b) / np.maximum(1.0, np.abs(b))
    return float(np.nan_to_num(gaps, nan=np.inf).max(initial=0.0))
