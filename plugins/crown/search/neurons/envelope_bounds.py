"""Bounds of subproblems of a network with one hidden layer: its upper lines have a slope per input."""

from __future__ import annotations

from dataclasses import replace

import torch

from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.optimise.dual import BoundResult, Dual
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.reduce.envelope import Envelope, ExactEnvelope, has_one_layer
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.neurons.subproblems import HALF, Subproblems
from verifolio.plugins.crown.search.root import Root
from verifolio.run.budget import Budget


class EnvelopeBounds(SubproblemBounds):
    """As others, with slopes per input among the variables."""

    def __init__(self, root: Root, net: Envelope, exact: ExactEnvelope, budget: Budget) -> None:
        super().__init__(root, net, budget)
        self.envelope, self.exact_envelope = net, exact
        # a line costs as much as its inputs; a quarter, because no other matrix is as large
        self.width = max(self.width, net.weight.numel() // 4)

    def first(self) -> Subproblems:
        plain = super().first()
        slopes = self.envelope.first_slopes(len(plain)).to(HALF)
        return replace(plain, variables=replace(plain.variables, slopes=slopes))

    def prove(self, items: Subproblems, variables: Variables) -> BoundResult:
        rows, mix = self.rows(items), variables.mix
        goal = mix.new_zeros(len(items), self.root.goal.rhs.numel()).scatter_add_(1, rows, mix.clamp(min=0))
        slopes = variables.slopes
        if slopes is None:
            slopes = self.envelope.first_slopes(len(items)).double()
        phase = items.phase.to(mix.dtype)
        margin, met = self.exact_envelope.prove(phase, goal, variables.alpha, variables.beta, slopes)
        return BoundResult(margin[:, None], Dual(), {0: met[:, None]})


def make_bounds(root: Root, net: Condensed, budget: Budget, plain: bool) -> SubproblemBounds:
    """By envelopes where the network has one hidden layer; `plain` ones are what certificates can state."""
    stacked, region = root.stacked, root.state.region
    if plain or stacked is None or not has_one_layer(stacked, region):
        return SubproblemBounds(root, net, budget)
    envelope = Envelope(stacked, net.low, net.high, region)
    with torch.no_grad():
        return EnvelopeBounds(root, envelope, ExactEnvelope(stacked, region, envelope.below), budget)
