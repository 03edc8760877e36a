"""Which neuron to split: a score for all of them, and a trial of the best while there are few subproblems."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise import Dual, Goal, Result, evaluate
from verifolio.plugins.crown.program import Program, State
from verifolio.plugins.crown.subproblems import Subproblems

HEIGHT = 1e-3
PRESSURE = 0.1
CANDIDATES = 16


@torch.no_grad()
def rank(program: Program, state: State, goal: Goal, signs: dict[int, Tensor], result: Result) -> Tensor:
    """The best neurons to split (batch, candidates), numbered through all ReLU nodes; -1 where none is left.

    The score is the looseness at the relaxed point, plus a little of the height of the triangle times the
    coefficient it meets (Bunel et al. 2020). The coefficients are taken with some pressure on every earlier
    split: a subproblem may be closed by showing that its splits contradict each other, and then the neurons that
    matter are those between the splits and the input, which the output row need not feel at all.
    """
    pressed = evaluate(program, state, goal, signs, _pressed(state, signs, result))
    lead = result.margin.nan_to_num(nan=-torch.inf).argmax(1)
    place = torch.arange(len(lead), device=lead.device)
    parts = []
    for i in program.graph.relus:
        low, high = state.interval[program.parents[i][0]]
        unstable = (low < 0) & (high > 0)
        score = torch.full_like(low, 1e-20)
        if i in pressed.captured:
            rows = pressed.captured[i].expand(len(lead), -1, -1)[place, lead]
            score = score + HEIGHT * rows.abs() * (-low * high / (high - low).clamp(min=1e-30))
        if i in result.looseness:
            score = score + result.looseness[i].nan_to_num(0.0)
        parts.append(torch.where(unstable, score, torch.full_like(score, -1.0)))
    if not parts:
        return torch.full((len(lead), 1), -1, device=lead.device)
    score = torch.cat(parts, 1)
    best = score.topk(min(CANDIDATES, score.shape[1]), dim=1)
    return torch.where(best.values >= 0, best.indices, torch.full_like(best.indices, -1))


def pick_by_trial(items: Subproblems, bound: Callable[[Subproblems], Tensor], room: int) -> Subproblems:
    """Put the candidate first whose children gain most, trying as many as `room` children allow.

    Both gains count, by their product (Achterberg et al. 2005): a split that leaves one child as it was is no
    progress, even if it closes the other.
    """
    count = min(items.branch.shape[1], room // (2 * max(len(items), 1)))
    if count < 2:
        return items
    trials = Subproblems.join([items.with_branch(items.branch[:, k : k + 1]) for k in range(count)])
    gain = (bound(trials.split()) - torch.cat([trials.bound] * 2)).nan_to_num(0.0)
    limit = (-torch.cat([trials.bound] * 2)).clamp(
        min=1e-9
    )  # closing a child is worth what is missing, no more
    gain = torch.minimum(gain, limit).clamp(min=1e-4 * limit)
    left, right = gain.chunk(2)
    merit = (left * right).reshape(count, len(items)).T
    merit = torch.where(items.branch[:, :count] < 0, torch.full_like(merit, -1.0), merit)
    best = merit.argmax(1, keepdim=True)
    return items.with_branch(items.branch.gather(1, best))


def _pressed(state: State, signs: dict[int, Tensor], result: Result) -> Dual:
    """Multipliers raised so that every split weighs about a tenth of the missing margin."""
    missing = PRESSURE * result.margin.amax(1).nan_to_num(0.0).abs()[:, None]
    beta = {}
    for p, b in result.dual.beta.items():
        low, high = state.interval[p]
        beta[p] = torch.maximum(b, missing / (high - low).clamp(min=1e-6)) if p in signs else b
    return Dual(result.dual.alpha, beta)
