"""Projections onto boxes and balls, and the steepest steps inside them."""

from __future__ import annotations

import torch
from torch import Tensor

from verifolio.attacks.targets import Targets

# alternating projections come closer geometrically; what is outside after eight is scaled into the ball
ROUNDS = 8
INSIDE = 1 - 1e-6  # so that float32 rounding leaves a point inside its ball
SPARSE = 0.1  # of the inputs move in one step of an L1 attack (sparse descent, Tramer and Boneh 2019)


def project(targets: Targets, x: Tensor) -> Tensor:
    """The points (T, S, n) moved into the box and, nearly orthogonally, into the ball."""
    low, high = targets.lower[:, None], targets.upper[:, None]
    if targets.centre is None or targets.radius is None:
        return torch.minimum(torch.maximum(x, low), high)
    centre, radius = targets.centre[:, None], targets.radius[:, None]
    for _ in range(ROUNDS):  # alternating projections reach the intersection of two convex sets
        shift = x - centre
        outside = _norm(shift, targets.norm) > radius
        shrunk = _shrink_l1(shift, radius) if targets.norm == 1 else _shrink_l2(shift, radius)
        x = torch.where(outside[..., None], centre + INSIDE * shrunk, x)
        x = torch.minimum(torch.maximum(x, low), high)
        if not bool((_norm(x - centre, targets.norm) > radius).any()):
            return x
    # what is still outside goes straight towards the centre (inside both sets if the box holds it)
    shift = x - centre
    factor = (INSIDE * radius / _norm(shift, targets.norm).clamp_min(1e-30)).clamp(max=1.0)
    return torch.minimum(torch.maximum(centre + shift * factor[..., None], low), high)


def inside(targets: Targets, x: Tensor) -> Tensor:
    """Whether the points (T, S, n) of a box lie in the ball too, (T, S)."""
    if targets.centre is None or targets.radius is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    distance = _norm((x - targets.centre[:, None]).double(), targets.norm)
    return distance <= targets.radius[:, None].double() * (1 + 1e-7)


def _norm(shift: Tensor, norm: float) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(shift, ord=norm, dim=-1)
    return length


def _shrink_l2(shift: Tensor, radius: Tensor) -> Tensor:
    length = _norm(shift, 2.0).clamp_min(1e-30)
    return shift * (radius / length).clamp(max=1.0)[..., None]


def _shrink_l1(shift: Tensor, radius: Tensor) -> Tensor:
    """Soft thresholding at the level that makes the sum of absolute values the radius (Duchi et al. 2008)."""
    size = shift.abs()
    ordered = size.sort(dim=-1, descending=True).values
    rank = torch.arange(1, size.shape[-1] + 1, device=shift.device, dtype=shift.dtype)
    level = (ordered.cumsum(-1) - radius[..., None]) / rank
    count = (ordered > level).sum(-1, keepdim=True).clamp_min(1)
    theta = level.gather(-1, count - 1).clamp_min(0)
    return shift.sign() * (size - theta).clamp_min(0)


def steepest(targets: Targets, slope: Tensor) -> Tensor:
    """The direction of unit size along which the objective falls fastest, to be added to x.

    The unit is the box's width per coordinate, or the ball's radius in its own norm.
    """
    if targets.centre is None or targets.radius is None:
        return -targets.width[:, None] * slope.sign()
    radius = torch.minimum(targets.radius, _norm(targets.width, targets.norm))[:, None, None]
    slope = slope * (targets.width[:, None] > 0)
    if targets.norm == 1:
        keep = max(1, int(SPARSE * slope.shape[-1]))
        least = slope.abs().topk(keep, dim=-1).values[..., -1:]
        slope = slope.sign() * (slope.abs() >= least)
        return -radius * slope / slope.abs().sum(-1, keepdim=True).clamp_min(1e-30)
    return -radius * slope / _norm(slope, 2.0).clamp_min(1e-30)[..., None]
