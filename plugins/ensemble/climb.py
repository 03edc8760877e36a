"""Climbing in boxes on the least of several margins: linearise, make the best move, shorten it where it fails.

Signs of gradients lead to a corner of the box for one network; two are mostly fooled together somewhere on an edge
between corners, which the linear game finds: a mover against weights of the networks.

Shapes: points (T, n), margins (T, k), slopes (T, k, n) for the k networks that every task wants.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

ROUNDS = 16  # of the linear game
REACH = 0.6  # of the half width of the box, for the first move
SHORT = 1e-3  # of it: not worth a step
Linear = Callable[[Tensor], tuple[Tensor, Tensor]]  # margins and slopes at points


def climb(linear: Linear, x: Tensor, lower: Tensor, upper: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The best points seen and their least margins; every step starts from the best one."""
    half = (upper - lower).amax(1) / 2
    reach = REACH * half
    margins, slopes = linear(x)
    reached = margins.amin(1)
    for _ in range(steps):
        if bool(((reached >= 0) | (reach < SHORT * half)).all()):
            break
        room = reach[:, None]
        move = best_move(margins, slopes, (lower - x).clamp(min=-room), (upper - x).clamp(max=room))
        there = torch.minimum(torch.maximum(x + move, lower), upper)
        new_margins, new_slopes = linear(there)
        value = new_margins.amin(1)
        better = value > reached
        reach = torch.where(better, reach, reach / 2)
        reached = torch.where(better, value, reached)
        x = torch.where(better[:, None], there, x)
        margins = torch.where(better[:, None], new_margins, margins)
        slopes = torch.where(better[:, None, None], new_slopes, slopes)
    return x, reached


def best_move(margins: Tensor, slopes: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Nearly the move d in a box that makes the least of margins + slopes d largest.

    Weights of the networks are learnt against the best answer to each of them (multiplicative weights); the
    average answer, later ones counting more, is nearly optimal.
    """
    weight = torch.full_like(margins, 1 / margins.shape[1])
    total, moves = torch.zeros_like(margins), torch.zeros_like(lower)
    best, kept = margins.new_full((len(margins),), -math.inf), moves
    for k in range(1, ROUNDS + 1):
        slope = torch.einsum("tk,tkn->tn", weight, slopes)
        answer = torch.where(slope > 0, upper, lower)
        value = margins + torch.einsum("tkn,tn->tk", slopes, answer)
        total, moves = total + k * value, moves + k * answer
        counted = k * (k + 1) / 2
        least = (total / counted).amin(1)
        kept = torch.where((least > best)[:, None], moves / counted, kept)
        best = torch.maximum(best, least)
        if margins.shape[1] == 1:
            break
        spread = (value.amax(1) - value.amin(1)).clamp(min=1e-9)[:, None]
        weight = torch.softmax(weight.clamp(min=1e-9).log() - value / spread / math.sqrt(k), 1)
    return kept
