"""The bounder `auto_lirpa`: auto_LiRPA's bounds in float64, moved outward by what rounding may have cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.graph import Graph, Relu
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Problem, dense_rows
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds, Margins
from verifolio.run.budget import Budget

from .module import GraphAsModule, unfit
from .presence import missing
from .rounding import Losses

Array = NDArray[np.float64]
# of one backward pass, 512 MB in float64: it keeps a square of the widest layer per problem
ELEMENTS = 1 << 26
MOST_BATCH = 256  # problems at once, as in `crown`; memory grows with it
METHODS = ("CROWN", "CROWN-Optimized")


class ReadError(RuntimeError):
    """auto_LiRPA made another network of the graph."""


class AutoLirpaBounder(Bounder):
    """CROWN as auto_LiRPA computes it, for piecewise-linear networks on boxes.

    Looser than `crown`, because its rounding is only known from outside, and taken on trust; it is there to be named.
    """

    name = "auto_lirpa"
    tightness: ClassVar[int] = 5
    foreign: ClassVar[bool] = True

    def __init__(self, method: str = "CROWN", steps: int = 20) -> None:
        self.method, self.steps = method, steps

    @classmethod
    def available(cls) -> str | None:
        return missing()

    def refuses(self, problem: Problem) -> str | None:
        domain = problem.domain
        if domain.ball is not None:
            return "a ball; give its box"
        if not (np.isfinite(domain.lower).all() and np.isfinite(domain.upper).all()):
            return "an input has no finite bounds"
        return "an empty box" if domain.empty else unfit(problem.graph)

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        """Problems with the same graph and as many rows are bounded together."""
        groups: dict[str, list[int]] = defaultdict(list)
        for i, problem in enumerate(problems):
            groups[f"{problem.graph.sha256} {problem.row_count}"].append(i)
        found: dict[int, Bounds] = {}
        for members in groups.values():
            model = LirpaGraph(problems[members[0]].graph, self.method, self.steps, budget)
            for start in range(0, len(members), model.batch):
                part = members[start : start + model.batch]
                for i, bounds in zip(part, model.bound([problems[i] for i in part]), strict=True):
                    holds = known is not None and known.applies_to(problems[i])
                    found[i] = bounds.intersect(known) if known is not None and holds else bounds
        return [found[i] for i in range(len(problems))]


@contextmanager
def doubles() -> Iterator[None]:
    """float64 as torch's default, which auto_LiRPA uses for what it makes itself."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


