"""Gradient attacks on many sets of networks at once; see `verifolio.plugins.ensemble.joint_gradient`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from verifolio.attacks import AttackSettings, attack_many
from verifolio.attacks.project import project, steepest
from verifolio.attacks.targets import Targets
from verifolio.graph import Graph
from verifolio.graph.module import GraphModule
from verifolio.model.joint import Joint
from verifolio.model.problem import Domain
from verifolio.plugin.batch import BatchContext
from verifolio.run.threads import one_thread
from verifolio.vnnlib import Rows

from .climb import climb
from .joint_gradient import GradientOptions, Method
from .lattice import members
from .losses import entropy, entropy_unfooled, gap

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
PLAIN: tuple[Method, ...] = ("ga1", "ga2", "ga3")
BATCH = 2048  # tasks made into tensors together
TOGETHER = 256  # descents at most that are made at once rather than one after the other
NEAR = 1e-5  # margins above -NEAR are worth a replay: float32 rounds differently there
OTHERS = AttackSettings(rounds=2, restarts=8, steps=20, samples=0, diversify_steps=2)  # not about labels


@dataclass(frozen=True, eq=False)
class Task:
    """Fool all networks of `mask` in a domain around a centre; `starts` are further points to begin from."""

    domain: Domain
    centre: Array
    label: int
    mask: int
    starts: tuple[Array, ...] = ()

    @property
    def norm(self) -> float:
        return math.inf if self.domain.ball is None else self.domain.ball.norm

    @property
    def radius(self) -> float:
        """The ball's, or how far the box reaches from the centre."""
        if self.domain.ball is not None:
            return self.domain.ball.radius
        return float(np.maximum(self.domain.upper - self.centre, self.centre - self.domain.lower).max())

    @property
    def inner(self) -> tuple[Float32, Float32]:
        """The largest float32 box inside the domain."""
        lower, upper = self.domain.lower, self.domain.upper
        low, high = lower.astype(np.float32), upper.astype(np.float32)
        low = np.where(low.astype(np.float64) < lower, np.nextafter(low, np.float32(np.inf)), low)
        high = np.where(high.astype(np.float64) > upper, np.nextafter(high, np.float32(-np.inf)), high)
        return low.astype(np.float32), high.astype(np.float32)


def attack_questions(questions: Sequence[Joint], plan: GradientOptions, context: BatchContext) -> None:
    """Attack those about labels together, others as any other."""
    named = {k: label_of(q) for k, q in enumerate(questions) if not q.domain.empty}
    labels = {k: label for k, label in named.items() if label is not None}
    norms: dict[float, list[int]] = defaultdict(list)
    for k in labels:
        ball = questions[k].domain.ball
        norms[math.inf if ball is None else ball.norm].append(k)
    for same in norms.values():
        for start in range(0, len(same), BATCH):
            if not context.budget.expired():
                _attack({k: labels[k] for k in same[start : start + BATCH]}, questions, plan, context)
    others = {k: p for k, q in enumerate(questions) if k not in labels and (p := q.problem) is not None}
    places = list(others)
    attack_many(
        list(others.values()),
        lambda i, x: context.offer(places[i], x),
        context.budget,
        OTHERS,
        seed=context.seed,
        device=context.device,
    )


def _attack(
    labels: dict[int, int], questions: Sequence[Joint], plan: GradientOptions, context: BatchContext
) -> None:
    graphs = list(dict.fromkeys(p.graph for k in labels for p in questions[k].parts))
    places = {graph: c for c, graph in enumerate(graphs)}
    tasks = []
    for k, label in labels.items():
        mask = sum(1 << places[p.graph] for p in questions[k].parts)
        tasks.append(_task(questions[k].domain, label, mask, context.starts.get(k, ())))
    falsifier = Falsifier([module_of(g) for g in graphs], plan, context.seed)
    with one_thread():
        points = falsifier.attack(tasks)
    for k, x in zip(labels, points, strict=True):
        if x is not None:
            context.offer(k, x.astype(np.float64))


