"""Projected Adam on the variables of many subproblems of a condensed graph: slopes, multipliers, row weights.

beta-CROWN (Wang et al. 2021) with its gradient in closed form. Only the best variables seen are of use to the
caller, who proves the bound they give.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.adam import Adam
from verifolio.plugins.crown.condensed import Condensed
from verifolio.run.budget import Budget

ALPHA_RATE, BETA_RATE, MIX_RATE = 0.25, 0.1, 0.1
DECAY = 0.97
AVERAGE = 0.2  # weight of the newest point in the running average
FEWER = 0.75  # go on with the open subproblems alone when they are this part of those at work


@dataclass(frozen=True)
class Variables:
    """Slopes and multipliers (count, kept), and the weights of each subproblem's rows (count, rows)."""

    alpha: Tensor
    beta: Tensor
    mix: Tensor

    def pick(self, index: Tensor | slice) -> Variables:
        return Variables(self.alpha[index], self.beta[index], self.mix[index])

    def to(self, dtype: torch.dtype, largest: float = torch.inf) -> Variables:
        return Variables(self.alpha.to(dtype), self.beta.clamp(max=largest).to(dtype), self.mix.to(dtype))


@dataclass(frozen=True)
class Ascended:
    """The best variables, the margins they seem to give (count,), and how loose each neuron was (count, kept)."""

    best: Variables
    margin: Tensor
    looseness: Tensor

    def pick(self, index: Tensor) -> Ascended:
        return Ascended(self.best.pick(index), self.margin[index], self.looseness[index])


@torch.no_grad()
def ascend(
    net: Condensed, phase: Tensor, rows: Tensor, first: Variables, iterations: int, aim: float, budget: Budget
) -> Ascended:
    """Raise the bound of every subproblem; those that pass `aim` are done.

    `rows` (count, rows) are the numbers of the goal's rows that a subproblem combines. Looseness: a bound is
    attained at some point (z, h) of the relaxed network, and the running average of these points converges to the
    solution of the relaxation's linear program (ergodic primal recovery); where it has h > relu(z), the
    relaxation is what the bound suffers from.
    """
    count, width = len(phase), net.feed.shape[0] - net.kept
    best = Variables(first.alpha.clone(), first.beta.clone(), first.mix.clone())
    top = torch.full((count,), -torch.inf, dtype=net.bias.dtype, device=phase.device)
    looseness = torch.zeros_like(best.alpha)
    lane = torch.arange(count, device=phase.device)
    lanes = net.lanes(phase)
    start = Variables(first.alpha.clone(), first.beta.clone(), first.mix.clone())
    adam = Adam(([start.alpha], ALPHA_RATE), ([start.beta], BETA_RATE), ([start.mix], MIX_RATE))
    average: list[Tensor] = []
    for step in range(iterations):
        alpha, beta, mix = adam.parameters
        goal = mix.new_zeros(len(lane), width).scatter_add_(1, rows, mix)
        passed = net.back(lanes, alpha, beta, goal)
        better = (passed.bound > top[lane]).nonzero()[:, 0]
        at = lane[better]
        top[at], best.alpha[at], best.beta[at], best.mix[at] = (
            t[better] for t in (passed.bound, alpha, beta, mix)
        )
        left = (top[lane] <= aim).nonzero()[:, 0]
        if not len(left) or (step and budget.expired()):
            break
        z, h = net.ahead(lanes, passed)
        inner = z[:, : net.kept]
        seen = [inner, h, passed.rows.abs()]
        average = [a.lerp_(s, AVERAGE) for a, s in zip(average, seen, strict=True)] if average else seen
        if step + 1 < iterations:
            slopes = torch.where((passed.rows > 0) & (lanes.phase == 0), passed.rows * inner, 0.0)
            adam.step([slopes, -lanes.phase * inner, z[:, net.kept :].gather(1, rows)], DECAY**step)
            project(*adam.parameters)
        if len(left) < FEWER * len(lane):
            lane, rows, lanes = lane[left], rows[left], lanes.pick(left)
            average = [a[left] for a in average]
            adam.pick(left)
    if average:
        z, h, size = average
        looseness[lane] = size * (h - z.clamp(min=0)).clamp(min=0)
    return Ascended(best, top, looseness)


def project(alpha: Tensor, beta: Tensor, mix: Tensor) -> None:
    """Back into the sets on which the bound holds: [0, 1], the non-negative, weights that add up to one."""
    alpha.clamp_(0, 1)
    beta.clamp_(min=0)
    mix.clamp_(min=0).div_(mix.sum(1, keepdim=True).clamp(min=1e-6))
