"""How far points are from being counterexamples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.graph.evaluator import evaluator
from verifolio.model.problem import Problem, dense_rows

Array = NDArray[np.float64]


class Violation:
    """How far points are from satisfying the output condition (<= 0: satisfied), in float64."""

    def __init__(self, problem: Problem, device: str = "cpu") -> None:
        self.outputs = evaluator(problem.graph) if device == "cpu" else _on_device(problem.graph, device)
        n, m = problem.graph.input_size, problem.graph.output_size
        self.inputs = n
        self.parts = [dense_rows(rows, n, m) for rows in problem.disjuncts]

    def __call__(self, x: Array) -> Array:
        y = self.outputs(x)
        worst = [(x @ a.T + y @ b.T - rhs).max(1, initial=-np.inf) for a, b, rhs in self.parts]
        return np.asarray(np.min(worst, axis=0))


def _on_device(graph: Graph, device: str) -> Callable[[Array], Array]:
    import torch

    from verifolio.graph.module import GraphModule

    module = GraphModule(graph, torch.float64).to(device)

    def outputs(x: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.as_tensor(x, device=device)).cpu().numpy())

    return outputs
