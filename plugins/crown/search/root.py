"""The root of a search: bounds of the whole domain, evidence included, then the smaller graph that is searched."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from verifolio.graph import Graph
from verifolio.model.problem import Problem, dense_rows
from verifolio.plugin.evidence import Assumptions, Bounds
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.optimise.dual import BoundResult, Dual, Goal, evaluate
from verifolio.plugins.crown.optimise.intermediate import Effort, Refiner, intermediate_bounds
from verifolio.plugins.crown.propagate.arrays import as_numbers, shrunk_box
from verifolio.plugins.crown.propagate.cone import cone
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Balls, Region
from verifolio.plugins.crown.propagate.relax.base import Interval
from verifolio.plugins.crown.reduce.compress import Compressed, Stacked, compress
from verifolio.plugins.crown.reduce.condensed import Condensed
from verifolio.plugins.crown.reduce.opposites import MergedOpposites, merge_opposites
from verifolio.run.budget import Budget

# of the network as matrices: 1 GB in float64, some copies of which are made
MOST_NUMBERS = 1 << 27


@dataclass(frozen=True)
class Root:
    """The program and state the search works on, one goal per open disjunct, and which disjuncts those are.

    `bounds`: of the whole graph's neurons, as evidence. `condensed`, `stacked`: the network as matrices, where it
    is piecewise linear. `origin`: where its neurons come from, see `Compressed`. `slopes`: of the kept neurons' lower
    lines (kept,), where a search starts from, if somebody has sought them.

    `violated`: the intervals hold at points that violate the goal, and perhaps nowhere else. What follows from them
    is true of this goal alone: such a root has one goal, and no bounds for others.
    """

    program: Program
    state: State
    goal: Goal
    disjuncts: Tensor
    bounds: Bounds | None = None
    condensed: Condensed | None = None
    stacked: Stacked | None = None
    origin: np.ndarray | None = None
    slopes: Tensor | None = None
    violated: bool = False

    def __post_init__(self) -> None:
        if self.violated and (self.bounds is not None or len(self.disjuncts) != 1):
            raise ValueError(
                "bounds under the assumption of a violation belong to one goal and are not evidence"
            )

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
        state = intermediate_bounds(program, region, Effort(tighten=False), known=known)
        goal = Goal(self.goal.rows.double(), None, self.goal.rhs.double(), self.goal.mixable)
        return Root(program, state, goal, self.disjuncts, self.bounds, violated=self.violated)

    @torch.no_grad()
    def prove(self, disjunct: Tensor, phase: Tensor, variables: Variables) -> BoundResult:
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
        dense = dense_rows(rows, n, m)
        parts.append(
            [dense[0][fill] if problem.mixes_inputs else dense[0][:0], *(d[fill] for d in dense[1:])]
        )
    on_outputs, rhs = (np.stack([p[i] for p in parts]) for i in (1, 2))
    if not problem.mixes_inputs:  # rows over the inputs are long where there are many
        return Goal(space.tensor(on_outputs), None, space.up(rhs))
    on_inputs = np.stack([p[0] for p in parts])
    inputs = space.tensor(on_inputs)
    # rows over the inputs may cancel against what the network does; then nothing else charges their rounding
    low, high = shrunk_box(problem.domain)
    lost = np.abs(on_inputs - inputs.double().cpu().numpy()) @ np.maximum(np.abs(low), np.abs(high))
    return Goal(space.tensor(on_outputs), inputs, space.up(rhs + 1.01 * lost))


class RootBounds:
    """Bounds of a problem's whole domain, dearer step by step; `root` is where a search starts from them.

    `evidence`: bounds that hold on this domain already, wherever they come from. What they assume is assumed by all
    bounds that are computed from them. `merge`: whether pairs of opposite neurons become one.
    """

    def __init__(
        self,
        problem: Problem,
        space: Space,
        budget: Budget,
        evidence: Bounds | None = None,
        merge: bool = True,
    ) -> None:
        self.problem, self.space, self.budget = problem, space, budget
        self.merged = merge_opposites(problem.graph) if merge else MergedOpposites(problem.graph)
        self.program = Program(self.merged.graph, space)
        self.region = Region.of([problem.domain], space)
        self.goal = make_goal(space, problem)
        self.known = {} if evidence is None else as_intervals(evidence, self.merged, self.program)
        self.assumptions = Assumptions() if evidence is None else evidence.assumptions
        self.live = torch.arange(len(self.goal.rhs), device=space.device)
        self.needed = cone(self.program, self.goal.rows)
        self.state = State(self.region)

    @torch.no_grad()
    def tighten(self, effort: Effort, refiner: Refiner | None = None, budget: Budget | None = None) -> None:
        """Tighten the bounds of every neuron; see which disjuncts they leave open."""
        budget = self.budget if budget is None else budget
        self.state = intermediate_bounds(
            self.program, self.region, effort, self.known, budget, refiner, self.needed
        )
        self.known = {p: self.state.interval[p] for p in self.program.before}
        goal = self.goal.pick(self.live)
        self.live = self.live[open_goals(evaluate(self.program, self.state, goal, {}, Dual()).margin)]

    def _too_large(self) -> bool:
        """Whether the network without its stable neurons, as matrices, would take too much memory."""
        kept = 0
        for i in self.program.graph.relus:
            (p,) = self.program.parents[i]
            if p in self.needed:
                low, high = self.known[p]
                kept += int(((low < 0) & (high > 0) & self.needed[p]).sum())
        return kept * (self.program.sizes[0] + kept) > MOST_NUMBERS

    def done(self) -> bool:
        return not len(self.live) or self.budget.expired()

    @torch.no_grad()
    def root(self) -> Root:
        """The open disjuncts on the graph as it is; without its stable neurons if it is piecewise linear."""
        bounds = as_bounds(self.problem, self.known, self.merged, self.assumptions)
        if not len(self.live) or not self.problem.graph.piecewise_linear or self._too_large():
            return Root(self.program, self.state, self.goal.pick(self.live), self.live, bounds)
        # in float64: the small graph is as exact as its rows are
        goal = make_goal(Space(torch.float64, str(self.space.device)), self.problem).pick(self.live)
        root = shrink(self.program.graph, self.state.region, self.known, goal.rows, goal.inputs, goal.rhs)
        return replace(root, disjuncts=self.live, bounds=bounds)


def bound_root(
    problem: Problem,
    space: Space,
    effort: Effort,
    budget: Budget,
    evidence: Bounds | None = None,
    merge: bool = True,
) -> RootBounds:
    """Ever dearer bounds while a disjunct is open: intervals, backward bounds, optimised slopes per neuron."""
    root_bounds = RootBounds(problem, space, budget, evidence, merge)
    efforts = [Effort(tighten=False), replace(effort, steps=0)]
    efforts += [effort] if effort.steps else []
    for step in efforts:
        root_bounds.tighten(step)
        if root_bounds.done():
            break
    return root_bounds


def shrink(
    graph: Graph,
    region: Region,
    known: dict[int, Interval],
    rows: Tensor,
    inputs: Tensor | None = None,
    rhs: Tensor | None = None,
) -> Root:
    """The graph without its stable neurons, whose outputs are the goals' rows (count, rows, outputs) minus `rhs`."""
    space = Space(region.lower.dtype, str(region.lower.device))
    count, height, outputs = rows.shape
    direct = rows.new_zeros(count * height, graph.input_size)
    if inputs is not None:
        direct = inputs.reshape(count * height, -1)
    flat = None if rhs is None else rhs.reshape(-1)
    small = compress(graph, region, known, rows.reshape(-1, outputs), direct, flat)
    program = Program(small.graph, space)
    state = intermediate_bounds(program, region, Effort(tighten=False), known=small.known)
    single = torch.eye(count * height, dtype=space.dtype, device=space.device).reshape(count, height, -1)
    goal = Goal(single, None, single.new_zeros(count, height), mixable=True)
    every = torch.arange(count, device=space.device)
    return Root(program, state, goal, every, None, condense(small, state, space), small.stacked, small.origin)