def _task(domain: Domain, label: int, mask: int, starts: Sequence[Array]) -> Task:
    """The centre is the ball's; in a box it is the first start, or the middle without one."""
    if domain.ball is not None:
        return Task(domain, domain.ball.centre, label, mask, tuple(starts[1:]))
    centre = starts[0] if len(starts) else (domain.lower + domain.upper) / 2
    return Task(domain, np.clip(centre, domain.lower, domain.upper), label, mask, tuple(starts[1:]))


@lru_cache(maxsize=16)
def module_of(graph: Graph) -> nn.Module:
    """The graph as a module for gradients; kept, because a worker gets many batches about few networks."""
    return GraphModule(graph, torch.float32).requires_grad_(False)


def label_of(question: Joint) -> int | None:
    """The label that all parts are to lose, if that is what they ask; each graph only once."""
    found = {_lost(p.disjuncts, p.graph.input_size, p.graph.output_size) for p in question.parts}
    once = len({p.graph for p in question.parts}) == len(question.parts)
    return found.pop() if once and len(found) == 1 else None


@lru_cache(maxsize=256)
def _lost(disjuncts: tuple[Rows, ...], inputs: int, outputs: int) -> int | None:
    """The label y in a condition `Y_y <= Y_l for some l`, over all other labels l."""
    seen, others = set(), set()
    for rows in disjuncts:
        terms = {int(c): float(v) for c, v in zip(rows.column, rows.coefficient, strict=True)}
        if rows.count != 1 or rows.exact_rhs[0] != 0 or sorted(terms.values()) != [-1.0, 1.0]:
            return None
        seen |= {c for c, v in terms.items() if v > 0}
        others |= {c for c, v in terms.items() if v < 0}
    if len(seen) != 1 or seen | others != set(range(inputs, inputs + outputs)):
        return None
    return seen.pop() - inputs


@dataclass(eq=False)
class _Batch:
    """Tensors of several tasks of one norm: centres (T, n), radii and labels (T), masks (T, networks)."""

    geometry: Targets
    centre: Tensor
    radius: Tensor
    labels: Tensor
    masks: Tensor
    norm: float

    @cached_property
    def rows(self) -> list[tuple[int, Tensor]]:
        """The networks that some task wants, each with the tasks that do."""
        wanted = [torch.nonzero(column).ravel() for column in self.masks.unbind(1)]
        return [(c, rows) for c, rows in enumerate(wanted) if len(rows)]

    @cached_property
    def slots(self) -> Tensor:
        """The networks that each task wants (T, k); where others want more, the first one again."""
        count = self.masks.sum(1)
        order = (~self.masks).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(count.max())]
        return torch.where(torch.arange(order.shape[1]) < count[:, None], order, order[:, :1])

    def take(self, index: Tensor) -> _Batch:
        centre, radius, labels, masks = (
            t[index] for t in (self.centre, self.radius, self.labels, self.masks)
        )
        return _Batch(self.geometry.take(index), centre, radius, labels, masks, self.norm)


