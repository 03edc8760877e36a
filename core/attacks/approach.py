"""Closest counterexamples in the maximum norm by gradient: points descend in balls that shrink with success.

Fast minimum-norm attack (Pintor et al. 2021): every lane has a ball of its own. A lane that holds a counterexample
shrinks its ball below it, a lane that holds none grows it again, by ever smaller steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.attacks.cost import cost_of
from verifolio.attacks.descend import gradient, outputs
from verifolio.attacks.targets import Targets, make_targets
from verifolio.graph.module import GraphModule
from verifolio.plugin.batch import Spot
from verifolio.run.budget import Budget

Array = NDArray[np.float64]
Offer = Callable[[int, Array], bool]
ROUNDS = 8  # of descents; each starts from what the last one found, and later ones gain little
IDLE = 1  # rounds without a gain
HALVINGS = 10  # of the way to the centre: a thousandth of it, far below any tolerance that is asked for
KEPT = 4  # disjuncts of one input that later rounds look at
SPREAD = 1.0  # doublings of the first radii
SLOWEST = 2e-3  # change of a ball's radius at the end of a round


@dataclass(frozen=True)
class Round:
    """Lanes per disjunct, steps, first step and first change of radius, and how far behind the best may be."""

    lanes: int
    steps: int
    step: float
    change: float
    behind: float


# Eight lanes keep several corners of a small network apart, and 60 steps settle nearly all of them. The first two
# rounds may change the radius by a tenth per step; later ones start close, move half as far, and look at fewer
# disjuncts.
FIRST = Round(8, 60, 1.0, 0.1, math.inf)
SECOND = Round(8, 60, 1.0, 0.1, 1.5)  # others than the best disjunct: half as far again, at most
LATER = Round(8, 60, 1.0, 0.05, 1.3)  # a choice between the best disjunct alone and all of the second round


def approach(spots: Sequence[Spot], offer: Offer, gain: float, budget: Budget, device: str = "cpu") -> None:
    """Look around every spot at once; `offer(k, x)` replays a point. All problems share one graph.

    A spot is left when a round gained less than `gain`. Nothing but the spots decides what is found, unless
    the budget ends first.
    """
    search = _Approach(spots, offer, device)
    idle = [0] * len(spots)
    for number in range(ROUNDS):
        before = list(search.best)
        search.round((FIRST, SECOND)[number] if number < 2 else LATER, budget)
        for k, old in enumerate(before):
            idle[k] = 0 if old - search.best[k] >= gain or math.isinf(old) else idle[k] + 1
        search.leave([k for k, n in enumerate(idle) if n >= IDLE])
        if budget.expired() or not len(search.targets):
            return


class _Approach:
    """The lanes' starts and the best distance of every spot."""

    def __init__(self, spots: Sequence[Spot], offer: Offer, device: str) -> None:
        self.spots, self.offer = spots, offer
        graph = spots[0].problem.graph
        self.module = GraphModule(graph, torch.float32).to(device)
        self.module.requires_grad_(False)
        self.lanes = cost_of(graph).lanes
        self.targets = make_targets([s.problem for s in spots]).to(device, torch.float32)
        self.centre = self._stack([s.centre for s in spots])
        self.size = 1 / self._stack([s.scale for s in spots])
        self.best = [s.reach if s.start is None else math.inf for s in spots]
        self.random = [torch.Generator().manual_seed(s.seed) for s in spots]
        self.top = self.centre[self.targets.owner][:, None]  # (T, K, n): where lanes start from
        for k, spot in enumerate(spots):
            if spot.start is not None:
                self._keep(k, torch.from_numpy(spot.start.copy()).to(self.centre))

    def _stack(self, parts: Sequence[Array]) -> Tensor:
        lower = self.targets.lower
        return torch.from_numpy(np.stack(parts)).to(lower)

    def _keep(self, k: int, point: Tensor) -> None:
        """A spot's known counterexample is where all its lanes start."""
        self.top[self.targets.owner == k] = point
        self.best[k] = float(((point - self.centre[k]) / self.size[k]).abs().max())

    def leave(self, spots: Sequence[int]) -> None:
        """Go on without these."""
        gone = torch.tensor([int(o) in spots for o in self.targets.owner], dtype=torch.bool)
        kept = (~gone).nonzero()[:, 0].to(self.targets.owner.device)
        self.targets, self.top = self.targets.take(kept), self.top[kept]

    def round(self, how: Round, budget: Budget) -> None:
        """One descent of all lanes; the best point of every spot is replayed."""
        x, radius = self._starts(how)
        parts = []
        for index in torch.arange(len(self.targets)).split(max(1, self.lanes // how.lanes)):
            if budget.expired():
                return
            place = index.to(x.device)
            lane = _Lanes(self.module, self.targets.take(place), self.centre, self.size)
            parts.append(lane.pull(*lane.descend(x[place], radius[place], how)))
        distance, points = (torch.cat(t) for t in zip(*parts, strict=True))
        self._replay(distance, points)
        self._choose(distance, points, LATER.behind if how is not FIRST else SECOND.behind)

    def _starts(self, how: Round) -> tuple[Tensor, Tensor]:
        """The best points, more and more mixed with noise from lane to lane, and the first radii."""
        owner = self.targets.owner.tolist()
        reach = torch.tensor([_first(self.best[k], self.spots[k], how) for k in owner])
        base = self.top[:, torch.arange(how.lanes) % self.top.shape[1]]
        shape = (how.lanes, base.shape[-1])
        noise = torch.stack([torch.rand(shape, generator=self.random[k]) for k in owner]) * 2 - 1
        mixed = torch.stack([torch.rand(shape, generator=self.random[k]) for k in owner])
        share = torch.linspace(0, 1, how.lanes)[None, :, None]
        around = self.centre[self.targets.owner][:, None]
        size = self.size[self.targets.owner][:, None] * reach.to(base)[:, None, None]
        x = torch.where((mixed < share).to(base.device), around + noise.to(base) * size, base)
        x = torch.minimum(torch.maximum(x, self.targets.lower[:, None]), self.targets.upper[:, None])
        spread = SPREAD if how is FIRST else 0.0  # nothing is known of the scale yet
        order = torch.arange(how.lanes) * 3 % how.lanes  # neither noise nor its absence goes with small balls
        factors = torch.exp2(torch.linspace(-spread, spread, how.lanes)[order]).to(base)
        return x, reach.to(base)[:, None] * factors

    def _replay(self, distance: Tensor, points: Tensor) -> None:
        """Offer the closest point of every spot, and the next ones if it is refused."""
        owner = self.targets.owner
        for k in set(owner.tolist()):
            mine = (owner == k).nonzero()[:, 0]
            flat, near = points[mine].flatten(0, 1), distance[mine].flatten()
            for j in near.argsort()[:KEPT].tolist():
                if not float(near[j]) < self.best[k]:
                    break
                if self.offer(k, flat[j].double().cpu().numpy()):
                    self.best[k] = float(near[j])
                    break

    def _choose(self, distance: Tensor, points: Tensor, behind: float) -> None:
        """Keep each spot's most promising disjuncts, and their closest points as the next starts."""
        nearest = distance.amin(1)
        kept: list[int] = []
        for k in dict.fromkeys(self.targets.owner.tolist()):
            mine = (self.targets.owner == k).nonzero()[:, 0]
            ranked = mine[nearest[mine].argsort()][:KEPT].tolist()
            limit = behind * float(nearest[mine].min())
            kept += sorted(t for t in ranked if float(nearest[t]) <= limit)
        index = torch.tensor(kept, dtype=torch.int64, device=distance.device)
        order = distance[index].argsort(1)[:, :KEPT]
        self.top = points[index].gather(1, order[..., None].expand(-1, -1, points.shape[-1]))
        self.targets = self.targets.take(index)


def _first(best: float, spot: Spot, how: Round) -> float:
    """The radius lanes begin with: just below the best point, or a guess."""
    if best < spot.reach or spot.start is not None:
        return min(best, spot.reach) * (1 - SLOWEST)
    return (spot.guess or spot.reach / 10) if how is FIRST else spot.reach / 2


class _Lanes:
    """Lanes (T, S) of some targets; distances are in the units of the data."""

    def __init__(self, module: GraphModule, targets: Targets, centre: Tensor, size: Tensor) -> None:
        self.module, self.targets = module, targets
        self.centre, self.size = centre[targets.owner][:, None], size[targets.owner][:, None]
        self.low, self.high = targets.lower[:, None], targets.upper[:, None]

    def descend(self, x: Tensor, radius: Tensor, how: Round) -> tuple[Tensor, Tensor]:
        """The distance (T, S) of the closest counterexample of every lane (infinite: none), and the points."""
        best, best_x = torch.full_like(radius, math.inf), x
        drift = torch.zeros_like(x)
        for k in range(how.steps):
            fade = 0.5 * (1 + math.cos(math.pi * k / how.steps))
            change = SLOWEST + (how.change - SLOWEST) * fade
            value, slope = self._slope(x)
            distance = self.distance(x)
            hit = value <= 0
            better = hit & (distance < best)
            best = torch.where(better, distance, best)
            best_x = torch.where(better[..., None], x, best_x)
            inward = torch.minimum(radius, distance) * (1 - change)
            radius = torch.where(hit, inward, torch.minimum(radius * (1 + change), best * (1 - SLOWEST)))
            typical = slope.abs().mean(-1, keepdim=True).clamp_min(1e-30)
            drift = 0.75 * drift + 0.25 * slope / typical
            reach = radius[..., None] * self.size
            x = x - (0.02 + (how.step - 0.02) * fade) * reach * drift.sign()
            x = torch.minimum(torch.maximum(x, self.centre - reach), self.centre + reach)
            x = torch.minimum(torch.maximum(x, self.low), self.high)
        return best, best_x

    def _slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_(True)
        value = self.targets.values(x, outputs(self.module, x)).amax(-1)
        return value.detach(), gradient(value.sum(), x) * self.size

    def distance(self, x: Tensor) -> Tensor:
        return ((x - self.centre) / self.size).abs().amax(-1)

    @torch.no_grad()
    def pull(self, best: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Every lane's point moved along its line to the centre, as long as it stays a counterexample."""
        low, high = torch.zeros_like(best), torch.ones_like(best)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            point = self.centre + middle[..., None] * (x - self.centre)
            hit = self.targets.values(point, outputs(self.module, point)).amax(-1) <= 0
            high, low = torch.where(hit, middle, high), torch.where(hit, low, middle)
        x = self.centre + high[..., None] * (x - self.centre)
        return torch.where(best.isfinite(), self.distance(x), best), x
