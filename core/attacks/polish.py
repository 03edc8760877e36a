"""Sequential linear programming: the last step towards several rows at once, where descents zigzag."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from verifolio.attacks.descend import gradient, outputs
from verifolio.attacks.targets import Targets

Array = NDArray[np.float64]
STEPS = 12  # linear programs per point; eleven failures in a row bring the trust region to its smallest
SMALLEST = 1e-7  # trust region, in parts of the box's width


def polish(module: nn.Module, target: Targets, x: Tensor) -> tuple[Tensor, float]:
    """A point (n) with a smaller worst row than x, and that row's value; one float64 target, no ball.

    Each step minimises the worst row of the linearised network in a trust region, which is exact while no
    ReLU changes its phase; the region doubles after a success and shrinks after a failure.
    """
    trust = 0.25
    values, jacobian = _linearise(module, target, x)
    for _ in range(STEPS):
        move = _best_move(target, x, values, jacobian, trust)
        if move is None or trust < SMALLEST:
            break
        trial = torch.minimum(torch.maximum(x + move, target.lower[0]), target.upper[0])
        new_values, new_jacobian = _linearise(module, target, trial)
        if new_values.max() < values.max():
            x, values, jacobian, trust = trial, new_values, new_jacobian, min(1.0, 2 * trust)
        else:
            trust /= 4
    return x, float(values.max())


def _linearise(module: nn.Module, target: Targets, x: Tensor) -> tuple[Array, Array]:
    """Row values (R) and their derivatives (R, n) at x."""
    rows = target.rhs.shape[1]
    copies = x.detach().expand(1, rows, -1).clone().requires_grad_(True)
    values = target.values(copies, outputs(module, copies))[0]
    jacobian = gradient(values.diagonal().sum(), copies)
    return values[0].detach().cpu().numpy(), jacobian[0].cpu().numpy()


def _best_move(target: Targets, x: Tensor, values: Array, jacobian: Array, trust: float) -> Tensor | None:
    """The move d that minimises max(values + jacobian d) within the box and the trust region."""
    from scipy.optimize import linprog  # slow to import, rarely needed

    binding = values > -1e6  # rows that only fill up the batch
    width = target.width[0]
    low = torch.maximum(target.lower[0] - x, -trust * width).cpu().numpy()
    high = torch.minimum(target.upper[0] - x, trust * width).cpu().numpy()
    free = np.flatnonzero(high > low)
    if len(free) == 0 or not binding.any():
        return None
    matrix = np.hstack([jacobian[binding][:, free], -np.ones((int(binding.sum()), 1))])
    cost = np.zeros(len(free) + 1)
    cost[-1] = 1.0
    bounds = [*zip(low[free], high[free], strict=True), (None, None)]
    solved = linprog(cost, A_ub=matrix, b_ub=-values[binding], bounds=bounds, method="highs")
    if solved.x is None:
        return None
    move = np.zeros(len(x))
    move[free] = solved.x[:-1]
    return torch.from_numpy(move).to(x)
