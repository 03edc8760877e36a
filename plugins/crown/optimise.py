"""Bounds of a batch of subproblems with optimised slopes (alpha) and split multipliers (beta).

beta-CROWN (Wang et al. 2021): a split z_j >= 0 (sign +1) or z_j <= 0 (sign -1) enters the bound with a multiplier,
min f(x) >= min f(x) - sum_j beta_j sign_j z_j for any beta >= 0. Any alpha in [0, 1] and beta >= 0 is sound, so the
optimiser only decides how good the bound is, never whether it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from verifolio.budget import Budget
from verifolio.plugins.crown.adam import Adam
from verifolio.plugins.crown.program import Program, State

AVERAGE = 0.2  # weight of the newest point in the running average


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
class Result:
    """The best margins found (batch, rows), the last dual, the rows seen at nonlinear nodes and at the input.

    `looseness[i]` (batch, size) says how much the bound owes to the gap of each ReLU's relaxation.
    """

    margin: Tensor
    dual: Dual
    captured: dict[int, Tensor]
    looseness: dict[int, Tensor] = field(default_factory=dict)


class RelaxedPoint:
    """The average point of the relaxed network at which the bounds were attained.

    A bound is attained at some values (z, h) of every neuron's input and output on its relaxation. The derivative
    of the bound with respect to a coefficient on z is z itself, so zero probes read it off the backward pass. The
    running average converges to the solution of the relaxation's linear program (ergodic primal recovery); where
    it has h > relu(z), the relaxation is what the bound suffers from.
    """

    def __init__(self, program: Program, count: int) -> None:
        self.program = program
        self.probes = {
            program.parents[i][0]: self._zeros(count, program.sizes[i]) for i in program.graph.relus
        }
        self.z: dict[int, Tensor] = {}
        self.h: dict[int, Tensor] = {}
        self.rows: dict[int, Tensor] = {}

    def _zeros(self, count: int, size: int) -> Tensor:
        space = self.program.space
        return torch.zeros(count, 1, size, dtype=space.dtype, device=space.device, requires_grad=True)

    @torch.no_grad()
    def add(self, state: State, captured: dict[int, Tensor], lead: Tensor, share: float) -> None:
        """Mix in the point of the last bound; `share` is its weight in the average."""
        place = torch.arange(len(lead), device=lead.device)
        for i in self.program.graph.relus:
            p = self.program.parents[i][0]
            gradient = self.probes[p].grad
            if gradient is None or i not in captured:
                continue
            z = -gradient[:, 0]
            rows = captured[i].expand(len(lead), -1, -1)[place, lead]
            lines = state.lines[i]
            lift = lines.upper_bias if lines.upper_bias is not None else torch.zeros_like(z)
            h = torch.where(rows > 0, lines.lower_slope[0] * z, lines.upper_slope[0] * z + lift)
            for store, value in ((self.z, z), (self.h, h), (self.rows, rows.abs())):
                store[i] = value if i not in store else store[i] + share * (value - store[i])
            self.probes[p].grad = None

    def looseness(self) -> dict[int, Tensor]:
        return {i: self.rows[i] * (self.h[i] - self.z[i].clamp(min=0)).clamp(min=0) for i in self.z}


@dataclass(frozen=True)
class Schedule:
    """Adam's settings; `patience` stops a run in which no subproblem improves."""

    iterations: int = 20
    alpha_rate: float = 0.25
    beta_rate: float = 0.1
    mix_rate: float = 0.1
    decay: float = 0.97


def evaluate(
    program: Program,
    state: State,
    goal: Goal,
    signs: dict[int, Tensor],
    dual: Dual,
    probes: dict[int, Tensor] | None = None,
) -> Result:
    """One backward pass with the given variables; probes are zero rows whose gradients are of interest."""
    if dual.mix is not None:
        goal = goal.mixed(dual.mix, program.space.unit)
    for i in program.nonlinear:
        program.relax(state, i, dual.alpha.get(i))
    extra: dict[int, Tensor] = {
        p: (-(signs[p] * beta.clamp(min=0)))[:, None] for p, beta in dual.beta.items() if p in signs
    }
    for p, probe in (probes or {}).items():
        extra[p] = extra[p] + probe if p in extra else probe
    if extra and goal.rows.shape[1] > 1:
        extra = {p: e.expand(-1, goal.rows.shape[1], -1) for p, e in extra.items()}
    if goal.inputs is not None:
        extra[0] = goal.inputs
    captured: dict[int, Tensor] = {}
    bound = program.lower(state, program.graph.output, goal.rows, extra or None, captured.__setitem__)
    margin = bound - goal.rhs - goal.rhs.abs() * 4 * program.space.unit
    return Result(margin, dual, captured)


def optimise(
    program: Program,
    state: State,
    goal: Goal,
    signs: dict[int, Tensor],
    dual: Dual,
    schedule: Schedule,
    budget: Budget,
) -> Result:
    """Ascend the best row of every subproblem by projected Adam; keeps the best margins seen.

    The dual that is returned is the last one: children start from it.
    """
    alpha = {i: a.clone().requires_grad_() for i, a in dual.alpha.items()}
    beta = {p: b.clone().requires_grad_() for p, b in dual.beta.items() if p in signs}
    mix = None if dual.mix is None else dual.mix.clone().requires_grad_()
    current = Dual(alpha, beta, mix)
    if not (alpha or beta or mix is not None):  # nothing is relaxed: the bound is exact up to rounding
        return evaluate(program, state, goal, signs, Dual())
    adam = Adam(
        (alpha.values(), schedule.alpha_rate),
        (beta.values(), schedule.beta_rate),
        ([] if mix is None else [mix], schedule.mix_rate),
    )
    best: Tensor | None = None
    relaxed = RelaxedPoint(program, goal.rows.shape[0])
    for step in range(schedule.iterations):
        result = evaluate(program, state, goal, signs, current, relaxed.probes)
        margin = result.margin.detach()
        best = margin if best is None else torch.fmax(best, margin)
        lead = result.margin.amax(1)
        if bool((best.amax(1) > 0).all()) or (step > 0 and budget.expired()):
            break
        adam.zero_grad()
        # solved subproblems no longer pull
        (-(lead * (best.amax(1) <= 0)).nan_to_num(0.0).sum()).backward()
        relaxed.add(state, result.captured, margin.nan_to_num(nan=-torch.inf).argmax(1), AVERAGE)
        if step + 1 == schedule.iterations:
            break
        adam.step(schedule.decay**step)
        with torch.no_grad():
            for a in alpha.values():
                a.clamp_(0, 1)
            for b in beta.values():
                b.clamp_(min=0)
            if mix is not None:
                mix.clamp_(min=0).div_(mix.sum(1, keepdim=True).clamp(min=1e-6))
    final = Dual(
        {i: a.detach() for i, a in alpha.items()},
        {p: b.detach() for p, b in beta.items()},
        None if mix is None else mix.detach(),
    )
    kept = {i: rows.detach() for i, rows in result.captured.items()}
    return Result(best if best is not None else result.margin.detach(), final, kept, relaxed.looseness())


def start(program: Program, state: State) -> Dual:
    """The default slopes and no multipliers."""
    alpha: dict[int, Tensor] = {}
    for i in program.nonlinear:
        rule = program.relaxations[i]
        if rule is not None:
            inputs = state.inputs(program, i)
            if bool(rule.loose(*inputs).any()):
                alpha[i] = rule.start(*inputs).detach().clone()
    return Dual(alpha)
