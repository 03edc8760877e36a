"""Projected Adam on the variables of many subproblems of a condensed graph: slopes, multipliers, row weights.

beta-CROWN (Wang et al. 2021) with its gradient in closed form. Only the best variables seen are of use to the
caller, who proves the bound they give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.adam import Adam
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.run.budget import Budget

# A subproblem gets a dozen steps, in which a slope must be able to cross [0, 1] and settle: hence the rate of 0.25.
# Multipliers and weights have no such scale. Choices, not tuned one by one; any values give sound bounds.
ALPHA_RATE, BETA_RATE, MIX_RATE, SLOPES_RATE = 0.25, 0.1, 0.1, 0.1
DECAY = 0.97  # of the rates per step: 0.7 of them after a dozen steps, a quarter after the root's fifty
AVERAGE = 0.2  # weight of the newest point in the running average: five steps count, half of a subproblem's
# go on with the open subproblems alone when they are this part of those at work: more would copy too often; a choice
FEWER = 0.75


@dataclass(frozen=True)
class Variables:
    """Slopes and multipliers (count, kept), and the weights of each subproblem's rows (count, rows).

    `slopes` (count, below, inputs): of the upper lines, where they have one per input (`Envelope`).
    """

    alpha: Tensor
    beta: Tensor
    mix: Tensor
    slopes: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """In the order of the fields."""
        return [t for t in (self.alpha, self.beta, self.mix, self.slopes) if t is not None]

    def copy(self) -> Variables:
        return Variables(*(t.clone() for t in self.tensors()))

    def pick(self, index: Tensor | slice) -> Variables:
        return Variables(*(t[index] for t in self.tensors()))

    def to(self, dtype: torch.dtype, largest: float = torch.inf) -> Variables:
        return Variables(*(t.clamp(max=largest).to(dtype) for t in self.tensors()))

    @classmethod
    def join(cls, parts: Sequence[Variables]) -> Variables:
        """Of several sets of subproblems, one after the other."""
        every = zip(*(p.tensors() for p in parts), strict=True)
        return cls(*(torch.cat(tensors) for tensors in every))


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
    net: Condensed,
    phase: Tensor,
    rows: Tensor,
    first: Variables,
    iterations: int,
    target: float,
    budget: Budget,
) -> Ascended:
    """Raise the bound of every subproblem; those that pass `target` are done.

    `rows` (count, rows) are the numbers of the goal's rows that a subproblem combines. Looseness: a bound is
    attained at some point (z, h) of the relaxed network, and the running average of these points converges to the
    solution of the relaxation's linear program (Gustavsson, Patriksson and Strömberg 2015); where it has
    h > relu(z), the relaxation is what the bound suffers from.
    """
    count, width = len(phase), net.feed.shape[0] - net.kept
    best = first.copy()
    top = torch.full((count,), -torch.inf, dtype=net.bias.dtype, device=phase.device)
    looseness = torch.zeros_like(best.alpha)
    active = torch.arange(count, device=phase.device)
    lines = net.lines(phase)
    rates = (ALPHA_RATE, BETA_RATE, MIX_RATE, SLOPES_RATE)
    adam = Adam(*(([t], rate) for t, rate in zip(first.copy().tensors(), rates, strict=False)))
    average: list[Tensor] = []
    for step in range(iterations):
        alpha, beta, mix, *slopes = adam.parameters
        goal = mix.new_zeros(len(active), width).scatter_add_(1, rows, mix)
        passed = net.backward(lines, alpha, beta, goal, *slopes)
        better = (passed.bound > top[active]).nonzero()[:, 0]
        for held, new in zip([top, *best.tensors()], [passed.bound, *adam.parameters], strict=True):
            held[active[better]] = new[better]
        left = (top[active] <= target).nonzero()[:, 0]
        if not len(left) or (step and budget.expired()):
            break
        z, h = net.forward(lines, passed)
        inner = z[:, : net.kept]
        seen = [inner, h, passed.rows.abs()]
        average = [a.lerp_(s, AVERAGE) for a, s in zip(average, seen, strict=True)] if average else seen
        if step + 1 < iterations:
            pull = torch.where((passed.rows > 0) & (lines.phase == 0), passed.rows * inner, 0.0)
            gradients = [pull, -lines.phase * inner, z[:, net.kept :].gather(1, rows), *passed.pull]
            adam.step(gradients, DECAY**step)
            project(*adam.parameters)
        if len(left) < FEWER * len(active):
            active, rows, lines = active[left], rows[left], lines.pick(left)
            average = [a[left] for a in average]
            adam.pick(left)
    if average:
        z, h, size = average
        looseness[active] = size * (h - z.clamp(min=0)).clamp(min=0)
    return Ascended(best, top, looseness)


def project(alpha: Tensor, beta: Tensor, mix: Tensor, slopes: Tensor | None = None) -> None:
    """Back into the sets on which the bound holds: [0, 1], the non-negative, weights that add up to one."""
    alpha.clamp_(0, 1)
    beta.clamp_(min=0)
    mix.clamp_(min=0).div_(mix.sum(1, keepdim=True).clamp(min=1e-6))
    if slopes is not None:
        slopes.clamp_(0, 1)
