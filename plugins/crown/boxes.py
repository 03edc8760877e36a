"""Engines that bound many boxes of one problem at once: a compiled kernel for small ReLU networks, tensors else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.problem import Problem, dense_rows, free_inputs
from verifolio.plugins.crown.blocks import make_blocks, make_kernel
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.program import Program
from verifolio.plugins.crown.region import Balls, Region
from verifolio.plugins.crown.sweep import Effort, sweep
from verifolio.run.budget import Budget

try:  # compiled where a C compiler was at hand when the package was built
    from verifolio.plugins.crown import _boxes as _boxes
except ImportError:
    _boxes = None  # type: ignore[assignment]

Array = NDArray[np.float64]
MAX_KERNEL_INPUTS = 128
MAX_KERNEL_NEURONS = 4000
MAX_FORWARD = 16  # with more inputs, forward bounds cost more than they give
MAX_TIGHTENED = 8000  # without them and with more neurons, no backward bounds but for the condition's rows


@dataclass
class Batch:
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

    def pick(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Batch:
        return Batch(self.lower[index], self.upper[index], self.phase[index], self.node[index])

    @classmethod
    def join(cls, parts: list[Batch]) -> Batch:
        return Batch(
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
    """Bounds batches of boxes."""

    neurons: int

    def bound(self, batch: Batch) -> Findings: ...


class KernelEngine:
    """The compiled kernel, on several threads."""

    def __init__(self, problem: Problem, threads: int) -> None:
        blocks = make_blocks(problem.graph)
        if _boxes is None or blocks is None:
            raise ValueError("the kernel needs a compiled extension and a small piecewise-linear graph")
        self.kernel = make_kernel(blocks, problem)
        self.neurons = blocks.neurons
        self.threads = ThreadPoolExecutor(threads) if threads > 1 else None
        self.parts = threads

    def bound(self, batch: Batch) -> Findings:
        if self.threads is None or len(batch) < 16 * self.parts:
            return self._bound(batch)
        cuts = np.array_split(np.arange(len(batch)), self.parts)
        pieces = [batch.pick(slice(c[0], c[-1] + 1)) for c in cuts]  # views, so narrowing reaches the batch
        found = list(self.threads.map(self._bound, pieces))
        return Findings(*(np.concatenate([getattr(f, n) for f in found]) for n in Findings.__annotations__))

    def _bound(self, batch: Batch) -> Findings:
        k, count = self.kernel, len(batch)
        score, corner = np.zeros_like(batch.lower), np.zeros_like(batch.lower)
        margin, closed = np.zeros(count), np.zeros(count, np.uint8)
        network = (k.size, k.first, k.last, k.offset, k.weight, k.bias, k.noise, k.disjunct, k.strict)
        boxes = (batch.phase, batch.lower, batch.upper, score, corner, margin, closed)
        _boxes.bound(*network, k.disjuncts, *boxes)
        return Findings(closed.astype(bool), score, corner, margin)


class TensorEngine:
    """Backward linear bounds in torch, for every operator the graph can hold and for balls."""

    neurons = 0

    def __init__(
        self, problem: Problem, budget: Budget, device: str = "cpu", elements: int = 1 << 24
    ) -> None:
        self.problem, self.budget = problem, budget
        self.space = Space(torch.float64, device)
        self.program = Program(problem.graph, self.space)
        wide = free_inputs(problem.domain.lower, problem.domain.upper)
        few, small = wide <= MAX_FORWARD, problem.graph.neurons <= MAX_TIGHTENED
        self.effort = Effort(tighten=few or small, forward=few, elements=elements)
        n, m = problem.graph.input_size, problem.graph.output_size
        parts = [dense_rows(rows, n, m) for rows in problem.disjuncts]
        self.on_inputs, self.on_outputs = (
            self.space.tensor(np.concatenate([p[i] for p in parts])) for i in (0, 1)
        )
        self.rhs = self.space.up(np.concatenate([p[2] for p in parts]))
        self.disjunct = np.concatenate([np.full(r.count, d) for d, r in enumerate(problem.disjuncts)])
        self.strict = np.concatenate([r.strict for r in problem.disjuncts])

    @torch.no_grad()
    def bound(self, batch: Batch) -> Findings:
        region = Region(
            self.space.tensor(batch.lower), self.space.tensor(batch.upper), self._balls(len(batch))
        )
        state = sweep(self.program, region, self.effort, budget=self.budget)
        captured: dict[int, Tensor] = {}
        extra = {0: self.on_inputs[None]} if bool(self.on_inputs.any()) else None
        bound = self.program.lower(
            state, self.problem.graph.output, self.on_outputs[None], extra, captured.__setitem__
        )
        rows = captured[0].expand(len(batch), -1, -1)
        gap = (bound - self.rhs - self.rhs.abs() * 4 * self.space.unit).nan_to_num(nan=-np.inf).cpu().numpy()
        return self._judge(batch, gap, rows.cpu().numpy())

    def _balls(self, count: int) -> Balls | None:
        ball = self.problem.domain.ball
        if ball is None or ball.norm == np.inf:
            return None
        one = Region.of([replace(self.problem.domain)], self.space).balls
        if one is None:
            return None
        return Balls(one.centre.expand(count, -1), one.radius.expand(count), one.norm)

    def _judge(self, batch: Batch, gap: Array, rows: Array) -> Findings:
        count, disjuncts = len(batch), len(self.problem.disjuncts)
        done = np.where(self.strict, gap >= 0, gap > 0)
        impossible = np.stack([done[:, self.disjunct == d].any(1) for d in range(disjuncts)], 1)
        best = np.stack([gap[:, self.disjunct == d].max(1) for d in range(disjuncts)], 1)
        best[impossible] = np.inf
        closed = np.asarray(impossible.all(1))
        target = best.argmin(1)
        chosen = np.where(self.disjunct[None] == target[:, None], gap, -np.inf).argmax(1)
        lead = rows[np.arange(count), chosen]
        corner = np.where(lead > 0, batch.lower, batch.upper)
        width = batch.upper - batch.lower
        # every input keeps a little score, so that inputs the row ignores are split in the end too
        score = (np.abs(lead) + 1e-3 * np.abs(rows).mean(1) + 1e-12) * width
        return Findings(closed, score, corner, np.where(closed, np.inf, best.min(1)))


def kernel_applies(problem: Problem) -> bool:
    """Whether the compiled kernel exists and can handle the problem."""
    plain = problem.domain.ball is None or problem.domain.ball.norm == np.inf
    small = problem.graph.input_size <= MAX_KERNEL_INPUTS and problem.graph.neurons <= MAX_KERNEL_NEURONS
    return _boxes is not None and plain and small and make_blocks(problem.graph) is not None


def make_engine(problem: Problem, budget: Budget, device: str = "cpu") -> BoxEngine:
    """The fastest engine that can handle the problem."""
    if kernel_applies(problem):
        return KernelEngine(problem, budget.cores)
    return TensorEngine(problem, budget, device)
