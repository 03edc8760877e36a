"""Values that a graph attains on a set, as small as a short search finds them: no lower bound may exceed them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from verifolio.graph import Graph
from verifolio.graph.enclosure import enclose
from verifolio.graph.module import GraphModule
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain
from verifolio.testing.reference.sets import shrunk_box
from verifolio.testing.trial import sample

STEPS, STARTS = 12, 6  # of descent: points near the minimum are enough, as the bound must hold at all of them


def attained(
    graph: Graph, domain: Domain, outputs: Array, inputs: Array | None = None, seed: int = 0
) -> Array:
    """Per row an upper bound of outputs . y + inputs . x at some point of the set, rounding included."""
    inputs = np.zeros((len(outputs), graph.input_size)) if inputs is None else inputs
    points, module = sample(domain, 60, seed), GraphModule(graph, torch.float64)
    starts = np.argsort(_values(module, points) @ outputs.T + points @ inputs.T, axis=0)[:STARTS].T
    ends = descend(module, domain, outputs, inputs, points[starts])
    found = []
    for on_output, on_input, first, tried in zip(outputs, inputs, points[starts], ends, strict=True):
        legal = np.concatenate([first, tried[[_inside(domain, p) for p in tried]]])
        best = legal[(_values(module, legal) @ on_output + legal @ on_input).argmin()]
        found.append(_exactly(graph, best, on_output, on_input))
    return np.array(found)


def descend(module: GraphModule, domain: Domain, outputs: Array, inputs: Array, starts: Array) -> Array:
    """Projected steps along the signs of the gradient, ever shorter, from starts (rows, points, inputs)."""
    low, high = (torch.as_tensor(end) for end in shrunk_box(domain))
    on_outputs, on_inputs = (torch.as_tensor(part)[:, None] for part in (outputs, inputs))
    x = torch.as_tensor(starts)
    for k in range(STEPS):
        x = x.clone().requires_grad_()
        y = module(x.flatten(0, 1)).view(*x.shape[:2], -1)
        value = (y * on_outputs).sum() + (x * on_inputs).sum()
        (gradient,) = torch.autograd.grad(value, x)
        with torch.no_grad():
            x = _project(domain, x - 0.5 * 0.7**k * (high - low) * gradient.sign(), low, high)
    found: Array = np.clip(x.detach().numpy(), domain.lower, domain.upper)
    return found


def _project(domain: Domain, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    x = torch.minimum(torch.maximum(x, low), high)
    ball = domain.ball
    if ball is None:
        return x
    centre = torch.as_tensor(ball.centre)
    distance = torch.linalg.vector_norm(x - centre, ord=ball.norm, dim=-1, keepdim=True)
    shrunk: Tensor = (x - centre) * (ball.radius * (1 - 1e-9) / distance.clamp(min=1e-300)).clamp(max=1)
    return centre + shrunk


def _values(module: GraphModule, points: Array) -> Array:
    with torch.no_grad():
        return np.asarray(module(torch.as_tensor(points)).numpy())


def _inside(domain: Domain, point: Array) -> bool:
    boxed = bool((point >= domain.lower).all() and (point <= domain.upper).all())
    return boxed and (domain.ball is None or domain.ball.distance(point) <= domain.ball.radius)


def _exactly(graph: Graph, point: Array, on_output: Array, on_input: Array) -> float:
    """An upper bound of the row's exact value at a point."""
    value, radius = enclose(graph, point)
    size = np.abs(on_output) @ np.abs(value) + np.abs(on_input) @ np.abs(point)
    rounding = 2 * (len(value) + len(point) + 8) * 2.0**-53 * size
    return float(on_output @ value + on_input @ point + np.abs(on_output) @ radius + rounding)
