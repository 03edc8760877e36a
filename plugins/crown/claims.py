"""The slopes behind the bounds of intermediate neurons, for certificates: sought anew, with a neuron's own slopes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verifolio.model.problem import Problem
from verifolio.plugins.crown.adam import Adam
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.program import Program, State
from verifolio.plugins.crown.region import Region
from verifolio.plugins.crown.sweep import loose, tighter
from verifolio.run.budget import Budget

RATE, STEPS = 0.3, 16
AT_ONCE = 128  # neurons
LEVELS = 61  # what a certificate writes of a slope


def claim_arrays(problem: Problem, budget: Budget) -> dict[str, Any]:
    """Per end of a neuron: its ReLU's number, the neuron, the sign (1: lower end), and 61 times all slopes."""
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
                return {}
            rows = torch.zeros(1, 2 * len(part), program.sizes[node], dtype=torch.float64)
            place = torch.arange(len(part))
            rows[0, place, part], rows[0, place + len(part), part] = 1, -1
            bound, alpha = climb(program, state, node, rows)
            low[:, part] = torch.fmax(low[:, part], bound[:, : len(part)])
            high[:, part] = torch.fmin(high[:, part], -bound[:, len(part) :])
            table = np.zeros((2 * len(part), starts[-1]), np.uint8)
            for i, a in alpha.items():
                k = graph.relus.index(i)
                table[:, starts[k] : starts[k + 1]] = (a[0] * LEVELS).round().to(torch.uint8).numpy()
            slopes.append(table)
            both = np.tile(part.numpy(), 2)
            ends.append(np.stack([np.full(len(both), numbers[node]), both, np.repeat([1, -1], len(part))], 1))
        state.interval[node] = tighter(state.interval[node], (low, high))
    return {"claim_ends": np.concatenate(ends), "claim_slopes": np.concatenate(slopes)}


def climb(program: Program, state: State, node: int, rows: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """The best bounds (1, rows) of a gradient ascent on every row's slopes, and the slopes that gave each of them."""
    state = replace(state, lines=dict(state.lines), noise=dict(state.noise))
    alpha: dict[int, Tensor] = {}
    for i in program.graph.relus:
        rule = program.relaxations[i]
        if i < node and rule is not None and bool(rule.loose(*state.inputs(program, i)).any()):
            first = rule.start(*state.inputs(program, i))
            alpha[i] = first[:, None].repeat(1, rows.shape[1], 1).requires_grad_()
    if not alpha:
        with torch.no_grad():
            return program.lower(state, node, rows), {}
    adam = Adam((alpha.values(), RATE))
    best = torch.full((1, rows.shape[1]), -torch.inf, dtype=torch.float64)
    kept = {i: a.detach().clone() for i, a in alpha.items()}
    for _ in range(STEPS):
        with torch.enable_grad():
            for i, a in alpha.items():
                program.relax(state, i, a)
            bound = program.lower(state, node, rows)
            total = bound.nan_to_num(0.0).sum()
        better = bound.detach() > best
        best = torch.where(better, bound.detach(), best)
        for i, a in alpha.items():
            kept[i] = torch.where(better[..., None], a.detach(), kept[i])
        if not total.requires_grad:
            break
        adam.step(torch.autograd.grad(total, list(alpha.values()), allow_unused=True))
        with torch.no_grad():
            for a in alpha.values():
                a.clamp_(0, 1)
    return best, kept
