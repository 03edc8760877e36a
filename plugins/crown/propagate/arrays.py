"""Between a problem's arrays and a program's tensors: all rows of a condition, and bounds as numbers."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from verifolio.graph.ops import Array
from verifolio.model.problem import Problem, dense_rows


def all_rows(problem: Problem) -> tuple[Array, Array, Array]:
    """Every row of every disjunct, dense: (inputs part, outputs part, right-hand sides)."""
    graph = problem.graph
    parts = [dense_rows(rows, graph.input_size, graph.output_size) for rows in problem.disjuncts]
    on_inputs, on_outputs, rhs = (np.concatenate([p[i] for p in parts]) for i in range(3))
    return on_inputs, on_outputs, rhs


def as_numbers(value: Tensor, unknown: float) -> Array:
    """A tensor of bounds in doubles, with `unknown` in place of what is not a number."""
    array: Array = value.double().cpu().numpy()
    return np.where(np.isnan(array), unknown, array)
