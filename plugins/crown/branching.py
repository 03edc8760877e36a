"""Which neuron to split: a score from the bound's own coefficients, then a trial of the best few.

The score is what the upper line of a neuron costs the bound: its coefficient, where negative, times the height of the
triangle (Bunel et al. 2020, BaBSR; the lower line is already optimal). The trial bounds both children of the best few
and keeps the one whose worse child is best (De Palma et al. 2021, filtered smart branching).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise import Dual, Goal, Result, evaluate
from verifolio.plugins.crown.program import Program, State
from verifolio.plugins.crown.subproblems import Subproblems

TRIALS = 4
POSITIVE = 0.1
Spread = Callable[[int, dict[int, Tensor]], State]


@dataclass(frozen=True)
class Choice:
    """Per subproblem: the node and neuron to split; `stuck` where nothing is left to split."""

    node: Tensor
    neuron: Tensor
    stuck: Tensor

    def pick(self, index: Tensor) -> Choice:
        return Choice(self.node[index], self.neuron[index], self.stuck[index])


def scores(program: Program, state: State, result: Result) -> tuple[Tensor, Tensor, Tensor]:
    """The score of every splittable neuron, flat over nodes, and for each its node and neuron."""
    lead = result.margin.nan_to_num(nan=-torch.inf).argmax(1)
    batch = torch.arange(len(lead), device=lead.device)
    rows = {i: r.expand(len(lead), -1, -1)[batch, lead] for i, r in result.captured.items()}
    parts, nodes, neurons = [], [], []
    for i in program.graph.relus:
        p = program.parents[i][0]
        low, high = state.interval[p]
        unstable = (low < 0) & (high > 0)
        score = torch.full_like(low, 1e-20)  # an unstable neuron the bound does not feel can be split too
        if i in rows:
            height = -low * high / (high - low).clamp(min=1e-30)
            score = score + (-rows[i]).clamp(min=0) * height + POSITIVE * rows[i].clamp(min=0) * height
        parts.append(torch.where(unstable, score, torch.full_like(score, -1.0)))
        nodes.append(torch.full((score.shape[1],), p, device=score.device))
        neurons.append(torch.arange(score.shape[1], device=score.device))
    return torch.cat(parts, 1), torch.cat(nodes), torch.cat(neurons)


def choose(
    program: Program, state: State, goal: Goal, items: Subproblems, result: Result, spread: Spread
) -> Choice:
    """The neuron whose split raises the worse child most, among the best scored."""
    score, nodes, neurons = scores(program, state, result)
    count = min(TRIALS, score.shape[1])
    top = score.topk(count, dim=1)
    stuck = top.values[:, 0] < 0
    if count == 1:
        return Choice(nodes[top.indices[:, 0]], neurons[top.indices[:, 0]], stuck)
    outcomes = []
    for k in range(count):
        node, neuron = nodes[top.indices[:, k]], neurons[top.indices[:, k]]
        children = Subproblems.join([items.fix(node, neuron, s) for s in (1, -1)])
        batch = spread(len(children), children.signs)
        trial = evaluate(program, batch, _twice(goal), {}, Dual(children.dual(score.dtype).alpha))
        worse, better = trial.margin.amax(1).nan_to_num(nan=-torch.inf).chunk(2)
        worse, better = torch.minimum(worse, better), torch.maximum(worse, better)
        outcomes.append(torch.where(top.values[:, k] < 0, -torch.inf, worse + 1e-3 * better.clamp(max=0)))
    best = torch.stack(outcomes, 1).argmax(1)
    picked = top.indices[torch.arange(len(best), device=best.device), best]
    return Choice(nodes[picked], neurons[picked], stuck)


def _twice(goal: Goal) -> Goal:
    inputs = None if goal.inputs is None else torch.cat([goal.inputs] * 2)
    return Goal(torch.cat([goal.rows] * 2), inputs, torch.cat([goal.rhs] * 2))
