"""Batches of boxes, and the engine that bounds them with the compiled kernel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph, Product, Relu
from verifolio.model.problem import Problem
from verifolio.plugin.evidence import Bounds
from verifolio.plugins.crown.kernel.blocks import is_square, make_blocks, make_kernel, rows_form, unread
from verifolio.plugins.crown.kernel.quadratics import MAX_CONJUNCTION, make_quadratics, quadratic

try:  # compiled where a C compiler was at hand when the package was built
    from verifolio.plugins.crown.kernel import _boxes as _boxes
    from verifolio.plugins.crown.kernel import _quadratics as _quadratics

    # what an earlier version of the sources was compiled to takes other arguments
    if (getattr(_boxes, "INTERFACE", 1), _quadratics.INTERFACE) != (2, 1):
        raise ImportError("compiled from other sources: install the package again")
except ImportError:
    _boxes = _quadratics = None  # type: ignore[assignment]

Array = NDArray[np.float64]
# Choices, not measured: smaller ones send networks to the search on neurons that boxes would decide sooner, larger
# ones spend up to ten seconds on boxes of networks that boxes cannot decide.
MAX_KERNEL_INPUTS = 128
MAX_KERNEL_NEURONS = 4000  # see above
FEW_ENTRIES = (
    32  # per neuron: networks of minima and maxima of few numbers, whose boxes are quick however many neurons
)
BOXES_PER_THREAD = 16  # fewer are not worth handing to other threads; a choice


@dataclass
class BoxBatch:
    """Boxes (count, inputs), what is known to be stable on them (count, neurons; may be empty), numbers in a tree."""

    lower: Array
    upper: Array
    phase: NDArray[np.int8]
    node: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        if len(self.node) != len(self.lower):
            self.node = np.zeros(len(self.lower), np.int64)

    def __len__(self) -> int:
        return len(self.lower)

    def pick(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> BoxBatch:
        return BoxBatch(self.lower[index], self.upper[index], self.phase[index], self.node[index])

    @classmethod
    def join(cls, parts: list[BoxBatch]) -> BoxBatch:
        return BoxBatch(
            np.concatenate([p.lower for p in parts]),
            np.concatenate([p.upper for p in parts]),
            np.concatenate([p.phase for p in parts]),
            np.concatenate([p.node for p in parts]),
        )


@dataclass
class Findings:
    """Per box: proved free of counterexamples, or how to go on.

    An open box has been narrowed in place; `score` says how much splitting each input helps, `corner` is where
    the most promising row is smallest, `margin` the bound that is still missing (negative).
    """

    closed: NDArray[np.bool_]
    score: Array
    corner: Array
    margin: Array


class BoxEngine(Protocol):
    """Bounds batches of boxes; `phase` is what is stable on the whole domain."""

    phase: NDArray[np.int8]

    def bound(self, batch: BoxBatch) -> Findings: ...


class KernelEngine:
    """The compiled kernel, on several threads."""

    dense = False

    def __init__(self, problem: Problem, threads: int, known: Bounds | None = None) -> None:
        blocks = make_blocks(problem.graph)
        if _boxes is None or blocks is None:
            raise ValueError("the kernel needs a compiled extension and a small graph of ReLUs and products")
        self.kernel = make_kernel(blocks, problem, self.dense)
        self.neurons = blocks.neurons
        self.phase = stable_phases(problem.graph, known)
        self.phase[unread(blocks, rows_form(blocks, problem))] = -1  # whatever they are, nothing changes
        self.threads = ThreadPoolExecutor(threads) if threads > 1 else None
        self.parts = threads

    def close(self) -> None:
        """End the threads, so that the worker can be used again."""
        if self.threads is not None:
            self.threads.shutdown()

    def bound(self, batch: BoxBatch) -> Findings:
        if self.threads is None or len(batch) < BOXES_PER_THREAD * self.parts:
            return self._bound(batch)
        cuts = np.array_split(np.arange(len(batch)), self.parts)
        pieces = [batch.pick(slice(c[0], c[-1] + 1)) for c in cuts]  # views, so narrowing reaches the batch
        found = list(self.threads.map(self._bound, pieces))
        return Findings(*(np.concatenate([getattr(f, n) for f in found]) for n in Findings.__annotations__))

    def _bound(self, batch: BoxBatch) -> Findings:
        k, count = self.kernel, len(batch)
        score, corner = np.zeros_like(batch.lower), np.zeros_like(batch.lower)
        margin, closed = np.zeros(count), np.zeros(count, np.uint8)
        rows = (k.weight, k.begin, k.column, k.entry, k.bias, k.noise)
        network = (k.size, k.first, k.last, k.offset, *rows, k.kind)
        condition = (k.disjunct, k.strict, k.disjuncts)
        boxes = (batch.phase, batch.lower, batch.upper, score, corner, margin, closed)
        _boxes.bound(*network, *condition, *boxes)
        return Findings(closed.astype(bool), score, corner, margin)


class QuadraticEngine(KernelEngine):
    """The compiled kernel for conditions that are quadratic in the inputs and the ReLUs."""

    dense = True

    def __init__(self, problem: Problem, threads: int, known: Bounds | None = None) -> None:
        super().__init__(problem, threads, known)
        self.quadratics = make_quadratics(self.kernel)

    def _bound(self, batch: BoxBatch) -> Findings:
        k, q, count = self.kernel, self.quadratics, len(batch)
        score, corner = np.zeros_like(batch.lower), np.zeros_like(batch.lower)
        margin, closed = np.zeros(count), np.zeros(count, np.uint8)
        network = (q.size, k.first, k.last, k.offset, q.weight, q.bias, q.noise, k.kind)
        condition = (q.start, q.member, q.uses, q.strict)
        boxes = (batch.phase, batch.lower, batch.upper, score, corner, margin, closed)
        _quadratics.bound(*network, *condition, *boxes)
        return Findings(closed.astype(bool), score, corner, margin)


def stable_phases(graph: Graph, known: Bounds | None) -> NDArray[np.int8]:
    """The phase of every neuron that bounds show to be stable: 1 active, -1 inactive; 0 for others and factors."""
    found = [np.zeros(0, np.int8)]
    for node in graph.nodes[1 : graph.output + 1]:
        if isinstance(node.op, Product) or is_square(node.op):
            found.append(np.zeros(2 * node.op.size, np.int8))
        if isinstance(node.op, Relu):
            read, phase = node.parents[0], np.zeros(node.op.size, np.int8)
            if known is not None and read in known.lower and read in known.upper:
                phase[known.upper[read] <= 0] = -1
                phase[known.lower[read] >= 0] = 1
            found.append(phase)
    return np.concatenate(found)


def compiled() -> bool:
    """Whether the compiled kernel exists."""
    return _boxes is not None


def kernel_applies(problem: Problem) -> bool:
    """Whether the compiled kernel exists and can handle the problem."""
    plain = problem.domain.ball is None or problem.domain.ball.norm == np.inf
    if _boxes is None or not plain or problem.graph.input_size > MAX_KERNEL_INPUTS:
        return False
    blocks = make_blocks(problem.graph)
    if blocks is None:
        return False
    return blocks.neurons <= MAX_KERNEL_NEURONS or blocks.entries <= FEW_ENTRIES * blocks.neurons


def quadratics_apply(problem: Problem) -> bool:
    """Whether the kernel for quadratic conditions can handle a problem that the other kernel can."""
    blocks = make_blocks(problem.graph)
    short = all(rows.count <= MAX_CONJUNCTION for rows in problem.disjuncts)
    return _quadratics is not None and short and blocks is not None and quadratic(blocks)
