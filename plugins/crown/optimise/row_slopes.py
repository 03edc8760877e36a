"""Bounds of rows over one node while every row improves its own slopes (alpha-CROWN; Xu et al. 2021)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.adam import Adam
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.run.budget import Budget

RATE = 0.3  # of the slopes: ten steps must be able to cross [0, 1] and settle


def unit_rows(program: Program, node: int, neurons: Tensor) -> Tensor:
    """Rows (1, 2 count, size) over a node: its neurons of these numbers, then their opposites."""
    count, device = len(neurons), neurons.device
    rows = torch.zeros(1, 2 * count, program.sizes[node], dtype=program.space.dtype, device=device)
    place = torch.arange(count, device=device)
    rows[0, place, neurons] = 1
    rows[0, place + count, neurons] = -1
    return rows


def ascend_rows(
    program: Program,
    state: State,
    node: int,
    rows: Tensor,
    steps: int,
    budget: Budget | None,
    kept: dict[int, Tensor] | None = None,
    levels: int = 0,
) -> Tensor:
    """The best bounds (batch, rows) on the way of a gradient ascent; `kept` gets the slopes behind them.

    `levels`: slopes count as multiples of its inverse, as a certificate writes them. Near a kink of the bound,
    rounding them afterwards costs a percent.
    """
    state = replace(state, lines=dict(state.lines), noise=dict(state.noise))  # its lines are nobody else's
    alpha: dict[int, Tensor] = {}
    for i in program.nonlinear:
        rule = program.relaxations[i]
        if i < node and rule is not None and bool(rule.loose(*state.inputs(program, i)).any()):
            first = rule.start(*state.inputs(program, i))
            alpha[i] = first[:, None].repeat(1, rows.shape[1], 1).requires_grad_()
    if not alpha or not steps:
        return program.lower(state, node, rows)
    adam = Adam((alpha.values(), RATE))
    best: Tensor | None = None
    for step in range(steps + 1):
        with torch.enable_grad():
            taken = (
                {i: a + ((a * levels).round() / levels - a).detach() for i, a in alpha.items()}
                if levels
                else alpha
            )
            for i, a in taken.items():
                program.relax(state, i, a)
            bound = program.lower(state, node, rows)
            total = bound.nan_to_num(0.0).sum()
        if kept is not None:
            _keep(kept, taken, None if best is None else best.isnan() | (bound.detach() > best))
        best = bound.detach() if best is None else torch.fmax(best, bound.detach())
        late = budget is not None and budget.expired()
        if step == steps or late or not total.requires_grad:  # the rows may not feel any relaxed neuron
            break
        adam.step(torch.autograd.grad(total, list(alpha.values()), allow_unused=True))
        with torch.no_grad():
            for a in alpha.values():
                a.clamp_(0, 1)
    return best if best is not None else bound


def _rounded(alpha: Tensor, levels: int) -> Tensor:
    """The nearest multiples of 1 / levels, with the gradient of the slopes themselves; 0 levels: as they are."""
    return alpha + ((alpha * levels).round() / levels - alpha).detach() if levels else alpha


def _keep(kept: dict[int, Tensor], alpha: dict[int, Tensor], better: Tensor | None) -> None:
    """Remember the slopes of the rows that are better now; None: of all."""
    for i, a in alpha.items():
        now = a.detach()
        kept[i] = now.clone() if better is None else torch.where(better[..., None], now, kept[i])
