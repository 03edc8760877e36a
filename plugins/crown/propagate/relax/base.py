"""What a relaxation offers: output intervals, and lines that enclose the function for any parameter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

Interval = tuple[Tensor, Tensor]


def tighter(a: Interval, b: Interval) -> Interval:
    """The intersection; NaN never wins, and rounding may not turn an interval inside out."""
    low, high = torch.fmax(a[0], b[0]), torch.fmin(a[1], b[1])
    return torch.minimum(low, high), torch.maximum(low, high)


@dataclass(frozen=True)
class Lines:
    """sum_k lower_slope[k] x_k + lower_bias <= f(x) <= sum_k upper_slope[k] x_k + upper_bias on the interval.

    Tensors are (batch, size), or (batch, rows, size) where every row has its own parameters. A bias of None
    is zero.
    """

    lower_slope: tuple[Tensor, ...]
    upper_slope: tuple[Tensor, ...]
    lower_bias: Tensor | None
    upper_bias: Tensor | None


class Relaxation(ABC):
    """The lines hold rigorously: whatever is rounded while computing them is added to the biases.

    `homogeneous`: no bias exceeds its slope times the inputs' magnitude, so that the rounding charged where the
    inputs come from covers it; other biases are charged by themselves.
    """

    homogeneous: ClassVar[bool] = False

    @abstractmethod
    def interval(self, *inputs: Interval) -> Interval:
        """Bounds of the function's value on the inputs' intervals."""

    @abstractmethod
    def lines(self, parameter: Tensor | None, *inputs: Interval) -> Lines:
        """Enclosing lines. The parameter lies in [0, 1]; every value gives valid lines, None the default."""

    @abstractmethod
    def start(self, *inputs: Interval) -> Tensor:
        """The parameter that corresponds to the default lines, where optimisation starts."""

    def range(self, *inputs: Interval) -> Interval | None:
        """What a parameter of 0 and of 1 stand for, if that depends on the interval (slopes of a smooth function)."""
        return None

    def lines_of(self, value: Tensor, *inputs: Interval) -> Lines:
        """Enclosing lines by what the parameter stands for: any value is valid on any interval."""
        return self.lines(value.clamp(0, 1), *inputs)

    def parallel(self, *inputs: Interval) -> Lines:
        """Enclosing lines for a zonotope, whose slopes should be the same below and above; by default any lines."""
        return self.lines(None, *inputs)

    def band(self, slopes: tuple[Tensor, ...], *inputs: Interval) -> Interval:
        """What sum_k slopes[k] x_k leaves of the function on the interval at least, and at most."""
        raise TypeError(f"{type(self).__name__} has no band")

    @abstractmethod
    def loose(self, *inputs: Interval) -> Tensor:
        """A mask of the neurons on which the lines leave a gap (unstable ones, for ReLU)."""
