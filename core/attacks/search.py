"""The whole attack on many problems of one network: probes, then rounds of descents and local search."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.attacks.cost import Cost, cost_of
from verifolio.attacks.descend import Mode, Schedule, descend, diversify, outputs
from verifolio.attacks.hunt import Check, Hunt
from verifolio.attacks.polish import polish
from verifolio.attacks.project import project
from verifolio.attacks.sample import corners, draw, evolve
from verifolio.attacks.targets import MAX_INPUT_ENTRIES, Targets, input_entries, make_targets
from verifolio.model.problem import Problem, finite
from verifolio.run.budget import Budget
from verifolio.run.threads import one_thread

Array = NDArray[np.float64]
ROUNDS: tuple[tuple[Mode, float, int], ...] = (  # kind of descent, first step, targets per problem
    ("sign", 0.5, 0),
    ("adam", 1.0, 2),
    ("sign", 0.5, 2),
    ("adam", 0.5, 0),
    ("sign", 0.2, 3),
)
POLISHED = 4  # points per target: each costs up to a dozen linear programs
POLISHED_INPUTS = 1000  # with more the dense linear programs cost more than many descents
# a few samples find what a condition that holds nearly everywhere allows, at the price of one step
SAMPLED_FIRST = 32
FEW = 20  # from here on samples thin out
SAMPLE_PRODUCTS = 2e10  # multiplications spent on samples alone


@dataclass(frozen=True)
class AttackSettings:
    """How hard to try.

    `rounds` of descents with up to `restarts` starts per disjunct and about `steps` steps each; up to
    `samples` random points per problem where inputs are few (`few_inputs`), with local search in between.
    `single` does nothing but one descent of `steps` steps from the middle.
    """

    rounds: int = 12  # a bound; most often the time ends them
    restarts: int = 32  # a bound: starting points double round by round, from eight on
    steps: int = 100  # as Auto-PGD has them (Croce and Hein 2020)
    samples: int = 100_000  # a bound; what a network's size allows is less
    few_inputs: int = 128  # random points and moves of single inputs still come close to a corner; a choice
    diversify_steps: int = (
        8  # outputs are far apart after a few (Tashiro et al. 2020 take two with a larger step)
    )
    single: bool = False


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack on one problem came to.

    `point` passed the check. `nearest` is the best point otherwise, `margin` its distance from success: the
    largest (row - rhs) of its best disjunct, not positive where float32 believed in it.
    """

    point: Array | None = None
    nearest: Array | None = None
    margin: float = math.inf
    replays: int = 0


def unattackable(problem: Problem) -> str | None:
    """Why no attack can work on a problem, or None."""
    if not finite(problem.domain):
        return "an input has no finite bounds"
    if input_entries(problem) > MAX_INPUT_ENTRIES:
        return "its rows over inputs are too many for dense arrays"
    return None


def attack_many(
    problems: Sequence[Problem],
    check: Check,
    budget: Budget | None = None,
    settings: AttackSettings | None = None,
    *,
    seed: int = 0,
    candidates: Sequence[Array] = (),
    first: bool = False,
    device: str = "cpu",
) -> list[Attacked]:
    """Look for a counterexample to every problem at once; problems that share a graph share batches.

    `check(k, x)` decides whether x really is one for problem k (replay it, or judge it in the graph);
    `candidates` are tried first; `first` stops at the first success. The result depends on the seed and on
    how far the budget reaches, on nothing else.
    """
    settings = settings or AttackSettings()
    budget = budget or Budget()
    results = [Attacked() for _ in problems]
    groups: dict[tuple[str, float], list[int]] = defaultdict(list)
    for k, problem in enumerate(problems):
        if problem.disjuncts and not problem.domain.empty and unattackable(problem) is None:
            ball = problem.domain.ball
            norm = 0.0 if ball is None or math.isinf(ball.norm) else ball.norm
            groups[problem.graph.sha256, norm].append(k)
    for members in groups.values():
        part = [problems[k] for k in members]
        hunt = _start(part, members, check, budget, first, device)
        with one_thread():
            _Attack(hunt, settings, cost_of(part[0].graph), seed).run(candidates)
        for k, result in zip(members, _results(hunt), strict=True):
            results[k] = result
        if first and any(r.point is not None for r in results):
            break
    return results


def _start(
    part: list[Problem], members: list[int], check: Check, budget: Budget, first: bool, device: str
) -> Hunt:
    targets = make_targets(part).to(device, torch.float32)

    def ask(k: int, x: Array) -> bool:
        return check(members[k], x)

    return Hunt(part[0].graph, targets, len(part), ask, budget, first)


