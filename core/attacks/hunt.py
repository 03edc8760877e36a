"""The state of an attack: which problems are still open, the best points of each target, what was offered."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.attacks.descend import Watch
from verifolio.attacks.project import inside
from verifolio.attacks.targets import Targets
from verifolio.graph import Graph
from verifolio.graph.module import GraphModule
from verifolio.run.budget import Budget

Array = NDArray[np.float64]
Check = Callable[[int, Array], bool]
EAGER = 1e-4  # offered at once when every row holds by this much (in units of its scale)
NEAR = 1e-5  # offered in the end even if float32 says that a row is missed by this much
OFFERS = 6  # shallow points offered per problem at the end of a descent
POOL = 16  # points kept per target
POOL_NUMBERS = 20_000_000  # of all pools together: 80 MB in float32


class Hunt:
    """Open targets of one batch, and a pool (T, K, n) of their best points with worst rows (T, K)."""

    def __init__(
        self, graph: Graph, targets: Targets, count: int, check: Check, budget: Budget, first: bool
    ) -> None:
        self.graph, self.targets, self.check, self.budget = graph, targets, check, budget
        self.module = GraphModule(graph).to(targets.lower.device)
        self.module.requires_grad_(False)
        self._module64: GraphModule | None = None
        self.points: list[Array | None] = [None] * count
        self.open = torch.ones(count, dtype=torch.bool)
        self.depth = [EAGER] * count
        self.first = first
        shape = (len(targets), 0)
        self.pool = targets.lower.new_zeros((*shape, targets.lower.shape[1]))
        self.pool_worst = targets.lower.new_zeros(shape)
        self.replays = 0

    @property
    def done(self) -> bool:
        """Whether to stop: nothing left to find, or out of time."""
        return self.complete or self.budget.expired()

    @property
    def complete(self) -> bool:
        """Whether all problems are closed, or one where one is enough."""
        return not bool(self.open.all()) if self.first else not bool(self.open.any())

    def open_targets(self, best: int = 0) -> Tensor:
        """Positions of targets whose problem is open, most promising first; `best`: so many per problem."""
        index = torch.nonzero(self.open[self.targets.owner.cpu()]).ravel()
        if self.pool_worst.shape[1] == 0:
            return index
        index = index[self.pool_worst[index, 0].cpu().argsort(stable=True)]
        if best == 0:
            return index
        seen: dict[int, int] = {}
        chosen = []
        for at, owner in zip(index.tolist(), self.targets.owner[index].tolist(), strict=True):
            seen[owner] = seen.get(owner, 0) + 1
            if seen[owner] <= best:
                chosen.append(at)
        return torch.tensor(chosen, dtype=torch.int64)

    def offer(self, owner: int, x: Tensor) -> bool:
        """Replay one point; a success closes the problem."""
        self.replays += 1
        point = x.detach().cpu().double().numpy()
        if not self.check(owner, point):
            return False
        self.points[owner], self.open[owner] = point, False
        return True

    def watch(self, index: Tensor) -> Watch:
        """A watcher for a descent over the targets at `index`: offers deep points, says when to stop."""
        part = self.targets.take(index)
        owners = part.owner.cpu()

        def look(x: Tensor, values: Tensor, worst: Tensor) -> bool:
            hit = part.reached(values) & (worst <= -EAGER)
            if bool(hit.any()):
                self._offer_deep(part, x, torch.where(hit, worst, math.inf))
            return self.done or not bool(self.open[owners].any())

        return look

    def _offer_deep(self, part: Targets, x: Tensor, worst: Tensor) -> None:
        """The deepest point of every open problem, unless one nearly as deep was rejected."""
        low, lane = worst.min(1)
        for t in torch.nonzero(low.isfinite()).ravel().tolist():
            owner = int(part.owner[t])
            point = x[t, lane[t]]
            if self.complete:
                return
            if not self.open[owner] or float(low[t]) > -self.depth[owner]:
                continue
            if bool(inside(part.take(torch.tensor([t])), point[None, None])) and self.offer(owner, point):
                continue
            self.depth[owner] = 2 * abs(float(low[t]))

    def settle(self, index: Tensor, x: Tensor, worst: Tensor) -> None:
        """After a descent: keep its best points, and offer those that hold by little or nearly hold."""
        self.keep(index, x, worst)
        part = self.targets.take(index)
        near = torch.nonzero(
            (worst <= NEAR) & inside(part, x) & self.open[part.owner.cpu()].to(x.device)[:, None]
        )
        tried: dict[int, int] = {}
        for t, lane in self._by_depth(part, x, near):
            owner = int(part.owner[t])
            tried[owner] = tried.get(owner, 0) + 1
            if self.open[owner] and tried[owner] <= OFFERS and not self.complete:
                self.offer(owner, x[t, lane])

    @torch.no_grad()
    def _by_depth(self, part: Targets, x: Tensor, at: Tensor) -> list[tuple[int, int]]:
        """Positions (target, lane) ordered by their worst row in float64, where float32 cannot tell."""
        if len(at) == 0:
            return []
        module = self.module64()
        points = x[at[:, 0], at[:, 1]].double()
        values = [module(p) for p in torch.split(points, 64)]
        exact = part.take(at[:, 0]).to(str(x.device), torch.float64)
        worst = exact.values(points[:, None], torch.cat(values)[:, None]).amax(-1)[:, 0]
        return [(int(t), int(lane)) for t, lane in at[worst.argsort(stable=True)].tolist()]

    def module64(self) -> GraphModule:
        """The network in float64, built when first needed."""
        if self._module64 is None:
            self._module64 = GraphModule(self.graph, torch.float64).to(self.targets.lower.device)
            self._module64.requires_grad_(False)
        return self._module64

    def keep(self, index: Tensor, x: Tensor, worst: Tensor) -> None:
        """Merge points (len(index), S, n) into the pool, keeping the best of each target, no duplicates."""
        size = min(POOL, max(1, POOL_NUMBERS // max(1, len(self.targets) * x.shape[-1])))
        if self.pool.shape[1] < size:
            grow = size - self.pool.shape[1]
            self.pool = torch.cat([self.pool, self.targets.lower[:, None].expand(-1, grow, -1)], 1)
            blank = self.pool_worst.new_full((len(self.targets), grow), math.inf)
            self.pool_worst = torch.cat([self.pool_worst, blank], 1)
        worst = torch.nan_to_num(worst, nan=math.inf)
        if worst.shape[1] > 4 * size:
            worst, which = worst.topk(4 * size, dim=1, largest=False)
            x = x.gather(1, which[..., None].expand(-1, -1, x.shape[-1]))
        every = torch.cat([self.pool_worst[index], worst], 1)
        ordered, order = every.sort(dim=1, stable=True)
        repeated = torch.zeros_like(ordered, dtype=torch.bool)
        repeated[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & ordered[:, 1:].isfinite()
        order = order.gather(1, repeated.to(torch.int8).sort(dim=1, stable=True).indices)[:, :size]
        points = torch.cat([self.pool[index], x], 1)
        self.pool[index] = points.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))
        self.pool_worst[index] = every.gather(1, order)
