"""Intermediate bounds by splitting: before the output is searched, every unstable neuron is, for a few rounds.

A neuron's bound is the least one over subproblems that split the neurons before it, and each layer profits from the
layers before. A search on the output pays for a loose intermediate bound in every subproblem; here it is paid once.
(Singh et al. 2019 refine intermediate bounds by linear and mixed-integer programs, for which a solver is needed.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from verifolio.graph import Graph
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import proved
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.neurons.subproblems import Subproblems
from verifolio.plugins.crown.search.root import RootBounds, shrink
from verifolio.plugins.crown.worker_threads import WorkerThreads
from verifolio.run.budget import Budget

FIRST_ITERATIONS, ITERATIONS = 30, 12  # steps before any split and after one; those of a search are 50 and 12
NEURONS = 256  # whose rows are made together: the small graph is made once for all of them, and has two rows for each
GOALS = 32  # neurons that one thread bounds together; more would leave other threads without work
SAMPLE = 8  # neurons that are tried first, those with the largest triangles
# Part of their bounds that these must gain. Layers of convolutional networks mostly gain less, and the time is better
# spent on the search; smaller values cost that time, larger ones give refinement up on networks where it helps.
WORTHWHILE = 0.08
WORST = 4  # subproblems of one goal that are split in a round: a neuron's bound is the least of theirs


@dataclass(frozen=True)
class Refinement:
    """`gained`: the first neurons of every layer did; `in_time`: nothing was left undone for want of time."""

    gained: bool = True
    in_time: bool = True


@dataclass
class ClaimLeaves:
    """For a certificate: the subproblems behind bounds of neurons, whose slopes are multiples of 1 / `levels`.

    A part has, per subproblem, the neuron of `node`, the sign of the bounded end (1: the lower), the phases, slopes
    (times `levels`) and multipliers of the neurons that `origin` names.
    """

    levels: int
    parts: list[dict[str, Any]] = field(default_factory=list)


def refine_bounds(root_bounds: RootBounds, rounds: int, effort: Effort, budget: Budget) -> Refinement:
    """Optimised slopes for every neuron and `rounds` of splits, layer by layer, until one is not worth it."""
    came = Refinement()

    def refiner(program: Program, state: State, node: int) -> None:
        nonlocal came
        if came.gained and came.in_time:
            came = split_bounds(program, state, node, rounds, budget, root_bounds.needed.get(node))

    root_bounds.tighten(replace(effort, thorough=True), refiner, budget)
    return replace(came, in_time=came.in_time and not budget.expired())


@torch.no_grad()
def split_bounds(
    program: Program,
    state: State,
    node: int,
    rounds: int,
    budget: Budget,
    needed: Tensor | None = None,
    leaves: ClaimLeaves | None = None,
) -> Refinement:
    """Improve the interval of `node`, whose readers are ReLUs, where it holds zero.

    `needed`: of these neurons; `leaves` gets what proves it.
    """
    low, high = (end[0].double() for end in state.interval[node])
    height = torch.where((low < 0) & (high > 0), -low * high / (high - low), 0.0)
    height = height if needed is None else height * needed
    wanted = height.argsort(descending=True)[: int((height > 0).sum())]
    came = Refinement()
    for neurons in wanted.split(NEURONS) if len(wanted) else ():
        layer = _Layer(program, state, node, neurons, budget, leaves)
        came = layer.run(rounds)
        low[neurons] = torch.fmax(low[neurons], layer.found[0::2])
        high[neurons] = torch.fmin(high[neurons], -layer.found[1::2])
        if not (came.gained and came.in_time):
            break
    space = program.space
    ends = space.down(low.cpu().numpy())[None], space.up(high.cpu().numpy())[None]
    state.interval[node] = torch.minimum(*ends), torch.maximum(*ends)
    return came


class _Layer:
    """Some neurons of a layer, two goals each: `found[2k]` bounds neuron k from below, `found[2k + 1]` minus it."""

    def __init__(
        self,
        program: Program,
        state: State,
        node: int,
        neurons: Tensor,
        budget: Budget,
        leaves: ClaimLeaves | None,
    ) -> None:
        count, size = len(neurons), program.sizes[node]
        unit = torch.zeros(count, size, dtype=torch.float64, device=neurons.device)
        unit[torch.arange(count), neurons] = 1
        before = {p: state.interval[p] for p in program.before if p < node}
        graph = Graph(program.graph.nodes[: node + 1], node)
        self.root = shrink(graph, state.region, before, torch.stack([unit, -unit], 1).reshape(-1, 1, size))
        low, high = (end[0, neurons].double() for end in state.interval[node])
        self.found = torch.stack([low, -high], 1).reshape(-1)
        self.budget, self.node, self.neurons, self.leaves = budget, node, neurons, leaves

    def run(self, rounds: int) -> Refinement:
        """A few neurons by themselves first; the others if these gain enough and time will do."""
        if self.root.condensed is None:
            return Refinement()
        bounding = SubproblemBounds(self.root, self.root.condensed, self.budget)
        goals, clock = bounding.first(), self.budget.share(math.inf)
        numbers = torch.arange(len(self.found), device=self.found.device)
        sample, rest = numbers[: 2 * SAMPLE], numbers[2 * SAMPLE :]
        waiting = list(rest.split(2 * GOALS)) if len(rest) else []
        late = False

        def work(part: Tensor) -> bool:
            nonlocal late
            closed: list[Subproblems] | None = None if self.leaves is None else []
            better = _improve(bounding, goals.pick(part), rounds, self.budget, closed)
            if closed and self.leaves is not None:
                better = self._state(bounding, Subproblems.join(closed), part, self.leaves)
            self.found[part] = torch.fmax(self.found[part], better)
            left = sum(map(len, waiting))
            pace = clock.elapsed / (len(numbers) - left)
            late |= self.budget.expired() or pace * left > self.budget.remaining
            return late

        before = float(self.found[sample].sum())
        over = work(sample)
        if not over and 1 - float(self.found[sample].sum()) / before < WORTHWHILE:
            return Refinement(gained=False)
        if not over:
            WorkerThreads(self.budget.cores, lambda: waiting.pop(0) if waiting else None, work).run()
        return Refinement(in_time=not late)

    def _state(
        self, bounding: SubproblemBounds, items: Subproblems, part: Tensor, leaves: ClaimLeaves
    ) -> Tensor:
        """Keep subproblems for a certificate; what they prove with slopes as it writes them, per goal of the part."""
        found, levels = items.variables.to(torch.float64), leaves.levels
        alpha = (found.alpha.clamp(0, 1) * levels).round()
        variables = Variables(alpha / levels, found.beta.clamp(min=0), found.mix)
        margin = proved(bounding.prove(items, variables).margin[:, 0])
        held = {"neuron": self.neurons[items.disjunct // 2], "sign": 1 - 2 * (items.disjunct % 2)}
        held |= {"phase": items.phase, "alpha": alpha.to(torch.uint8), "beta": variables.beta.float()}
        arrays = {name: value.cpu().numpy() for name, value in held.items()}
        leaves.parts.append({"node": self.node, "origin": self.root.origin, **arrays})
        best = torch.full((len(part),), torch.inf, dtype=torch.float64, device=margin.device)
        best.scatter_reduce_(0, items.disjunct - int(part[0]), margin, "amin")
        return torch.where(best == torch.inf, -torch.inf, best)


def _improve(
    bounding: SubproblemBounds,
    goals: Subproblems,
    rounds: int,
    budget: Budget,
    closed: list[Subproblems] | None = None,
) -> Tensor:
    """The best bound of every goal; goals come in pairs, a neuron's lower and its upper side.

    `closed` gets the subproblems of which each goal's bound is the least.
    """
    start, count = int(goals.disjunct[0]), len(goals)
    best = torch.full((count,), -torch.inf, dtype=torch.float64, device=goals.phase.device)
    pool, bounds = _bound(bounding, goals, FIRST_ITERATIONS)
    for k in range(rounds + 1):
        least = torch.full_like(best, torch.inf).scatter_reduce_(0, pool.disjunct - start, bounds, "amin")
        best = torch.fmax(best, torch.where(least == torch.inf, best, least))
        settled = (best.reshape(-1, 2) > 0).any(1).repeat_interleave(2)  # the ReLU is a line: enough
        going = ~settled[pool.disjunct - start]
        if closed is not None:
            closed.append(pool.pick(~going))
        pool, bounds = pool.pick(going), bounds[going]
        if k == rounds or not len(pool) or budget.expired():
            break
        chosen = _worst(pool, bounds, start, count)
        if not bool(chosen.any()):
            break
        parts = pool.pick(chosen).split()
        children, theirs = _bound(bounding, parts, ITERATIONS)
        if closed is not None:
            children = _better(children, parts, theirs > bounds[chosen].repeat(2))
        theirs = torch.fmax(theirs, bounds[chosen].repeat(2))  # a part is no worse than the whole
        pool = Subproblems.join([pool.pick(~chosen), children])
        bounds = torch.cat([bounds[~chosen], theirs])
    if closed is not None:
        closed.append(pool)
    return best


def _better(children: Subproblems, parts: Subproblems, improved: Tensor) -> Subproblems:
    """Children with the variables of the whole where their own are no better."""
    pairs = zip(children.variables.tensors(), parts.variables.tensors(), strict=True)
    return replace(children, variables=Variables(*(torch.where(improved[:, None], a, b) for a, b in pairs)))


def _bound(bounding: SubproblemBounds, items: Subproblems, iterations: int) -> tuple[Subproblems, Tensor]:
    done = bounding.bound(items, iterations)
    return bounding.ranked(items, done), proved(done.margin)


def _worst(pool: Subproblems, bounds: Tensor, start: int, count: int) -> Tensor:
    """A mask of each goal's worst subproblems, where there is something to split."""
    order = bounds.argsort()
    order = order[(pool.disjunct[order]).argsort(stable=True)]
    sizes = torch.bincount(pool.disjunct - start, minlength=count)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = torch.arange(len(order), device=order.device) - first
    chosen = torch.zeros(len(order), dtype=torch.bool, device=order.device)
    chosen[order] = place < WORST
    return chosen & (pool.branch[:, 0] >= 0)
