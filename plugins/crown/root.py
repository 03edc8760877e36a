"""The root of a neuron search: bounds of the whole domain, then the smaller graph on which the search runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from verifolio.budget import Budget
from verifolio.evidence import Bounds
from verifolio.plugins.crown.ascent import Variables
from verifolio.plugins.crown.compress import Compressed, compress
from verifolio.plugins.crown.condensed import Condensed
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.opposites import Halved, halve
from verifolio.plugins.crown.optimise import Dual, Goal, Result, evaluate
from verifolio.plugins.crown.program import Program, State
from verifolio.plugins.crown.region import Balls, Region, shrunk_box
from verifolio.plugins.crown.relax.base import Interval
from verifolio.plugins.crown.sweep import Effort, sweep
from verifolio.problem import Problem, dense_rows


@dataclass(frozen=True)
class Root:
    """The program and state the search works on, one goal per open disjunct, and which disjuncts those are.

    `condensed` is the same network as matrices, where it is piecewise linear.
    """

    program: Program
    state: State
    goal: Goal
    disjuncts: Tensor
    bounds: Bounds
    condensed: Condensed | None = None

    def signs(self, phase: Tensor) -> dict[int, Tensor]:
        """Phases of the kept neurons (count, kept) by the node that holds their inputs, where any is fixed."""
        nodes = [self.program.parents[i][0] for i in self.program.graph.relus]
        parts = phase.split([self.program.sizes[p] for p in nodes], 1)
        return {p: part for p, part in zip(nodes, parts, strict=True) if bool(part.any())}

    def cut(self, count: int, signs: dict[int, Tensor]) -> State:
        """The state repeated, with the fixed neurons' intervals cut at zero."""
        interval = dict(self.state.interval)
        for p in self.program.before:
            low, high = (t.expand(count, -1) for t in self.state.interval[p])
            if p in signs:
                low = torch.where(signs[p] > 0, low.clamp(min=0), low)
                high = torch.where(signs[p] < 0, high.clamp(max=0), high)
            interval[p] = (low, high)
        return State(self.state.region, interval, self.state.noise)

    @torch.no_grad()
    def double(self) -> Root:
        """The same root in float64, on the same graph with the same intervals."""
        program = Program(self.program.graph, Space(torch.float64, str(self.program.space.device)))
        region, balls = self.state.region, self.state.region.balls
        if balls is not None:
            balls = Balls(balls.centre.double(), balls.radius.double(), balls.norm)
        region = Region(region.lower.double(), region.upper.double(), balls)
        known = {p: (low.double(), high.double()) for p, (low, high) in self.state.interval.items()}
        state = sweep(program, region, Effort(tighten=False), known=known)
        goal = Goal(self.goal.rows.double(), None, self.goal.rhs.double(), self.goal.mixable)
        return Root(program, state, goal, self.disjuncts, self.bounds)

    @torch.no_grad()
    def prove(self, disjunct: Tensor, phase: Tensor, variables: Variables) -> Result:
        """The bounds of subproblems that their variables give, all rounding included."""
        signs = {p: s.to(self.program.space.dtype) for p, s in self.signs(phase).items()}
        nodes = {i: self.program.parents[i][0] for i in self.program.graph.relus}
        sizes = [self.program.sizes[p] for p in nodes.values()]
        # slopes outside [0, 1] are no lines below a ReLU, wherever they come from
        alpha = dict(zip(nodes, variables.alpha.clamp(0, 1).split(sizes, 1), strict=True))
        beta = dict(zip(nodes.values(), variables.beta.split(sizes, 1), strict=True))
        dual = Dual(alpha, {p: b for p, b in beta.items() if p in signs}, variables.mix)
        return evaluate(self.program, self.cut(len(phase), signs), self.goal.pick(disjunct), signs, dual)


