"""Proved bounds of a batch of subproblems with given slopes (alpha), split multipliers (beta) and row weights.

beta-CROWN (Wang et al. 2021): a split z_j >= 0 (sign +1) or z_j <= 0 (sign -1) enters the bound with a multiplier,
min f(x) >= min f(x) - sum_j beta_j sign_j z_j for any beta >= 0. Any alpha in [0, 1] and beta >= 0 is sound, so the
optimiser only decides how good the bound is, never whether it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.adam import Adam
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.run.budget import Budget


@dataclass(frozen=True)
class Goal:
    """Rows over the output (batch, rows, outputs) and over the inputs, and their right-hand sides (batch, rows).

    A subproblem is done when one of its rows exceeds its right-hand side; or when a convex combination of them
    does. `mixable` says that every row is a single output, so that combining them rounds nothing.
    """

    rows: Tensor
    inputs: Tensor | None
    rhs: Tensor
    mixable: bool = False

    def pick(self, index: Tensor) -> Goal:
        inputs = None if self.inputs is None else self.inputs[index]
        return Goal(self.rows[index], inputs, self.rhs[index], self.mixable)

    def mixed(self, weights: Tensor, unit: float) -> Goal:
        """One row per subproblem: the rows combined with non-negative weights (batch, rows)."""
        w = weights.clamp(min=0)
        rhs = (w * self.rhs).sum(1, keepdim=True)
        reserve = 4 * (w.shape[1] + 4) * unit * (w * self.rhs.abs()).sum(1, keepdim=True)
        return Goal((w[:, :, None] * self.rows).sum(1, keepdim=True), None, rhs + reserve)


@dataclass
class Dual:
    """The variables of the bound: lower slopes per nonlinear node, multipliers per split node (batch, size).

    `mix` (batch, rows) are the weights of a conjunction's rows; None treats every row by itself.
    """

    alpha: dict[int, Tensor] = field(default_factory=dict)
    beta: dict[int, Tensor] = field(default_factory=dict)
    mix: Tensor | None = None


@dataclass
class BoundResult:
    """The best margins found (batch, rows), the last dual, the rows seen at nonlinear nodes and at the input."""

    margin: Tensor
    dual: Dual
    captured: dict[int, Tensor]


@dataclass(frozen=True)
class Schedule:
    """Adam's settings."""

    iterations: int = 20  # later steps gain little at the root
    rate: float = 0.25  # a slope crosses [0, 1] in four steps; the rates of ascent.py
    decay: float = 0.97  # half of the rate is left after the twenty


def evaluate(program: Program, state: State, goal: Goal, signs: dict[int, Tensor], dual: Dual) -> BoundResult:
    """One backward pass with the given variables."""
    if dual.mix is not None:
        goal = goal.mixed(dual.mix, program.space.unit)
    for i in program.nonlinear:
        program.relax(state, i, dual.alpha.get(i))
    extra = {p: (-(signs[p] * beta.clamp(min=0)))[:, None] for p, beta in dual.beta.items() if p in signs}
    if extra and goal.rows.shape[1] > 1:
        extra = {p: e.expand(-1, goal.rows.shape[1], -1) for p, e in extra.items()}
    if goal.inputs is not None:
        extra[0] = goal.inputs
    captured: dict[int, Tensor] = {}
    bound = program.lower(state, program.graph.output, goal.rows, extra or None, captured.__setitem__)
    margin = bound - goal.rhs - goal.rhs.abs() * 4 * program.space.unit
    return BoundResult(margin, dual, captured)


def optimise(program: Program, state: State, goal: Goal, schedule: Schedule, budget: Budget) -> BoundResult:
    """Raise the best row of every goal by its slopes, with projected Adam; keeps the best margins seen."""
    count = len(goal.rhs)  # every goal has its own slopes
    alpha = {i: a.expand(count, -1).clone().requires_grad_() for i, a in start(program, state).items()}
    adam = Adam((alpha.values(), schedule.rate))
    best: Tensor | None = None
    for step in range(schedule.iterations):
        with torch.enable_grad():
            result = evaluate(program, state, goal, {}, Dual(alpha))
            # solved goals no longer pull
            lead = result.margin.amax(1)
            pull = (lead * (lead.detach() <= 0)).nan_to_num(0.0).sum()
        margin = result.margin.detach()
        best = margin if best is None else torch.fmax(best, margin)
        if bool((best.amax(1) > 0).all()) or (step > 0 and budget.expired()) or not pull.requires_grad:
            break
        adam.step(torch.autograd.grad(pull, list(alpha.values()), allow_unused=True), schedule.decay**step)
        with torch.no_grad():
            for a in alpha.values():
                a.clamp_(0, 1)
    kept = {i: rows.detach() for i, rows in result.captured.items()}
    return BoundResult(result.margin.detach() if best is None else best, Dual(), kept)


def start(program: Program, state: State) -> dict[int, Tensor]:
    """The default slopes of the nodes that leave a gap."""
    alpha: dict[int, Tensor] = {}
    for i in program.nonlinear:
        rule = program.relaxations[i]
        if rule is not None:
            inputs = state.inputs(program, i)
            if bool(rule.loose(*inputs).any()):
                alpha[i] = rule.start(*inputs).detach().clone()
    return alpha
