"""Between a problem's arrays and a program's tensors: its box, all rows of its condition, and bounds as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verifolio.graph.ops import Array
from verifolio.model.problem import Domain, Problem, dense_rows

if TYPE_CHECKING:
    from torch import Tensor  # the kernel's searches run in processes without torch


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


def shrunk_box(domain: Domain) -> tuple[Array, Array]:
    """The domain's box, cut to its ball's own box, which is rounded outward."""
    ball = domain.ball
    if ball is None:
        return domain.lower, domain.upper
    low, high = ball.centre - ball.radius, ball.centre + ball.radius
    return (
        np.maximum(domain.lower, np.nextafter(low, -np.inf)),
        np.minimum(domain.upper, np.nextafter(high, np.inf)),
    )