class LirpaGraph:
    """One graph inside auto_LiRPA."""

    def __init__(self, graph: Graph, method: str, steps: int, budget: Budget | None = None) -> None:
        from auto_LiRPA import BoundedModule

        self.graph, self.method = graph, method
        widest = max(node.op.size for node in graph.nodes)
        self.batch = max(1, min(MOST_BATCH, ELEMENTS // (widest * widest)))
        ascent = {"iteration": steps, "verbosity": 0, "stop_criterion_func": _stop_at(budget)}
        settings = {"verbosity": 0, "optimize_bound_args": ascent}
        with doubles():
            dummy = torch.zeros(1, graph.input_size)
            self.module: Any = BoundedModule(GraphAsModule(graph), dummy, bound_opts=settings)
        self.before = [n.parents[0] for n in graph.nodes[1:] if isinstance(n.op, Relu)]
        self._compare()

    def _compare(self) -> None:
        """What it has read must compute what the graph computes: this catches blunders, it proves nothing."""
        points = torch.linspace(-1, 1, 3 * self.graph.input_size, dtype=torch.float64)
        x = torch.sin(7 * points).reshape(3, -1)
        with torch.no_grad():
            theirs, ours = self.module(x), GraphModule(self.graph, torch.float64)(x)
        if theirs.shape != ours.shape or not torch.allclose(theirs, ours, rtol=1e-8, atol=1e-8):
            raise ReadError(f"auto_LiRPA reads the network otherwise: expected {ours[0]}, got {theirs[0]}")

    def bound(self, problems: Sequence[Problem]) -> list[Bounds]:
        """Bounds of what ReLUs read and of the rows."""
        parts = [[_rows(p, k) for k in range(len(p.disjuncts))] for p in problems]
        stacked = [np.concatenate([rows for rows, _, _ in part]) for part in parts]
        lower = self._compute(problems, np.stack(stacked))
        return [self._bounds(p, k, lower[k], parts[k]) for k, p in enumerate(problems)]

    def _compute(self, problems: Sequence[Problem], rows: Array) -> Array:
        from auto_LiRPA import BoundedTensor, PerturbationLpNorm

        low, high = (
            torch.tensor(np.stack([getattr(p.domain, side) for p in problems])) for side in ("lower", "upper")
        )
        x = BoundedTensor((low + high) / 2, PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high))
        asked = rows if rows.shape[1] else np.zeros((len(problems), 1, self.graph.output_size))
        with doubles(), torch.set_grad_enabled(self.method != "CROWN"):
            bound, _ = self.module.compute_bounds(
                x=(x,), C=torch.tensor(asked), method=self.method, bound_upper=False
            )
        return np.asarray(bound.detach().numpy())[:, : rows.shape[1]]

    def _bounds(
        self, problem: Problem, k: int, lower: Array, parts: list[tuple[Array, Array, Array]]
    ) -> Bounds:
        found = self._intervals(k)
        losses = Losses(self.graph, problem.domain, found)
        wide = {i: losses.widened(i) for i in found}
        margins, start = [], 0
        for rows, inputs, rhs in parts:
            value = lower[start : start + len(rhs)] + inputs - rhs
            value = value - losses.margin(rows, np.abs(rhs) + np.abs(inputs))
            margins.append(np.where(np.isfinite(value), value, -np.inf))  # an overflow proves nothing
            start += len(rhs)
        lows, highs = {i: w[0] for i, w in wide.items()}, {i: w[1] for i, w in wide.items()}
        found_margins = Margins.of(problem, margins)
        name = AutoLirpaBounder.name
        return Bounds(
            self.graph.sha256, problem.domain, lows, highs, found_margins, source=name, foreign=True
        )

    def _intervals(self, k: int) -> dict[int, tuple[Array, Array]]:
        """Bounds of what each ReLU reads; ReLUs come in the order in which they were traced."""
        theirs = [node.inputs[0] for node in self.module.relus]
        sizes = [self.graph.nodes[i].op.size for i in self.before]
        if [int(np.prod(n.output_shape[1:])) for n in theirs] != sizes:
            return {}
        found: dict[int, tuple[Array, Array]] = {}
        for i, node in zip(self.before, theirs, strict=True):
            if isinstance(node.lower, torch.Tensor) and isinstance(node.upper, torch.Tensor):
                sides = (t.detach()[k if len(t) > 1 else 0].flatten() for t in (node.lower, node.upper))
                low, high = (np.asarray(s.numpy(), np.float64) for s in sides)
                if not (np.isnan(low).any() or np.isnan(high).any()):
                    found[i] = (low, high)
        return found


def _stop_at(budget: Budget | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """Tells the optimisation, after every step, whether each problem of the batch is finished."""

    def finished(bounds: torch.Tensor) -> torch.Tensor:
        return torch.full((len(bounds), 1), budget is not None and budget.expired())

    return finished


def _rows(problem: Problem, k: int) -> tuple[Array, Array, Array]:
    """A disjunct's rows over the output, the least that their input parts can be, and right-hand sides."""
    graph, domain = problem.graph, problem.domain
    inputs, outputs, rhs = dense_rows(problem.disjuncts[k], graph.input_size, graph.output_size)
    terms = np.where(inputs > 0, inputs * domain.lower, inputs * domain.upper)
    size = np.abs(inputs) @ np.maximum(np.abs(domain.lower), np.abs(domain.upper))
    return outputs, terms.sum(1) - size * (graph.input_size + 8) * 2.0**-52, rhs
