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
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.propagate.relax.base import Interval, tighter
from verifolio.plugins.crown.worker_threads import WorkerThreads
from verifolio.run.budget import Budget


@dataclass(frozen=True)
class Effort:
    """How hard to try.

    `tighten`: backward bounds for intermediate neurons; `forward`: linear bounds from the inputs, before that;
    `steps`: gradient steps on every neuron's own slopes; `thorough`: on all of them, even where a sample of a
    layer gains little; `elements`: memory of one pass.
    """

    tighten: bool = True
    forward: bool = False
    steps: int = 0
    thorough: bool = False
    elements: int = 1 << 22  # 16 MB in float32: larger temporaries leave the caches


PLAIN = Effort()
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
) -> State:
    """Intervals and lines of every node up to the output.

    `known` holds intervals that are valid already; past the budget's end nothing more is tightened. `refiner` may
    improve a layer's intervals once more, before the next layer is looked at.
    """
    state = program.enter(region)
    forms = ForwardBounds(program, state) if effort.forward else None
    for node in range(1, program.graph.output + 1):
        program.forward(state, node)
        if known is not None and node in known:
            state.interval[node] = tighter(state.interval[node], known[node])
        program.relax(state, node)  # before refining it: a nonlinear node's own bounds use its own lines
        if forms is not None:
            forms.add(node)
        in_time = budget is None or not budget.expired()
        if effort.tighten and in_time and node in program.before and program.mixing[node] > 1:
            bound_backward(program, state, node, effort, budget)
            if refiner is not None:
                refiner(program, state, node)
    return state


def bound_backward(
    program: Program, state: State, node: int, effort: Effort, budget: Budget | None = None
) -> None:
    """Backward bounds for the neurons of `node` on which some relaxation is still loose."""
    mask = loose(program, state, node)
    wanted = mask.any(0).nonzero()[:, 0]
    if not len(wanted):
        return
    copies = program.copies.get(node)
    if copies is not None:  # one bound serves all copies of a value
        wanted = copies[wanted].unique()
    low, high = state.interval[node]
    batch = max(state.region.batch, low.shape[0])
    low, high = low.expand(batch, -1).clone(), high.expand(batch, -1).clone()
    widest = max(program.sizes[: node + 1])
    step = max(1, effort.elements // (2 * batch * widest))
    # where the intervals are good already, it must pay
    unsure = (effort.steps > 0 or effort.forward) and not effort.thorough
    if not effort.steps and not unsure and state.region.balls is None and is_chain(program):
        state.interval[node] = tighten(program, state, node, mask, budget)
        return
    cores = 1 if budget is None else budget.cores
    if effort.steps:  # something for everybody
        step = min(step, -(-len(wanted) // cores))
    first, *others = _chunks(wanted, step, TRIED if unsure else step)

    def work(chunk: Tensor) -> bool:
        """Bounds of some neurons; True ends it all."""
        bound = _both_ends(program, state, node, chunk, effort.steps, budget)
        low[:, chunk] = torch.fmax(low[:, chunk], bound[:, : len(chunk)])
        high[:, chunk] = torch.fmin(high[:, chunk], -bound[:, len(chunk) :])
        return budget is not None and budget.expired()

    if unsure:
        before = high[:, first] - low[:, first]
        over = work(first)
        gain = 1 - ((high[:, first] - low[:, first]) / before.clamp(min=1e-30)).nan_to_num(1.0).mean()
        others = [] if over or gain < WORTHWHILE else others
    else:
        others = [first, *others]
    if others:
        WorkerThreads(cores, lambda: others.pop(0) if others else None, work).run()
    if copies is not None:
        low, high = low[:, copies], high[:, copies]
    state.interval[node] = torch.minimum(low, high), torch.maximum(low, high)


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
