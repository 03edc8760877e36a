"""Intermediate bounds, layer by layer: intervals (Gowal et al. 2018), then backward rows (CROWN; Zhang et al. 2018).

Rows go backward only where intervals leave a relaxation with a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.row_slopes import ascend_rows, unit_rows
from verifolio.plugins.crown.propagate.chain import is_chain, tighten
from verifolio.plugins.crown.propagate.forward import ForwardBounds
from verifolio.plugins.crown.propagate.patches import PatchBounds
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.base import Interval, tighter
from verifolio.plugins.crown.propagate.zonotopes import Zonotopes
from verifolio.plugins.crown.worker_threads import WorkerThreads
from verifolio.run.budget import Budget


@dataclass(frozen=True)
class Effort:
    """How hard to try.

    `tighten`: backward bounds for intermediate neurons; `forward`: linear bounds from the inputs, before that;
    `zonotopes`: zonotopes from the inputs, before that, where the region is one; `sampled`: backward bounds of a
    layer only where a sample of its neurons gains by them;
    `steps`: gradient steps on every neuron's own slopes; `thorough`: on all of them, even where a sample of a
    layer gains little; `elements`: memory of one pass; `columns`: forward bounds follow the first so many inputs, and
    take what the others do for an error.
    """

    tighten: bool = True
    forward: bool = False
    zonotopes: bool = False
    sampled: bool = False
    steps: int = 0
    thorough: bool = False
    elements: int = 1 << 22  # 16 MB in float32: larger temporaries leave the caches
    columns: int | None = None


PLAIN = Effort()
# times a node's noise: an interval of two comes from a constant, and a pass is charged as much again
ROUNDED = 4.0
# of one pass over windows: 8 MB in float32. Measured on TinyYOLO: with 64 MB the same takes twice as long.
PATCH_ELEMENTS = 1 << 21
Refiner = Callable[[Program, State, int], None]
# neurons of a layer that are bounded first where intervals are good already: enough for an average
TRIED = 32
# Part of their width that must go, or the layer's other neurons are left alone. A choice: less costs passes that
# narrow nothing, more leaves layers loose that branching then pays for.
WORTHWHILE = 0.03


def intermediate_bounds(
    program: Program,
    region: Region,
    effort: Effort = PLAIN,
    known: Mapping[int, Interval] | None = None,
    budget: Budget | None = None,
    refiner: Refiner | None = None,
    needed: Mapping[int, Tensor] | None = None,
) -> State:
    """Intervals and lines of every node up to the output.

    `known` holds intervals that are valid already; past the budget's end nothing more is tightened. `refiner` may
    improve a layer's intervals once more, before the next layer is looked at. `needed`: masks of the neurons that
    are worth it, see `cone`; None: all.
    """
    state = program.enter(region)
    forms: ForwardBounds | Zonotopes | None = None
    if effort.forward:
        forms = ForwardBounds(program, state, effort.columns)
    if effort.zonotopes and region.batch == 1:
        forms = Zonotopes(program, state, 1 if budget is None else budget.cores)
    for node in range(1, program.graph.output + 1):
        program.forward(state, node)
        if known is not None and node in known:
            state.interval[node] = tighter(state.interval[node], known[node])
        program.relax(state, node)  # before refining it: a nonlinear node's own bounds use its own lines
        if forms is not None:
            forms.add(node)
        in_time = budget is None or not budget.expired()
        if effort.tighten and in_time and node in program.before and program.mixing[node] > 1:
            bound_backward(program, state, node, effort, budget, needed)
            if refiner is not None:
                refiner(program, state, node)
    return state


def bound_backward(
    program: Program,
    state: State,
    node: int,
    effort: Effort,
    budget: Budget | None = None,
    needed: Mapping[int, Tensor] | None = None,
) -> None:
    """Backward bounds for the neurons of `node` on which some relaxation is still loose."""
    mask = loose(program, state, node) & _movable(state, node)
    if needed is not None:
        mask &= needed[node] if node in needed else torch.zeros_like(mask)
    wanted = mask.any(0).nonzero()[:, 0]
    if not len(wanted):
        return
    copies = program.copies.get(node)
    if copies is not None:  # one bound serves all copies of a value
        wanted = copies[wanted].unique()
    # where the intervals are good already, it must pay
    plain = not effort.steps and (effort.thorough or not effort.forward)
    unsure = (not plain or effort.sampled) and not effort.thorough
    if plain and state.region.balls is None and is_chain(program):
        state.interval[node] = tighten(program, state, node, mask, budget)
        return
    ends = _Ends(program, state, node, effort, budget)
    patches = PatchBounds(program, state, node) if plain and ends.batch == 1 else None
    if patches is not None and patches.pays():
        ends.share(patches.pieces(wanted, min(effort.elements, PATCH_ELEMENTS)), ends.by_patches(patches))
    else:
        ends.by_rows(wanted, unsure)
    low, high = ends.low, ends.high
    if copies is not None:
        low, high = low[:, copies], high[:, copies]
    state.interval[node] = torch.minimum(low, high), torch.maximum(low, high)


def _movable(state: State, node: int) -> Tensor:
    """Neurons whose interval is wider than rounding alone explains: no pass narrows the others (batch, size)."""
    low, high = state.interval[node]
    noise = state.noise.get(node)
    return high > low if noise is None else high - low > ROUNDED * noise


class _Ends:
    """Both ends of a node's neurons while pieces of them are bounded, by several threads."""

    def __init__(
        self, program: Program, state: State, node: int, effort: Effort, budget: Budget | None
    ) -> None:
        self.program, self.state, self.node = program, state, node
        self.effort, self.budget = effort, budget
        low, high = state.interval[node]
        self.batch = max(state.region.batch, low.shape[0])
        self.low, self.high = low.expand(self.batch, -1).clone(), high.expand(self.batch, -1).clone()
        self.cores = 1 if budget is None else budget.cores

    def share(self, pieces: list[Tensor], work: Callable[[Tensor], bool]) -> None:
        """Work on all pieces; True ends it all."""
        if pieces:
            WorkerThreads(self.cores, lambda: pieces.pop(0) if pieces else None, work).run()

    def by_rows(self, wanted: Tensor, unsure: bool) -> None:
        """Rows over whole nodes; `unsure`: only if the first few neurons gain by it."""
        widest = max(self.program.sizes[: self.node + 1])
        step = max(1, self.effort.elements // (2 * self.batch * widest))
        if self.effort.steps:  # something for everybody
            step = min(step, -(-len(wanted) // self.cores))
        first, *others = _chunks(wanted, step, TRIED if unsure else step)
        if not unsure:
            self.share([first, *others], self._rows)
            return
        before = self.high[:, first] - self.low[:, first]
        over = self._rows(first)
        after = self.high[:, first] - self.low[:, first]
        gain = 1 - (after / before.clamp(min=1e-30)).nan_to_num(1.0).mean()
        self.share([] if over or gain < WORTHWHILE else others, self._rows)

    def _rows(self, chunk: Tensor) -> bool:
        bound = _both_ends(self.program, self.state, self.node, chunk, self.effort.steps, self.budget)
        return self._note(chunk, bound[:, : len(chunk)], bound[:, len(chunk) :])

    def by_patches(self, patches: PatchBounds) -> Callable[[Tensor], bool]:
        @torch.no_grad()  # every thread has its own setting
        def work(neurons: Tensor) -> bool:
            below, above = (end.reshape(1, -1) for end in patches.both_ends(neurons))
            return self._note(neurons.flatten(), below, above)

        return work

    def _note(self, neurons: Tensor, below: Tensor, above: Tensor) -> bool:
        self.low[:, neurons] = torch.fmax(self.low[:, neurons], below)
        self.high[:, neurons] = torch.fmin(self.high[:, neurons], -above)
        return self.budget is not None and self.budget.expired()


def _both_ends(
    program: Program, state: State, node: int, neurons: Tensor, steps: int, budget: Budget | None
) -> Tensor:
    """Lower bounds (batch, 2 count) of some neurons, then of their opposites."""
    with torch.no_grad():  # every thread has its own setting
        return ascend_rows(program, state, node, unit_rows(program, node, neurons), steps, budget)


def _chunks(wanted: Tensor, step: int, first: int) -> tuple[Tensor, ...]:
    """Neurons to bound together: a few, evenly spread, then the others."""
    if len(wanted) <= 2 * first:
        return tuple(wanted.split(step))
    spread = torch.zeros(len(wanted), dtype=torch.bool, device=wanted.device)
    spread[:: len(wanted) // first] = True
    return (*wanted[spread].split(step), *wanted[~spread].split(step))


def loose(program: Program, state: State, node: int) -> Tensor:
    """Neurons of `node` that some reader relaxes with a gap: (batch, size)."""
    low, high = state.interval[node]
    mask = torch.zeros_like(low, dtype=torch.bool)
    for reader in program.nonlinear:
        rule = program.relaxations[reader]
        if rule is None or node not in program.parents[reader]:
            continue
        if len(program.parents[reader]) > 1:
            mask |= high > low
        else:
            mask |= rule.loose((low, high))
    return mask