def condense(small: Compressed, state: State, space: Space) -> Condensed:
    """The small graph as matrices."""
    m = small.stacked
    low, high = (
        torch.cat([space.tensor([]), *(ends[k][0] for ends in small.known.values())]) for k in (0, 1)
    )
    direct, feed, bias = (space.tensor(part) for part in (m.direct, m.feed, m.bias))
    return Condensed(direct, feed, bias, m.sizes, low, high, state.region)


def as_intervals(bounds: Bounds, merged: MergedOpposites, program: Program) -> dict[int, Interval]:
    """Bounds of a problem's graph as intervals of what nonlinear nodes of the rewritten one read, cast outward."""
    shared = bounds.lower.keys() & bounds.upper.keys()
    ends = merged.carry({i: (bounds.lower[i], bounds.upper[i]) for i in shared})
    down, up = program.space.down, program.space.up
    return {i: (down(ends[i][0])[None], up(ends[i][1])[None]) for i in program.before if i in ends}


def as_bounds(
    problem: Problem, known: dict[int, Interval], merged: MergedOpposites, assumptions: Assumptions
) -> Bounds:
    """Intervals of the whole domain as evidence for others, who know nothing of the rewritten graph."""
    ends = {p: (as_numbers(low[0], -np.inf), as_numbers(high[0], np.inf)) for p, (low, high) in known.items()}
    ends = merged.restore(ends)
    lower, upper = ({p: pair[k] for p, pair in ends.items()} for k in (0, 1))
    return Bounds(problem.graph.sha256, problem.domain, lower, upper, None, assumptions, "crown")


def open_goals(margin: Tensor) -> Tensor:
    """Which goals have no row that is proved positive (NaN proves nothing)."""
    return (~(margin.amax(1) > 0)).nonzero()[:, 0]
