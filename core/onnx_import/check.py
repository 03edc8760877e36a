"""Import with a comparison against ONNX Runtime, tensor by tensor: it proves nothing, but it catches blunders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from verifolio.errors import InputError
from verifolio.graph.evaluator import evaluator
from verifolio.graph.graph import Graph
from verifolio.graph.ops import Array
from verifolio.onnx_import.lower import Lowered, Traced, lower_network
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.noise import ROUNDINGS, UNIT, Values, evaluate, exact_values, work
from verifolio.onnx_import.reader import EXPORT_AGAIN
from verifolio.onnx_import.session import open_traced
from verifolio.onnx_import.values import View

TINY = 1e-36  # single precision has no accuracy below
HUGE = 1e37  # and none above
# where activations, clips and roundings of common operators bend or jump
BREAKPOINTS = (-6.0, -3.0, -2.5, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 6.0)
# of inputs: normalised data first, then pixels, then values that saturate or vanish
SCALES = (1.0, 10.0, 1e-3, 1e3, 1e2, 1e4, 1e6, 1e-6)
HUGE_WORK = (
    1e9  # multiplications of one evaluation, some seconds: each of many entries is compared at one point
)
BUDGET = 1e7  # multiplications: with all that surrounds them, about a tenth of a second


def import_graph(network: Network) -> Graph:
    """The graph of a network; raises InputError for files that cannot be read or represented."""
    lowered = lower_network(network)
    compare(network, lowered, probe_points(lowered.graph))
    return lowered.graph


def check_on_box(network: Network, lower: Array, upper: Array) -> None:
    """Compare once more where a property asks; once per process and box."""
    _checked_box(network, lower.tobytes(), upper.tobytes())


@lru_cache(maxsize=256)
def _checked_box(network: Network, lower_bytes: bytes, upper_bytes: bytes) -> None:
    """At the middle, two corners and two points of the box."""
    lower, upper = np.frombuffer(lower_bytes), np.frombuffer(upper_bytes)
    lowered = lower_network(network)
    if work(lowered.graph) > HUGE_WORK:  # the comparison of the import has to do
        return
    parts = _places(len(lower))
    points = lower + parts[: _affordable(lowered.graph, len(parts))] * (upper - lower)
    if np.isfinite(points).all() and bool((np.abs(points) < HUGE).all()):
        compare(network, lowered, _single(points))


@lru_cache(maxsize=4)
def _places(size: int) -> Array:
    """Where in a box points are compared, as parts of its sides."""
    random = np.random.default_rng(size)
    return np.concatenate(
        [np.full((1, size), 0.5), random.integers(0, 2, (2, size)), random.random((2, size))]
    )


def probe_points(graph: Graph) -> Array:
    """Points of the unit box, near zero, at breakpoints of functions and of many sizes; the same each time."""
    inputs = graph.input_size
    random = np.random.default_rng(inputs)
    box, small = random.random((2, inputs)), 0.1 * random.standard_normal((2, inputs))
    breaks = random.choice(BREAKPOINTS, (2, inputs))
    scaled = [s * random.standard_normal((1, inputs)) for s in SCALES]
    points = np.concatenate([box[:1], breaks[:1], *scaled[:2], box[1:], small, breaks[1:], *scaled[2:]])
    return _single(points[: _affordable(graph, len(points))])


def _single(points: Array) -> Array:
    return points.astype(np.float32).astype(np.float64)


def _affordable(graph: Graph, wanted: int) -> int:
    """How many points the budget allows: at least four, of huge networks one."""
    cost = max(work(graph), 1)
    return 1 if cost > HUGE_WORK else max(4, min(wanted, int(BUDGET / cost)))


def compare(network: Network, lowered: Lowered, points: Array) -> None:
    """Raise an InputError that names the first tensor whose value differs from ONNX Runtime's."""
    # ONNX Runtime's optimiser may quantise weights that the file has in float, so quantised networks are compared
    # operator by operator; witnesses that hinge on the optimiser are flagged
    optimised = not lowered.plain.steps
    expected = [_replayed(network, x, optimised) for x in points]
    size = lowered.graph.output_size
    if any(y.size != size for y in expected):
        sizes = f"{expected[0].size} numbers from ONNX Runtime, {size} here"
        raise InputError(str(network.path), "equal output sizes", sizes, EXPORT_AGAIN)
    theirs = _intermediate(network, lowered, points)
    outputs = evaluator(lowered.graph)(points)  # the graph as it is used, after its simplifications
    if not _plainly_agree(lowered, points, theirs, outputs, np.stack(expected)):
        _compare_with_rounding(network, lowered, points, theirs, outputs, np.stack(expected))


def _plainly_agree(
    lowered: Lowered, points: Array, theirs: Sequence[Array], outputs: Array, expected: Array
) -> bool:
    """Whether every tensor agrees within roundings of its own values, which need no estimate of cancellation."""
    if not agree(outputs, expected):
        return False
    values = exact_values(lowered.plain, points)
    return all(
        agree(_entries(t, values, len(points)), found) for t, found in zip(lowered.trace, theirs, strict=True)
    )


def agree(ours: Array, theirs: Array) -> bool:
    """True only where `find_difference` finds nothing, whatever the spread: the values, all finite, are close."""
    size = np.abs(ours)
    widest = size.max(axis=1, initial=0.0, keepdims=True)
    with np.errstate(all="ignore"):
        allowed = ROUNDINGS * UNIT * size + (ROUNDINGS / 4 * UNIT * widest + TINY)
        close = np.abs(ours - theirs) <= allowed  # not where one is no number
    return bool(close.all()) and bool((widest < HUGE / 2).all())


