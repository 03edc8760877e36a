"""Bounds of intermediate neurons that a certificate can state: by slopes of a neuron's own, which are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verifolio.model.problem import Problem
from verifolio.plugins.crown.optimise.intermediate import loose
from verifolio.plugins.crown.optimise.row_slopes import ascend_rows, unit_rows
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.base import Interval, tighter
from verifolio.run.budget import Budget

STEPS = 15  # of every neuron's slopes; more than the 10 of a search, as a certificate is written once
# neurons: each has slopes of its own in every layer before, so memory is this times all neurons
AT_ONCE = 128
SLACK = 2**-9  # part of an interval that a search leaves to the rounding of slopes and of the checker
LEVELS = 61  # a certificate writes a slope as a whole number of 61sts, one character of its alphabet
# improves the interval of a node, given those before it and its own
Deepen = Callable[[dict[int, Interval], int], Interval]


def claim_arrays(
    problem: Problem, budget: Budget, deepen: Deepen | None = None
) -> tuple[dict[str, Any], dict[int, Interval]]:
    """Per end of a neuron: its ReLU's number, the neuron, the sign (1: lower end), and 61 times all slopes.

    And the intervals that these come to, a little wider; nothing of either if the time is over before.
    """
    graph = problem.graph
    program = Program(graph, Space(torch.float64))
    state = program.enter(Region.of([problem.domain], program.space))
    starts = np.cumsum([0, *(program.sizes[i] for i in graph.relus)])
    numbers = {program.parents[i][0]: k for k, i in enumerate(graph.relus)}
    ends, slopes = [np.zeros((0, 3), np.int64)], [np.zeros((0, starts[-1]), np.uint8)]
    for node in range(1, graph.output + 1):
        with torch.no_grad():
            program.forward(state, node)
            program.relax(state, node)
        if node not in numbers or program.mixing[node] <= 1:
            continue
        low, high = (t.clone() for t in state.interval[node])
        for part in loose(program, state, node).any(0).nonzero()[:, 0].split(AT_ONCE):
            if budget.expired():
                return {}, {}
            alpha: dict[int, Tensor] = {}
            bound = ascend_rows(
                program, state, node, unit_rows(program, node, part), STEPS, None, alpha, LEVELS
            )
            low[:, part] = torch.fmax(low[:, part], bound[:, : len(part)])
            high[:, part] = torch.fmin(high[:, part], -bound[:, len(part) :])
            table = np.zeros((2 * len(part), starts[-1]), np.uint8)
            for i, a in alpha.items():
                k = graph.relus.index(i)
                table[:, starts[k] : starts[k + 1]] = (a[0] * LEVELS).round().to(torch.uint8).numpy()
            slopes.append(table)
            both = np.tile(part.numpy(), 2)
            ends.append(np.stack([np.full(len(both), numbers[node]), both, np.repeat([1, -1], len(part))], 1))
        wider = (low - SLACK * (high - low), high + SLACK * (high - low))
        state.interval[node] = tighter(state.interval[node], wider)
        if deepen is not None:
            low, high = deepen({p: state.interval[p] for p in numbers if p <= node}, node)
            wider = (low - SLACK * (high - low), high + SLACK * (high - low))
            state.interval[node] = tighter(state.interval[node], wider)
    arrays = {"claim_ends": np.concatenate(ends), "claim_slopes": np.concatenate(slopes)}
    return arrays, {p: state.interval[p] for p in numbers}