class Falsifier:
    """The networks as torch modules, and attacks on batches of tasks; nothing here is believed unreplayed."""

    def __init__(self, modules: Sequence[nn.Module], plan: GradientOptions, seed: int = 0) -> None:
        self.modules, self.plan, self.seed = list(modules), plan, seed

    def attack(self, tasks: Sequence[Task]) -> list[Float32 | None]:
        """The most promising point of every task, or None where no member set looks fooled; all of one norm."""
        method = self.plan.method
        runs = len(self._runs(method, tasks))
        boxes = math.isinf(tasks[0].norm)
        if method == "search" and not boxes and len(tasks) * runs <= TOGETHER:
            return self._attack_together(tasks, runs)
        batch = _make_batch(tasks, len(self.modules))
        random = torch.Generator().manual_seed(self.seed)
        best = batch.centre.clone()
        margin = self.margins(batch, best).amin(1)
        for run, how in enumerate(self._runs(method, tasks)):
            todo = torch.nonzero(margin < 0).ravel()
            if not len(todo):
                break
            part = batch.take(todo)
            first = run < (1 if method == "search" else len(PLAIN))
            x = self._start(part, [tasks[k] for k in todo.tolist()], 0 if first else run, random)
            x, reached = self._improve(part, x, how)
            better = reached > margin[todo]
            margin[todo] = torch.where(better, reached, margin[todo])
            best[todo] = torch.where(better[:, None], x, best[todo])
        points = best.numpy()
        return [points[k] if margin[k] >= -NEAR else None for k in range(len(tasks))]

    def _attack_together(self, tasks: Sequence[Task], runs: int) -> list[Float32 | None]:
        """Few tasks: all descents of all of them as one batch, since a step costs the same for one as for many."""
        batch = _make_batch([t for t in tasks for _ in range(runs)], len(self.modules))
        random = torch.Generator().manual_seed(self.seed)
        x = batch.centre.clone()
        for run in range(1, runs):
            x[run::runs] = self._start(batch.take(torch.arange(run, len(x), runs)), tasks, run, random)
        x, reached = self._descend(batch, x, "search", runs)
        margin, best = reached.reshape(-1, runs).max(1)
        points = x.reshape(len(tasks), runs, -1)[torch.arange(len(tasks)), best].numpy()
        return [points[k] if margin[k] >= -NEAR else None for k in range(len(tasks))]

    def _runs(self, method: Method, tasks: Sequence[Task]) -> list[Method]:
        """The descents in order; those beyond the plain ones start from given or random points."""
        if method == "search":
            given = max(len(t.starts) for t in tasks)
            # climbs from random points end where others do
            drawn = self.plan.restarts if not math.isinf(tasks[0].norm) else 1
            return ["search"] * (1 + given + min(drawn, self.plan.restarts))
        plain = PLAIN[: PLAIN.index(method) + 1]
        more = self.plan.restarts if method == "ga3" else 0
        return [*plain, *(PLAIN[-1] for _ in range(more))]

    def _start(self, batch: _Batch, tasks: Sequence[Task], run: int, random: torch.Generator) -> Tensor:
        """The centre first, then the given points, then random ones."""
        x = batch.centre.clone()
        if run == 0:
            return x
        noise = torch.rand(x.shape, generator=random) * batch.geometry.width + batch.geometry.lower
        drawn = project(batch.geometry, noise[:, None])[:, 0]
        for k, task in enumerate(tasks):
            given = run <= len(task.starts)
            x[k] = torch.from_numpy(np.asarray(task.starts[run - 1], np.float32)) if given else drawn[k]
        return x

    @torch.no_grad()
    def margins(self, batch: _Batch, x: Tensor) -> Tensor:
        """max over wrong labels of Y_l - Y_y for wanted networks, +inf for others, (T, networks)."""
        return _columns(batch, self._outputs(batch, [x[rows] for _, rows in batch.rows]), gap, math.inf)

    def _outputs(self, batch: _Batch, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the wanted networks say, each about its own inputs."""
        return [self.modules[c](x) for (c, _), x in zip(batch.rows, inputs, strict=True)]

    def _improve(self, batch: _Batch, x: Tensor, method: Method) -> tuple[Tensor, Tensor]:
        if method != "search" or not math.isinf(batch.norm):
            return self._descend(batch, x, method)
        lower, upper = batch.geometry.lower, batch.geometry.upper
        return climb(partial(self._linear, batch), x, lower, upper, self.plan.steps)

    def _descend(self, batch: _Batch, x: Tensor, method: Method, runs: int = 1) -> tuple[Tensor, Tensor]:
        """Best points and their least margins; every method keeps the best it has seen.

        Stops when one of the `runs` descents of every task has arrived; they lie side by side.
        """
        steps = 1 if method == "ga1" else self.plan.steps
        best, reached = x.clone(), x.new_full((len(x),), -math.inf)
        for step in range(steps + 1):
            last = step == steps
            slope, margin = (x, self.margins(batch, x).amin(1)) if last else self._slope(batch, x, method)
            better = margin > reached
            reached = torch.where(better, margin, reached)
            best = torch.where(better[:, None], x, best)
            if last or bool((reached.reshape(-1, runs).amax(1) >= 0).all()):
                break
            moved = x + _step_size(step, steps, method) * _direction(batch, slope)
            x = project(batch.geometry, moved[:, None])[:, 0]
        return best, reached

    def _slope(self, batch: _Batch, x: Tensor, method: Method) -> tuple[Tensor, Tensor]:
        """The gradient of what is to grow, and the least margin at x.

        Every network has its own copy of its inputs: to gradients of one shared tensor each network would
        contribute another tensor of the whole batch, nought for most tasks.
        """
        inputs, outputs, margins = self._run(batch, x)
        if method == "search":
            # the least fooled member counts in full, the others a little, so that they are not lost again
            unfooled = margins.masked_fill(~batch.masks, 0.0).clamp_max(0)
            total = margins.amin(1).sum() + 0.1 * unfooled.sum()
        else:
            measure = entropy if method != "ga3" else entropy_unfooled
            total = _columns(batch, outputs, measure, 0.0).sum()
        slope = torch.zeros_like(x)
        for (_, rows), part in zip(batch.rows, torch.autograd.grad(total, inputs), strict=True):
            slope.index_add_(0, rows, part)
        return torch.nan_to_num(slope), margins.detach().amin(1)

    def _linear(self, batch: _Batch, x: Tensor) -> tuple[Tensor, Tensor]:
        """The margins of each task's networks and their slopes, (T, k) and (T, k, n)."""
        inputs, _, margins = self._run(batch, x)
        total = margins[batch.masks].sum()
        slopes = x.new_zeros((*batch.slots.shape, x.shape[1]))
        for (c, rows), part in zip(batch.rows, torch.autograd.grad(total, inputs), strict=True):
            task, slot = torch.nonzero(batch.slots[rows] == c, as_tuple=True)
            slopes[rows[task], slot] = torch.nan_to_num(part[task])
        return margins.detach().gather(1, batch.slots), slopes

    def _run(self, batch: _Batch, x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """The wanted networks' own inputs, which have gradients, their outputs, and all margins."""
        inputs = [x[rows].requires_grad_(True) for _, rows in batch.rows]
        outputs = self._outputs(batch, inputs)
        return inputs, outputs, _columns(batch, outputs, gap, math.inf)


def _columns(
    batch: _Batch, outputs: Sequence[Tensor], measure: Callable[[Tensor, Tensor], Tensor], other: float
) -> Tensor:
    """A measure of outputs and labels for wanted networks, `other` elsewhere, (T, networks)."""
    full = [batch.centre.new_full((len(batch.centre),), other) for _ in range(batch.masks.shape[1])]
    for (c, rows), y in zip(batch.rows, outputs, strict=True):
        full[c] = full[c].index_put((rows,), measure(y, batch.labels[rows]))
    return torch.stack(full, 1)


def _step_size(step: int, steps: int, method: Method) -> float:
    """In units of epsilon: the whole way for GA1, equal parts for GA2 and GA3, falling for `search`."""
    if method == "search":
        return max(0.02, 0.5 * (1 - step / steps))
    return 1.0 / steps


def _direction(batch: _Batch, slope: Tensor) -> Tensor:
    """The steepest ascent of unit size, where a unit is the radius in the ball's own norm."""
    if math.isinf(batch.norm):
        return slope.sign() * batch.radius[:, None]
    return steepest(batch.geometry, -slope[:, None])[:, 0]


def _make_batch(tasks: Sequence[Task], networks: int) -> _Batch:
    boxes = [t.inner for t in tasks]
    lower = torch.from_numpy(np.stack([low for low, _ in boxes]))
    upper = torch.from_numpy(np.stack([high for _, high in boxes]))
    centre = torch.from_numpy(np.stack([t.centre for t in tasks]).astype(np.float32))
    masks = torch.zeros((len(tasks), networks), dtype=torch.bool)
    for k, task in enumerate(tasks):
        masks[k, members(task.mask)] = True
    labels = torch.tensor([t.label for t in tasks], dtype=torch.int64)
    norm = tasks[0].norm
    radius = torch.tensor([t.radius for t in tasks], dtype=torch.float32)
    nothing = torch.zeros((len(tasks), 0))
    parts = (torch.arange(len(tasks)), lower, upper, nothing[..., None], nothing, nothing.bool(), nothing)
    geometry = Targets(*parts)
    if not math.isinf(norm):
        geometry = replace(geometry, centre=centre, radius=radius, norm=norm)
    return _Batch(geometry, centre, radius, labels, masks, norm)
