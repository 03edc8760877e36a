"""Margins and gradients at single points: where to cut a box, and which points to replay."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from verifolio.encode.model import Array
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Domain, Problem, dense_rows
from verifolio.run.budget import Budget

# Starts, two for every disjunct, and steps of a descent before the first program: some milliseconds on networks of a
# thousand neurons. More find a few more points that the relaxations then need not find; a choice.
STARTS, MOST_STARTS, STEPS = 16, 64, 24
FIRST_STEP, SHRINK = 0.25, 0.85  # of the box's width; after 24 steps 2 % of it are left
# weight of an input's width where its gradient says nothing, so that it is cut in the end too
WIDTH_SHARE = 0.05


class Probe:
    """Margins and their gradients at a few points of every box, in doubles; nothing here is a proof."""

    def __init__(self, problem: Problem) -> None:
        graph = problem.graph
        self.module = GraphModule(graph, torch.float64)
        rows = [dense_rows(r, graph.input_size, graph.output_size) for r in problem.disjuncts if r.count]
        self.rows = [tuple(torch.tensor(part) for part in parts) for parts in rows]

    def look(self, domains: list[Domain]) -> tuple[list[Array], Array]:
        """Points that may be counterexamples, and per box how much each input moves the margin."""
        lower, upper = (
            torch.as_tensor(np.stack([getattr(d, side) for d in domains])) for side in ("lower", "upper")
        )
        centre = (lower + upper) / 2
        margin, slope = self._slope(centre)
        corner = torch.where(slope > 0, lower, upper)
        deeper, other = self._slope(corner)
        influence = (slope.abs() + other.abs()) * (upper - lower)
        points = torch.cat([centre[margin <= 0], corner[deeper <= 0]])
        # an input without influence at either point may still have some elsewhere
        share = (upper - lower) / (upper - lower).sum(1, keepdim=True).clamp_min(1e-300)
        score = influence / influence.sum(1, keepdim=True).clamp_min(1e-300) + WIDTH_SHARE * share
        return list(points.numpy()), score.numpy()

    def descend(self, domain: Domain, seed: int, budget: Budget) -> list[Array]:
        """Points that may be counterexamples, met while descending the margin from a few starts."""
        lower, upper = torch.tensor(domain.lower), torch.tensor(domain.upper)
        if not bool(torch.isfinite(lower).all() and torch.isfinite(upper).all()):
            return []
        random = torch.Generator().manual_seed(seed)
        count = max(STARTS, min(2 * len(self.rows), MOST_STARTS))
        shares = torch.rand(count, len(lower), generator=random, dtype=torch.float64)
        shares[0] = 0.5
        aim = torch.arange(count) % max(len(self.rows), 1)  # each start descends towards one disjunct
        x, step = lower + shares * (upper - lower), (upper - lower) * FIRST_STEP
        for _ in range(STEPS):
            if budget.expired():
                break
            margin, slope = self._slope(x, aim)
            if bool((margin <= 0).any()):
                return list(x[margin.argsort()[: int((margin <= 0).sum())]].numpy())
            x = torch.minimum(torch.maximum(x - step * slope.sign(), lower), upper)
            step = step * SHRINK
        return []

    def _slope(self, x: Tensor, aim: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The margin, and the gradient of it or of the aimed at disjunct's."""
        x = x.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            y = self.module(x)
            each = [(x @ a.T + y @ b.T - rhs).amax(1) for a, b, rhs in self.rows]
            all_of_them = torch.stack(each) if each else (x.sum(1) * 0 - 1)[None]
            margin = all_of_them.amin(0)
            wanted = margin if aim is None else all_of_them[aim, torch.arange(len(x))]
            (slope,) = torch.autograd.grad(wanted.sum(), x)
        return margin.detach(), slope
