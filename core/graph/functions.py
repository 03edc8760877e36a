"""The smooth elementwise functions a graph may apply, with what evaluation and relaxation need to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TensorMap = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Function:
    """A differentiable scalar function.

    `ulps` bounds the error of the library's evaluation in units of the last place of the result;
    `domain` is the open interval on which the function is defined.
    """

    name: str
    value: TensorMap
    derivative: TensorMap
    domain: tuple[float, float] = (-torch.inf, torch.inf)
    ulps: float = 4.0  # what mathematical libraries state for most functions, and a margin


def _logistic_slope(x: Tensor, _: float) -> Tensor:
    """s (1 - s) without the difference, which would be zero for large x."""
    return torch.sigmoid(x) * torch.sigmoid(-x)


_ALL = (
    Function("sigmoid", lambda x, p: torch.sigmoid(x), _logistic_slope),
    Function("tanh", lambda x, p: torch.tanh(x), lambda x, p: 4 * _logistic_slope(2 * x, p)),
    Function("exp", lambda x, p: torch.exp(x), lambda x, p: torch.exp(x)),
    Function("log", lambda x, p: torch.log(x), lambda x, p: 1 / x, domain=(0.0, torch.inf)),
    Function("sqrt", lambda x, p: torch.sqrt(x), lambda x, p: 0.5 / torch.sqrt(x), domain=(0.0, torch.inf)),
    Function("reciprocal", lambda x, p: 1 / x, lambda x, p: -1 / (x * x), domain=(0.0, torch.inf)),
    Function("pow", lambda x, p: x**p, lambda x, p: p * x ** (p - 1)),
    Function("sin", lambda x, p: torch.sin(x), lambda x, p: torch.cos(x)),
    Function("cos", lambda x, p: torch.cos(x), lambda x, p: -torch.sin(x)),
    Function("erf", lambda x, p: torch.erf(x), lambda x, p: 2 / torch.pi**0.5 * torch.exp(-x * x)),
    # torch's own softplus returns x above 20, which is 2e-9 off; this form is accurate everywhere
    Function("softplus", lambda x, p: torch.logaddexp(x, torch.zeros_like(x)), lambda x, p: torch.sigmoid(x)),
)

FUNCTIONS: dict[str, Function] = {f.name: f for f in _ALL}
