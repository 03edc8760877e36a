"""Searching without gradients: samples, corners, and local search by mutation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from verifolio.attacks.descend import AIM, Watch, outputs
from verifolio.attacks.project import project
from verifolio.attacks.targets import Targets

ALL_CORNERS = 12  # so many free coordinates: every corner is tried


def draw(targets: Targets, count: int, generator: torch.Generator) -> Tensor:
    """Random points (T, count, n) of the domains: uniform ones, corners, and mixtures of both."""
    shape = (len(targets), count, targets.lower.shape[1])
    position = torch.rand(shape, generator=generator)
    corner = (torch.rand(shape, generator=generator) < 0.5).to(position)
    # how much of a point is corner: a third of the points not at all, a third wholly
    share = (torch.rand((*shape[:2], 1), generator=generator) * 3 - 1).clamp(0, 1)
    position = torch.where(torch.rand(shape, generator=generator) < share, corner, position)
    position = position.to(targets.lower)
    return project(targets, targets.lower[:, None] + targets.width[:, None] * position)


def corners(targets: Targets) -> Tensor:
    """The middle, the two extreme corners and, with few free coordinates, every corner: (T, K, n)."""
    low, high = targets.lower[:, None], targets.upper[:, None]
    middle = low + (high - low) / 2 if targets.centre is None else targets.centre[:, None]
    points = [middle, low, high]
    free = torch.nonzero((targets.width > 0).any(0)).ravel()
    if 0 < len(free) <= ALL_CORNERS:
        codes = torch.arange(2 ** len(free), device=low.device)
        bits = (codes[:, None] >> torch.arange(len(free), device=low.device)) & 1
        choice = torch.zeros((len(codes), low.shape[-1]), dtype=torch.bool, device=low.device)
        choice[:, free] = bits.bool()
        points.append(torch.where(choice, high, low))
    return project(targets, torch.cat(points, dim=1))


def mutate(targets: Targets, x: Tensor, generator: torch.Generator) -> Tensor:
    """Each point changed in one, a few or all coordinates, by a little or completely."""
    lanes = (*x.shape[:2], 1)
    count = targets.width.gt(0).sum(-1).clamp_min(1).cpu()[:, None, None]
    share = torch.maximum(torch.rand(lanes, generator=generator) ** 4, 1.0 / count)
    chosen = torch.rand(x.shape, generator=generator) < share
    size = 10 ** (-5 * torch.rand(lanes, generator=generator))
    small = size * torch.randn(x.shape, generator=generator)
    fresh = draw(targets, x.shape[1], generator)
    jump = torch.rand(lanes, generator=generator) < 0.4
    moved = torch.where(jump.to(x.device), fresh, x + small.to(x) * targets.width[:, None])
    return project(targets, torch.where(chosen.to(x.device), moved, x))


@torch.no_grad()
def evolve(
    module: nn.Module,
    targets: Targets,
    x: Tensor,
    generations: int,
    brood: int,
    generator: torch.Generator,
    watch: Watch,
) -> tuple[Tensor, Tensor]:
    """Local search: every lane keeps the best of `brood` mutations unless all are worse; ties move on.

    Every second lane also counts the sum of violations, which tells points apart where the worst row is flat.
    """
    extra = (torch.arange(x.shape[1], device=x.device) % 2).to(x) * 0.1
    parents, values = x, targets.values(x, outputs(module, x))
    fitness = values.amax(-1) + extra * (values + AIM).clamp_min(0).sum(-1)
    for _ in range(generations):
        children = mutate(targets, parents.repeat_interleave(brood, dim=1), generator)
        values = targets.values(children, outputs(module, children))
        worst = values.amax(-1)
        if watch(children, values, worst):
            break
        score = worst + extra.repeat_interleave(brood) * (values + AIM).clamp_min(0).sum(-1)
        score = score.reshape(*parents.shape[:2], brood)
        low, which = score.min(-1)
        chosen = children.reshape(*parents.shape[:2], brood, -1)
        chosen = chosen.gather(2, which[..., None, None].expand(-1, -1, 1, chosen.shape[-1]))[:, :, 0]
        better = low <= fitness
        parents = torch.where(better[..., None], chosen, parents)
        fitness = torch.where(better, low, fitness)
    return parents, targets.values(parents, outputs(module, parents)).amax(-1)
