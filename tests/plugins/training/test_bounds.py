"""Differentiable bounds hold on sampled points, are exact where nothing is relaxed, and have gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from verifolio import current_plugins
from verifolio.encode.torch_export import Normalise
from verifolio.errors import InputError


def dense() -> tuple[nn.Sequential, tuple[int, ...]]:
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 4)), (6,)


def conv() -> tuple[nn.Sequential, tuple[int, ...]]:
    body = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 2, dilation=2))
    norm = Normalise((0.5, 0.4), (0.3, 0.2))
    return nn.Sequential(norm, body, nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)), (2, 8, 8)


def boxes(shape: tuple[int, ...], radius: float) -> tuple[Tensor, Tensor]:
    centre = torch.rand(5, *shape)
    return centre - radius, centre + radius


@pytest.mark.parametrize("make", [dense, conv])
@pytest.mark.parametrize("name", ["interval", "crown"])
def test_bounds_hold(make: Callable[[], tuple[nn.Sequential, tuple[int, ...]]], name: str) -> None:
    torch.manual_seed(1)
    module, shape = make()
    bounder = current_plugins().all_bounders()[name]
    assert bounder.differentiable
    lower, upper = boxes(shape, 0.1)
    rows = torch.randn(5, 3, 4)
    bound = bounder.margins(module, lower, upper, rows)
    for _ in range(200):
        x = lower + torch.rand_like(lower) * (upper - lower)
        x = torch.where(torch.rand_like(x) < 0.5, torch.where(torch.rand_like(x) < 0.5, lower, upper), x)
        values = (rows @ module(x)[:, :, None])[:, :, 0]
        assert bool((values >= bound - 1e-5).all())
    parameter = next(p for p in module.parameters())
    (slope,) = torch.autograd.grad(bound.sum(), parameter)
    assert float(slope.abs().sum()) > 0


def test_crown_is_exact_without_relaxation() -> None:
    torch.manual_seed(2)
    module, shape = conv()
    lower, upper = boxes(shape, 0.0)
    rows = torch.randn(5, 3, 4)
    values = (rows @ module(lower)[:, :, None])[:, :, 0]
    for name in ("interval", "crown"):
        bound = current_plugins().all_bounders()[name].margins(module, lower, upper, rows)
        torch.testing.assert_close(bound, values, rtol=1e-4, atol=1e-4)


def test_crown_is_tighter_on_average() -> None:
    torch.manual_seed(3)
    module, shape = dense()
    lower, upper = boxes(shape, 0.2)
    rows = torch.randn(5, 3, 4)
    bounders = current_plugins().all_bounders()
    loose, tight = (bounders[n].margins(module, lower, upper, rows).mean() for n in ("interval", "crown"))
    assert tight > loose


def test_unknown_layers_are_named() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Softplus(), nn.Linear(4, 2))
    with pytest.raises(InputError, match="GELU, Softplus"):
        current_plugins().all_bounders()["crown"].margins(
            module, torch.zeros(1, 4), torch.ones(1, 4), torch.ones(1, 1, 2)
        )