def _compare_with_rounding(
    network: Network,
    lowered: Lowered,
    points: Array,
    found: Sequence[Array],
    outputs: Array,
    expected: Array,
) -> None:
    """The same with an estimate of how far roundings move each value; names the first tensor that differs."""
    values = evaluate(lowered.plain, points)
    usable = np.ones(len(points), bool)
    doubts = {i: values.doubtful(i).any(axis=1) for i in lowered.plain.steps}
    with np.errstate(all="ignore"):
        for tensor, theirs in zip(lowered.trace, found, strict=True):
            ours, spread = _at(tensor, values, len(points))
            usable &= ~_hinges(tensor, doubts)
            _complain(network, tensor.label, ours, spread, theirs, usable)
            usable &= (np.abs(np.nan_to_num(theirs, nan=np.inf)) < HUGE).all(axis=1)
        _, spread = values.at(lowered.plain.output, np.arange(lowered.graph.output_size))
        _complain(network, "the output", outputs, spread, expected, usable)


def _hinges(tensor: Traced, doubts: dict[int, Any]) -> Any:
    """At which points a tensor, or one before it, hinges on the rounding of a step's argument."""
    last = tensor.value.node if isinstance(tensor.value, View) else 0
    return np.any([d for i, d in doubts.items() if i <= last] or [False], axis=0)


def _intermediate(network: Network, lowered: Lowered, points: Array) -> list[Array]:
    """ONNX Runtime's values at the points of each traced tensor of the file, in order."""
    session, names = _traced_session(network)
    runs = [session.run(names, _feeds(lowered, x)) for x in points]
    place = {name: k for k, name in enumerate(names)}
    found = []
    for t in lowered.trace:
        rows = [run[place[t.name]].reshape(-1)[t.positions] for run in runs]
        found.append(np.stack(rows).astype(np.float64))
    return found


@lru_cache(maxsize=1)
def _traced_session(network: Network) -> tuple[Any, list[str]]:
    lowered = lower_network(network)
    known = {t.name for t in lowered.outputs}
    names = list(dict.fromkeys(t.name for t in lowered.trace))
    return open_traced(network, [n for n in names if n not in known]), names


def _feeds(lowered: Lowered, x: Array) -> dict[str, Any]:
    feeds, start = {}, 0
    for tensor in lowered.inputs:
        feeds[tensor.name] = x[start : start + tensor.size].astype(np.float32).reshape(tensor.shape)
        start += tensor.size
    return feeds


def _entries(tensor: Traced, values: Sequence[Array], count: int) -> Array:
    """Our values of a tensor at the points."""
    if isinstance(tensor.value, View):
        index = tensor.value.index
        picked = values[tensor.value.node][:, np.maximum(index, 0)]
        return np.where(index < 0, 0.0, picked) if (index < 0).any() else picked
    return np.broadcast_to(tensor.value.value.astype(np.float64), (count, len(tensor.positions)))


def _at(tensor: Traced, values: Values, count: int) -> tuple[Array, Array]:
    """Our values of a tensor at the points, and how far rounding may move them."""
    if isinstance(tensor.value, View):
        return values.at(tensor.value.node, tensor.value.index)
    known, shape = tensor.value, (count, len(tensor.positions))
    numbers = known.value.astype(np.float64)
    # a double's rounding error, on the scale of single precision
    spread = np.zeros(1) if known.error is None else known.error * (2.0**53 * UNIT)
    return np.broadcast_to(numbers, shape), np.broadcast_to(spread, shape)


@dataclass(frozen=True)
class Difference:
    """The largest excess over what rounding explains, at one entry."""

    ours: float
    theirs: float


def find_difference(ours: Array, spread: Array, theirs: Array) -> Difference | None:
    """The worst entry that differs by more than rounding, among those that ONNX Runtime can represent."""
    judged = np.isfinite(theirs) & np.isfinite(spread) & (np.abs(theirs) < HUGE)
    judged &= ~(np.abs(ours) > HUGE)  # single precision overflows there
    allowed = ROUNDINGS * (spread + UNIT * np.abs(ours)) + TINY
    # an entry that is small by chance is rounded like the others of its tensor
    beside = np.where(judged, spread + UNIT * np.abs(ours), 0.0).max(axis=1, initial=0.0, keepdims=True)
    allowed = allowed + ROUNDINGS / 4 * beside
    excess = np.where(judged, np.nan_to_num(np.abs(ours - theirs), nan=np.inf) - allowed, -1.0)
    if not excess.size or not bool((excess > 0).any()):
        return None
    worst = int(excess.argmax())
    return Difference(float(ours.ravel()[worst]), float(theirs.ravel()[worst]))


def _complain(network: Network, what: str, ours: Array, spread: Array, theirs: Array, usable: Any) -> None:
    found = find_difference(ours[usable], spread[usable], theirs[usable])
    if found is not None:
        raise InputError(
            str(network.path),
            "agreement with ONNX Runtime",
            f"a difference at {what}: {found.ours:.9g} here, {found.theirs:.9g} there",
            "the file uses this operator in a way that is imported wrongly; please report it",
        )


def _replayed(network: Network, x: Array, optimised: bool) -> Array:
    try:
        return np.asarray(network.replay(x, optimised), np.float64)
    except InputError:
        raise
    except Exception as error:  # the runtime raises a dozen unrelated types for a bad file
        got = " ".join(str(error).split())[:300]
        where = str(network.path)
        raise InputError(where, "a model that ONNX Runtime runs", got, EXPORT_AGAIN) from error