def make_goal(space: Space, problem: Problem) -> Goal:
    """Every disjunct as one goal, its rows padded to a common number by repeating the first."""
    n, m = problem.graph.input_size, problem.graph.output_size
    height = max(r.count for r in problem.disjuncts)
    parts = []
    for rows in problem.disjuncts:
        fill = np.r_[np.arange(rows.count), np.zeros(height - rows.count, int)]
        parts.append([part[fill] for part in dense_rows(rows, n, m)])
    on_inputs, on_outputs, rhs = (np.stack([p[i] for p in parts]) for i in range(3))
    inputs = space.tensor(on_inputs)
    # rows over the inputs may cancel against what the network does; then nothing else charges their rounding
    low, high = shrunk_box(problem.domain)
    lost = np.abs(on_inputs - inputs.double().cpu().numpy()) @ np.maximum(np.abs(low), np.abs(high))
    return Goal(space.tensor(on_outputs), inputs if on_inputs.any() else None, space.up(rhs + 1.01 * lost))


@torch.no_grad()
def bound_root(problem: Problem, space: Space, steps: int, elements: int, budget: Budget) -> Root:
    """Ever dearer bounds while a disjunct is open: intervals, backward bounds, optimised slopes per neuron."""
    halved = halve(problem.graph)
    program = Program(halved.graph, space)
    region = Region.of([problem.domain], space)
    goal = make_goal(space, problem)
    live = torch.arange(len(goal.rhs), device=space.device)
    efforts = [Effort(tighten=False), Effort(elements=elements)]
    efforts += [Effort(steps=steps, elements=elements)] if steps else []
    known: dict[int, Interval] = {}
    for effort in efforts:
        state = sweep(program, region, effort, known=known, budget=budget)
        known = {p: state.interval[p] for p in program.before}
        live = live[open_goals(evaluate(program, state, goal.pick(live), {}, Dual()).margin)]
        if not len(live) or budget.expired():
            break
    bounds = as_bounds(problem, known, halved)
    root = Root(program, state, goal.pick(live), live, bounds)
    return root if not len(live) or not problem.graph.piecewise_linear else shrink(problem, root)


def shrink(problem: Problem, root: Root) -> Root:
    """The same root on the graph without its stable neurons, whose outputs are the goal's rows minus `rhs`."""
    space = root.program.space
    # in float64: the small graph is as exact as its rows are
    goal = make_goal(Space(torch.float64, str(space.device)), problem).pick(root.disjuncts)
    count, height, outputs = goal.rows.shape
    inputs = goal.inputs
    direct = goal.rows.new_zeros(count * height, problem.graph.input_size)
    if inputs is not None:
        direct = inputs.reshape(count * height, -1)
    known = {p: root.state.interval[p] for p in root.program.before}
    wanted, rhs = goal.rows.reshape(-1, outputs), goal.rhs.reshape(-1)
    small = compress(root.program.graph, root.state.region, known, wanted, direct, rhs)
    program = Program(small.graph, space)
    state = sweep(program, root.state.region, Effort(tighten=False), known=small.known)
    rows = torch.eye(count * height, dtype=space.dtype, device=space.device).reshape(count, height, -1)
    zero = rows.new_zeros(count, height)
    goals = Goal(rows, None, zero, mixable=True)
    return Root(program, state, goals, root.disjuncts, root.bounds, condense(small, state, space))


def condense(small: Compressed, state: State, space: Space) -> Condensed:
    """The small graph as matrices."""
    m = small.stacked
    low, high = (
        torch.cat([space.tensor([]), *(ends[k][0] for ends in small.known.values())]) for k in (0, 1)
    )
    direct, feed, bias = (space.tensor(part) for part in (m.direct, m.feed, m.bias))
    return Condensed(direct, feed, bias, m.sizes, low, high, state.region)


def as_bounds(problem: Problem, known: dict[int, Interval], halved: Halved) -> Bounds:
    """Intervals of the whole domain as evidence for others, who know nothing of the rewritten graph."""
    ends = {p: (_numbers(low, -np.inf), _numbers(high, np.inf)) for p, (low, high) in known.items()}
    ends = halved.restore(ends)
    lower, upper = ({p: pair[k] for p, pair in ends.items()} for k in (0, 1))
    return Bounds(problem.graph.sha256, problem.domain, lower, upper, source="crown")


def _numbers(value: Tensor, unknown: float) -> np.ndarray:
    array = value[0].double().cpu().numpy()
    return np.where(np.isnan(array), unknown, array)


def open_goals(margin: Tensor) -> Tensor:
    """Which goals have no row that is proved positive (NaN proves nothing)."""
    return (~(margin.amax(1) > 0)).nonzero()[:, 0]
