"""Bounds for every neuron, layer by layer: intervals first, then backward rows where they can still help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verifolio.plugins.crown.adam import Adam
from verifolio.plugins.crown.chain import is_chain, tighten
from verifolio.plugins.crown.crew import Crew
from verifolio.plugins.crown.forward import Forms
from verifolio.plugins.crown.program import Program, State
from verifolio.plugins.crown.region import Region
from verifolio.plugins.crown.relax.base import Interval
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
    elements: int = 1 << 22  # larger temporaries leave the caches


PLAIN = Effort()
Deeper = Callable[[Program, State, int], None]
TRIED = 32  # neurons of a layer that are bounded first where intervals are good already
WORTHWHILE = 0.03  # part of their width that must go, or the layer's other neurons are left alone


def sweep(
    program: Program,
    region: Region,
    effort: Effort = PLAIN,
    known: Mapping[int, Interval] | None = None,
    budget: Budget | None = None,
    deeper: Deeper | None = None,
) -> State:
    """Intervals and lines of every node up to the output.

    `known` holds intervals that are valid already; past the budget's end nothing more is tightened. `deeper` may
    improve a layer's intervals once more, before the next layer is looked at.
    """
    state = program.enter(region)
    forms = Forms(program, state) if effort.forward else None
    for node in range(1, program.graph.output + 1):
        program.forward(state, node)
        if known is not None and node in known:
            state.interval[node] = tighter(state.interval[node], known[node])
        program.relax(state, node)  # before refining it: a nonlinear node's own bounds use its own lines
        if forms is not None:
            forms.add(node)
        in_time = budget is None or not budget.expired()
        if effort.tighten and in_time and node in program.before and program.mixing[node] > 1:
            refine(program, state, node, effort, budget)
            if deeper is not None:
                deeper(program, state, node)
    return state


def tighter(a: Interval, b: Interval) -> Interval:
    """The intersection; NaN never wins, and rounding may not turn an interval inside out."""
    low, high = torch.fmax(a[0], b[0]), torch.fmin(a[1], b[1])
    return torch.minimum(low, high), torch.maximum(low, high)


def refine(program: Program, state: State, node: int, effort: Effort, budget: Budget | None = None) -> None:
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
        Crew(cores, lambda: others.pop(0) if others else None, work).run()
    if copies is not None:
        low, high = low[:, copies], high[:, copies]
    state.interval[node] = torch.minimum(low, high), torch.maximum(low, high)


def _both_ends(
    program: Program, state: State, node: int, neurons: Tensor, steps: int, budget: Budget | None
) -> Tensor:
    """Lower bounds (batch, 2 count) of some neurons, then of their opposites."""
    count, device = len(neurons), neurons.device
    rows = torch.zeros(1, 2 * count, program.sizes[node], dtype=program.space.dtype, device=device)
    place = torch.arange(count, device=device)
    rows[0, place, neurons] = 1
    rows[0, place + count, neurons] = -1
    with torch.no_grad():  # every thread has its own setting
        return ascend(program, state, node, rows, steps, budget)


def _chunks(wanted: Tensor, step: int, first: int) -> tuple[Tensor, ...]:
    """Neurons to bound together: a few, evenly spread, then the others."""
    if len(wanted) <= 2 * first:
        return tuple(wanted.split(step))
    spread = torch.zeros(len(wanted), dtype=torch.bool, device=wanted.device)
    spread[:: len(wanted) // first] = True
    return (*wanted[spread].split(step), *wanted[~spread].split(step))


def ascend(
    program: Program,
    state: State,
    node: int,
    rows: Tensor,
    steps: int,
    budget: Budget | None,
    rate: float = 0.3,
) -> Tensor:
    """The best of several bounds while every row improves its own slopes by gradient ascent (alpha-CROWN)."""
    state = replace(state, lines=dict(state.lines), noise=dict(state.noise))  # its lines are nobody else's
    alpha: dict[int, Tensor] = {}
    for i in program.nonlinear:
        rule = program.relaxations[i]
        if i < node and rule is not None and bool(rule.loose(*state.inputs(program, i)).any()):
            first = rule.start(*state.inputs(program, i))
            alpha[i] = first[:, None].repeat(1, rows.shape[1], 1).requires_grad_()
    if not alpha or not steps:
        return program.lower(state, node, rows)
    adam = Adam((alpha.values(), rate))
    best: Tensor | None = None
    for step in range(steps + 1):
        with torch.enable_grad():
            for i, a in alpha.items():
                program.relax(state, i, a)
            bound = program.lower(state, node, rows)
            total = bound.nan_to_num(0.0).sum()
        best = bound.detach() if best is None else torch.fmax(best, bound.detach())
        late = budget is not None and budget.expired()
        if step == steps or late or not total.requires_grad:  # the rows may not feel any relaxed neuron
            break
        adam.step(torch.autograd.grad(total, list(alpha.values()), allow_unused=True))
        with torch.no_grad():
            for a in alpha.values():
                a.clamp_(0, 1)
    return best if best is not None else bound


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
