"""Input sets, and points of them: random ones, corners, and the worst that descent finds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Ball, Domain, dense_rows
from verifolio.vnnlib import Rows, make_rows

Array = NDArray[np.float64]
STARTS, STEPS = 12, 25  # descents per row; the tightest bounds are met within a few steps
# from the attained point to the centre: the first that lies in the set in exact arithmetic
PULLS = (1.0, 1 - 2.0**-40, 1 - 2.0**-20, 1 - 2.0**-10, 0.5, 0.0)
BISECTIONS = 12  # of a segment: to a thousandth of its length


def random_set(
    rng: np.random.Generator, size: int, radius: float, norm: float = 0.0, cuts: int = 0, single: bool = True
) -> Domain:
    """A box of about that radius, perhaps flat in some inputs, inside a ball, cut by rows.

    `norm` 0 is no ball; `single`: the bounds are float32 numbers.
    """
    centre = rng.normal(size=size)
    reach = radius * rng.uniform(0.3, 1.0, size) * (rng.random(size) < 0.85)
    if single:
        centre, reach = float32_numbers(centre), float32_numbers(reach)
    lower, upper = centre - reach, centre + reach
    if single:
        lower, upper = float32_numbers(lower), float32_numbers(upper)
    middle = np.clip(centre, lower, upper)
    rows = [_cut(rng, middle, radius) for _ in range(cuts)]
    ball = Ball(middle, float(radius * rng.uniform(0.5, 2.0)), norm) if norm else None
    return Domain(lower, upper, make_rows(rows) if rows else None, ball)


def float32_numbers(values: Array) -> Array:
    """The nearest float32 numbers, as doubles."""
    return values.astype(np.float32).astype(np.float64)


def _cut(rng: np.random.Generator, middle: Array, radius: float) -> tuple[dict[int, float], float]:
    normal = np.round(rng.normal(size=len(middle)) * 16) / 16
    return {k: float(v) for k, v in enumerate(normal)}, float(normal @ middle) + radius * 0.25


def inside(domain: Domain, x: Array) -> bool:
    """Whether a double point lies in the set, in exact arithmetic."""
    if bool((x < domain.lower).any() or (x > domain.upper).any()):
        return False
    point = [Fraction(float(v)) for v in x]
    for row in () if domain.rows is None else domain.rows.linear_rows():
        if sum((c * point[k] for k, c in row.terms), Fraction(0)) > row.rhs:
            return False
    if domain.ball is None:
        return True
    apart = [abs(p - Fraction(float(c))) for p, c in zip(point, domain.ball.centre, strict=True)]
    radius = Fraction(domain.ball.radius)
    if domain.ball.norm == 2:
        return sum(a * a for a in apart) <= radius * radius
    return (sum(apart) if domain.ball.norm == 1 else max(apart)) <= radius


def middle(domain: Domain) -> Array:
    """A point that random sets contain: the ball's centre, or that of the box."""
    centre = (domain.lower + domain.upper) / 2 if domain.ball is None else domain.ball.centre
    return np.clip(centre, domain.lower, domain.upper)


def certainly_inside(domain: Domain, x: Array, single: bool = False) -> Array | None:
    """x, or the nearest point towards the middle that is exactly inside; `single` makes it float32."""
    start = middle(domain)
    for pull in PULLS:
        moved = np.clip(start + pull * (x - start), domain.lower, domain.upper)
        moved = float32_numbers(moved) if single else moved
        if inside(domain, moved):
            return moved
    return None


def worst_points(graph: Graph, domain: Domain, rows: Sequence[Rows], rng: np.random.Generator) -> Array:
    """For every row of every disjunct, the point with the least value found: (rows, inputs), about inside."""
    module = GraphModule(graph, torch.float64)
    parts = [dense_rows(r, graph.input_size, graph.output_size) for r in rows]
    over_x, over_y = (torch.from_numpy(np.concatenate([p[k] for p in parts])) for k in (0, 1))
    count, size = len(over_x), graph.input_size
    x = torch.from_numpy(_starts(domain, rng, count))
    low, high = torch.from_numpy(domain.lower), torch.from_numpy(domain.upper)
    centre = torch.from_numpy(middle(domain))
    best, least = x[:, 0].clone(), torch.full((count,), torch.inf, dtype=torch.float64)
    for step in range(STEPS):
        x = x.detach().requires_grad_(True)
        y = module(x.reshape(-1, size)).reshape(count, STARTS, -1)
        value = (y * over_y[:, None]).sum(-1) + (x * over_x[:, None]).sum(-1)
        found, at = torch.nan_to_num(value.detach(), nan=torch.inf).min(1)
        better = found < least
        least = torch.where(better, found, least)
        best = torch.where(better[:, None], x.detach()[torch.arange(count), at], best)
        (slope,) = torch.autograd.grad(value.sum(), x)
        length = (high - low) * (0.5 * (1 - step / STEPS) + 1e-3)
        moved = torch.minimum(torch.maximum(x.detach() - slope.sign() * length, low), high)
        x = _pulled(domain, centre, torch.nan_to_num(moved))
    return np.asarray(best.numpy())


def _starts(domain: Domain, rng: np.random.Generator, count: int) -> Array:
    """Random points, corners of the box, and the middle; pulled into the set."""
    shape = (count, STARTS, domain.size)
    points = rng.uniform(domain.lower, domain.upper, shape)
    corners = np.where(rng.random(shape) < 0.5, domain.lower, domain.upper)
    points[:, ::2] = corners[:, ::2]
    points[:, 0] = middle(domain)
    centre = torch.from_numpy(middle(domain))
    return np.asarray(_pulled(domain, centre, torch.from_numpy(points)).numpy())


def _pulled(domain: Domain, centre: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Points outside the ball or the rows move towards the middle until they are inside."""
    if domain.is_box:
        return x
    ray = x - centre
    low, high = torch.zeros_like(ray[..., :1]), torch.ones_like(ray[..., :1])
    good = _about_inside(domain, x)
    for _ in range(BISECTIONS):
        half = (low + high) / 2
        ok = _about_inside(domain, centre + half * ray)
        low, high = torch.where(ok, half, low), torch.where(ok, high, half)
    return torch.where(good, x, centre + low * ray)


def _about_inside(domain: Domain, x: torch.Tensor) -> torch.Tensor:
    ok = torch.ones_like(x[..., :1], dtype=torch.bool)
    if domain.rows is not None and domain.rows.count:
        a, _, rhs = dense_rows(domain.rows, domain.size, 0)
        ok &= (x @ torch.tensor(a).T <= torch.tensor(rhs)).all(-1, keepdim=True)  # copies: rows are read-only
    if domain.ball is not None:
        apart = x - torch.tensor(domain.ball.centre)
        ok &= torch.linalg.vector_norm(apart, domain.ball.norm, -1, keepdim=True) <= domain.ball.radius
    return ok