def _results(hunt: Hunt) -> list[Attacked]:
    """Per problem: the point found, or the best of its targets' pools."""
    results = [Attacked(point=p, replays=hunt.replays) for p in hunt.points]
    if hunt.pool.shape[1] == 0:
        return results
    x = hunt.pool[:, :1]
    with torch.no_grad():
        values = torch.cat([outputs(hunt.module, part) for part in torch.split(x, 64)])
    rows = hunt.targets.values(x, values) * hunt.targets.scale[:, None]
    margins = rows.amax(-1)[:, 0].double().cpu().tolist()
    for t, k in enumerate(hunt.targets.owner.tolist()):
        if margins[t] < results[k].margin:
            nearest = x[t, 0].double().cpu().numpy()
            results[k] = replace(results[k], nearest=nearest, margin=margins[t])
    return results


@dataclass
class _Attack:
    """One run: owns the random numbers and the plan of rounds."""

    hunt: Hunt
    settings: AttackSettings
    cost: Cost
    seed: int
    random: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(self.seed)
        free = (self.hunt.targets.width > 0).sum(-1)
        self.few = bool((free <= self.settings.few_inputs).all())

    def run(self, candidates: Sequence[Array]) -> None:
        self._try_candidates(candidates)
        if self.settings.single:
            self._descend_once()
            return
        if not self.hunt.done:
            self._probe()
        for number in range(self.settings.rounds):
            if self.hunt.done:
                return
            self._descend_all(number)
            self._polish_best()
            if self.few and not self.hunt.done:
                if number == 0:
                    self._sample_all()
                self._evolve_all(number)

    def _chunks(self, lanes: int, best: int = 0) -> Iterator[Tensor]:
        """Open targets in groups of at most `lanes`; a group may have closed by the time it comes up."""
        for group in torch.split(self.hunt.open_targets(best), max(1, lanes)):
            still = self.hunt.open[self.hunt.targets.owner[group].cpu()]
            if self.hunt.done:
                return
            if bool(still.any()):
                yield group[still]

    def _try_candidates(self, candidates: Sequence[Array]) -> None:
        size = self.hunt.targets.lower.shape[1]
        fitting = [c for c in candidates if c.shape == (size,) and np.isfinite(c).all()]
        if fitting:
            points = torch.from_numpy(np.stack(fitting)).to(self.hunt.targets.lower)
            self._evaluate(lambda part: project(part, points.expand(len(part), -1, -1)), len(points))

    def _probe(self) -> None:
        """Middle, corners and samples; the samples' spread makes rows comparable."""
        count = len(self.hunt.targets)
        self._rescale(draw(self.hunt.targets, 32, self.random) if count * 32 <= 4096 else None)
        self._evaluate(corners, corners(self.hunt.targets.take(torch.tensor([0]))).shape[1])
        self._evaluate(lambda part: draw(part, SAMPLED_FIRST, self.random), SAMPLED_FIRST)

    @torch.no_grad()
    def _sample_all(self) -> None:
        """Many random points of each open problem, shared by all its targets."""
        index = self.hunt.open_targets()
        owners = self.hunt.targets.owner[index]
        problems = torch.unique(owners).tolist()
        affordable = min(self.settings.samples, SAMPLE_PRODUCTS / self.cost.products / len(problems))
        for owner in problems:
            group = index[owners == owner]
            part = self.hunt.targets.take(group)
            free = int((part.width[0] > 0).sum())
            left = int(affordable * min(1.0, FEW / max(1, free)))
            watch, size = self.hunt.watch(group), min(self.cost.batch, max(1, 2_000_000 // len(group)))
            while left > 0 and not self.hunt.done and bool(self.hunt.open[owner]):
                x = draw(part.take(torch.tensor([0])), min(left, size), self.random)
                y = outputs(self.hunt.module, x).expand(len(part), -1, -1)
                x = x.expand(len(part), -1, -1)
                values = part.values(x, y)
                watch(x, values, values.amax(-1))
                self.hunt.settle(group, x, values.amax(-1))
                left -= size

    @torch.no_grad()
    def _rescale(self, x: Tensor | None) -> None:
        targets = self.hunt.targets
        if x is None or targets.rhs.shape[1] == 1:
            return
        y = torch.cat(
            [outputs(self.hunt.module, part) for part in torch.split(x, max(1, self.cost.batch // 32))]
        )
        spread = targets.values(x, y).std(dim=1)
        typical = spread.amax(1, keepdim=True).clamp_min(1e-12)
        scale = torch.where(spread > 1e-6 * typical, spread, typical)
        self.hunt.targets = replace(targets, scale=torch.nan_to_num(scale, nan=1.0).clamp_min(1e-12))

    @torch.no_grad()
    def _evaluate(self, points: Callable[[Targets], Tensor], count: int) -> None:
        """Offer and keep the `count` points that `points` makes for each target."""
        for group in self._chunks(max(1, self.cost.batch // count)):
            part = self.hunt.targets.take(group)
            x = points(part)
            y = torch.cat(
                [outputs(self.hunt.module, p) for p in torch.split(x, self.cost.batch, dim=1)], dim=1
            )
            values = part.values(x, y)
            worst = values.amax(-1)
            self.hunt.watch(group)(x, values, worst)
            self.hunt.settle(group, x, worst)

    def _plan(self, number: int) -> tuple[int, int, Schedule]:
        """Targets per problem (0: all), starts per target and the schedule of a round.

        A quick round comes first; then rounds of both kinds, over all targets and over the best few.
        """
        if number == 0:
            return 0, 2, Schedule(max(4, self.settings.steps // 5))
        mode, step, best = ROUNDS[(number - 1) % len(ROUNDS)]
        steps = self.settings.steps * (1 + number // len(ROUNDS))
        starts = min(self.settings.restarts, 4 * 2**number)
        return best, starts * (4 if best else 1), Schedule(steps, mode, step)

    def _descend_all(self, number: int) -> None:
        best, starts, schedule = self._plan(number)
        starts = max(1, min(starts, self.cost.lanes))
        for group in self._chunks(self.cost.lanes // starts, best):
            part = self.hunt.targets.take(group)
            x = self._starts(group, part, starts, number)
            rows = part.rhs.shape[1]
            hinged = (torch.arange(starts) % 2 == 1) & (rows > 1)
            watch = self.hunt.watch(group)
            points, worst = descend(self.hunt.module, part, x, hinged.to(x.device), schedule, watch)
            self.hunt.settle(group, points, worst)

    def _polish_best(self) -> None:
        """Linear programs from the best points of the best targets, where several rows must hold at once."""
        targets = self.hunt.targets
        if (
            targets.rhs.shape[1] == 1
            or targets.centre is not None
            or targets.lower.shape[1] > POLISHED_INPUTS
        ):
            return
        module = self.hunt.module64()
        for group in self._chunks(1, best=2):
            one = targets.take(group).to(str(targets.lower.device), torch.float64)
            starts = self.hunt.pool[group[0], :POLISHED]
            found = [polish(module, one, x.double()) for x in starts if not self.hunt.done]
            if found:
                points = torch.stack([x for x, _ in found])[None].to(targets.lower)
                worst = torch.tensor([[w for _, w in found]], device=points.device, dtype=points.dtype)
                self.hunt.settle(group, points, worst)

    def _descend_once(self) -> None:
        for group in self._chunks(self.cost.lanes):
            part = self.hunt.targets.take(group)
            x = corners(part)[:, :1]
            hinged = torch.zeros(1, dtype=torch.bool, device=x.device)
            schedule = Schedule(self.settings.steps, "sign", 0.5)
            self.hunt.settle(
                group, *descend(self.hunt.module, part, x, hinged, schedule, self.hunt.watch(group))
            )

    def _starts(self, group: Tensor, part: Targets, count: int, number: int) -> Tensor:
        """The best known points first, then random ones, half of them moved apart in output."""
        known = self.hunt.pool[group, : max(1, count // 2)]
        fresh = draw(part, count, self.random)[:, : count - known.shape[1]]
        half = fresh.shape[1] // 2
        if number > 0 and half and not self.hunt.done:
            steps = self.settings.diversify_steps
            apart = diversify(self.hunt.module, part, fresh[:, :half], steps, self.random)
            fresh = torch.cat([apart, fresh[:, half:]], dim=1)
        return torch.cat([known, fresh], dim=1)

    def _evolve_all(self, number: int) -> None:
        """Local search from the pool, with about as much work as the descents of the round."""
        brood = 8
        lanes = max(1, min(16, self.cost.batch // brood))
        generations = int(min(200 * (1 + number), max(10, 1e10 / self.cost.products / (lanes * brood))))
        for group in self._chunks(max(1, self.cost.batch // (lanes * brood))):
            part = self.hunt.targets.take(group)
            known = self.hunt.pool[group, : max(1, lanes // 2)]
            x = torch.cat([known, draw(part, lanes, self.random)[:, : lanes - known.shape[1]]], dim=1)
            watch = self.hunt.watch(group)
            best, worst = evolve(self.hunt.module, part, x, generations, brood, self.random, watch)
            self.hunt.settle(group, best, worst)
