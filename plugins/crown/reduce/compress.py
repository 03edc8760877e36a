"""A smaller graph that is exact on one domain: stable neurons are eliminated, unstable ones that matter stay.

On the domain a stable neuron is linear, so every unstable neuron's input is an affine function of x and of the
unstable neurons before it. The rows come from the same backward pass as the bounds, in float64; what it rounds is
bounded by the charge and kept as the bias error of the new graph, so a proof about the small graph is a proof
about the large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from verifolio.graph import Concat, Dense, Graph, GraphBuilder, Relu, Select, Sum
from verifolio.plugins.crown.propagate.cone import cone
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax import Lines
from verifolio.plugins.crown.propagate.relax.base import Interval

ROWS_AT_ONCE = 512  # of one backward pass in float64
ELEMENTS = 1 << 24  # of one pass: 128 MB in float64, and a few times that on the way


@dataclass(frozen=True)
class Stacked:
    """The inputs of all kept neurons, layer after layer (`sizes`), then the goal's rows: direct x + feed h + bias.

    `error` bounds what computing these rounded.
    """

    direct: np.ndarray
    feed: np.ndarray
    bias: np.ndarray
    error: np.ndarray
    sizes: list[int]


@dataclass(frozen=True)
class Compressed:
    """The small graph (its outputs are the goal's rows), the intervals known for its nodes, and its matrices.

    `origin` (kept, 2): which ReLU node of the large graph, by its number among them, and which of its neurons.
    """

    graph: Graph
    known: dict[int, Interval]
    stacked: Stacked
    origin: np.ndarray


@dataclass
class _Rows:
    """Affine forms of several values: over x, over the kept neurons so far, constant and error."""

    on_input: list[np.ndarray]
    on_kept: list[np.ndarray]
    bias: list[np.ndarray]
    error: list[np.ndarray]


def compress(
    graph: Graph,
    region: Region,
    interval: dict[int, Interval],
    rows: Tensor,
    direct: Tensor,
    rhs: Tensor | None = None,
) -> Compressed:
    """`interval` holds the bounds of every ReLU's input.

    The small graph's outputs are `rows` (count, outputs) applied to the graph's, plus `direct` (count, inputs)
    applied to x, minus `rhs` (count).
    """
    program = Program(graph, Space(torch.float64, str(region.lower.device)))
    state = _linear_state(program, region, interval)
    needed = cone(program, rows[None])
    kept = {i: _unstable(program, state, i, needed.get(i)) for i in graph.relus}
    forms: dict[int, _Rows] = {}
    for i in graph.relus:
        if len(kept[i]):
            parent = program.parents[i][0]
            before = [j for j in graph.relus if j < i and len(kept[j])]
            forms[i] = _forms(program, state, parent, _Units(program, parent, kept[i]), before, kept)
    last = [j for j in graph.relus if len(kept[j])]
    goal = rows.double().split(_at_once(program))
    forms[graph.output + 1] = _forms(program, state, graph.output, goal, last, kept)
    _add_direct(forms[graph.output + 1], direct.double().cpu().numpy(), region)
    if rhs is not None:
        _subtract(forms[graph.output + 1], rhs.double().cpu().numpy())
    stacked = _stack(forms, [len(kept[j]) for j in last])
    felt = _felt(stacked)
    stacked = _pick(stacked, felt)
    small = _assemble(stacked)
    ends = [interval[program.parents[i][0]] for i in last]
    wanted = [kept[i][torch.as_tensor(n, device=rows.device)] for i, n in zip(last, felt, strict=True)]
    inner = [(low[:1, k], high[:1, k]) for (low, high), k in zip(ends, wanted, strict=True) if len(k)]
    nodes = [p for n in small.relus for p in small.nodes[n].parents]
    numbers = [graph.relus.index(i) for i in last]
    origin = [
        np.stack([np.full(len(k), j), k.cpu().numpy()], 1) for j, k in zip(numbers, wanted, strict=True)
    ]
    whole = np.concatenate([np.zeros((0, 2), np.int64), *origin])
    return Compressed(small, dict(zip(nodes, inner, strict=True)), stacked, whole)


def _stack(forms: dict[int, _Rows], sizes: list[int]) -> Stacked:
    join = np.concatenate
    direct, bias, error = (
        join([join(getattr(f, n)) for f in forms.values()]) for n in ("on_input", "bias", "error")
    )
    feed = np.zeros((len(direct), sum(sizes)))
    start = 0
    for form in forms.values():
        part = join(form.on_kept)
        feed[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return Stacked(direct, feed, bias, error, sizes)


def _felt(stacked: Stacked) -> list[np.ndarray]:
    """Which neurons of each layer the goal feels: those in its rows, or in such a neuron's."""
    starts = np.cumsum([0, *stacked.sizes])
    felt = np.abs(stacked.feed[starts[-1] :]).sum(0) != 0  # NaN counts
    for low, high in zip(starts[-2::-1], starts[:0:-1], strict=True):
        felt |= np.abs(stacked.feed[low:high][felt[low:high]]).sum(0) != 0
    return [felt[low:high] for low, high in pairwise(starts)]


def _pick(stacked: Stacked, needed: list[np.ndarray]) -> Stacked:
    """The neurons that are needed, and all rows of the goal."""
    columns = np.concatenate([np.zeros(0, bool), *needed])
    rows = np.r_[columns, np.ones(len(stacked.bias) - len(columns), bool)]
    sizes = [int(n.sum()) for n in needed if n.any()]
    parts = (stacked.direct[rows], stacked.feed[rows][:, columns], stacked.bias[rows], stacked.error[rows])
    return Stacked(*parts, sizes)


def _add_direct(goal: _Rows, direct: np.ndarray, region: Region) -> None:
    """Add rows over x to the goal's forms; the sum rounds once per entry."""
    size = torch.maximum(region.lower[:1].abs(), region.upper[:1].abs())[0].double().cpu().numpy()
    total = np.concatenate(goal.on_input) + direct
    goal.error.append(np.concatenate(goal.error) + 2.0**-52 * (np.abs(total) @ size))
    goal.on_input, goal.error = [total], goal.error[-1:]


def _subtract(goal: _Rows, rhs: np.ndarray) -> None:
    """Take the right-hand sides off the goal's constants; the difference rounds once."""
    shifted = np.concatenate(goal.bias) - rhs
    goal.error = [np.concatenate(goal.error) + 2.0**-52 * np.abs(shifted)]
    goal.bias = [shifted]


def _linear_state(program: Program, region: Region, interval: dict[int, Interval]) -> State:
    """Stable neurons keep their slope, unstable ones are cut off: their coefficients are captured instead."""
    wide = Region(region.lower.double(), region.upper.double())
    state = program.enter(wide)
    for node in range(1, program.graph.output + 1):
        program.forward(state, node)
        if node in interval:
            state.interval[node] = (interval[node][0][:1].double(), interval[node][1][:1].double())
        if program.relaxations[node] is not None:
            program.relax(state, node)
            low, _ = state.inputs(program, node)[0]
            slope = (low >= 0).double()
            state.lines[node] = Lines((slope,), (slope,), None, None)
    return state


def _unstable(program: Program, state: State, node: int, needed: Tensor | None) -> Tensor:
    """The unstable neurons that some row depends on; `needed` is None where none does."""
    low, high = state.inputs(program, node)[0]
    # a neuron whose bounds are NaN is not known to be stable
    mask = ~((low >= 0) | (high <= 0))[0]
    return (mask & needed if needed is not None else torch.zeros_like(mask)).nonzero()[:, 0]


def _at_once(program: Program) -> int:
    """Rows of one pass."""
    return max(1, min(ROWS_AT_ONCE, ELEMENTS // max(program.sizes)))


class _Units:
    """The rows of some neurons of a node, made when they are needed."""

    def __init__(self, program: Program, node: int, neurons: Tensor) -> None:
        self.size, self.parts = program.sizes[node], neurons.split(_at_once(program))

    def __iter__(self) -> Iterator[Tensor]:
        for part in self.parts:
            rows = torch.zeros(len(part), self.size, dtype=torch.float64, device=part.device)
            rows[torch.arange(len(part)), part] = 1
            yield rows


def _forms(
    program: Program,
    state: State,
    node: int,
    rows: Iterable[Tensor],
    before: list[int],
    kept: dict[int, Tensor],
) -> _Rows:
    """Affine forms of rows over a node, part by part."""
    found = _Rows([], [], [], [])
    for part in rows:
        captured: dict[int, Tensor] = {}
        over_input = program.backward(state, node, part[None], None, captured.__setitem__)
        found.on_input.append(over_input.rows[0].cpu().numpy())
        # a kept neuron that the rows do not reach has no captured entry
        cut = [
            captured[j][0][:, kept[j]] if j in captured else part.new_zeros(len(part), len(kept[j]))
            for j in before
        ]
        found.on_kept.append(torch.cat(cut, 1).cpu().numpy() if cut else np.zeros((len(part), 0)))
        found.bias.append(over_input.constant.expand(1, len(part))[0].cpu().numpy())
        found.error.append(over_input.charge.expand(1, len(part))[0].cpu().numpy() * 1.01 + 1e-300)
    return found


def _assemble(stacked: Stacked) -> Graph:
    """x -> one dense node for all direct parts; then layer after layer of kept neurons; then the goal rows."""
    builder = GraphBuilder(stacked.direct.shape[1])
    direct, feed = stacked.direct, stacked.feed
    first = builder.add(Dense(len(direct), stacked.bias, direct, None, stacked.error), 0)
    hidden: list[int] = []
    start = 0
    for size in [*stacked.sizes, len(direct) - sum(stacked.sizes)]:
        value = builder.add(Select(size, np.arange(start, start + size, dtype=np.int64)), first)
        if start:
            before = hidden[0] if len(hidden) == 1 else builder.add(Concat(start), *hidden)
            inner = builder.add(Dense(size, np.zeros(size), feed[start : start + size, :start]), before)
            value = builder.add(Sum(size, (1.0, 1.0)), value, inner)
        start += size
        hidden.append(builder.add(Relu(size), value))
    return builder.finish(value)
