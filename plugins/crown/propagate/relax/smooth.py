"""Smooth elementwise functions: for any slope k the best intercept is exact, because f'(x) = k can be solved.

A line k x + b with b = min over [l, u] of f(x) - k x lies below f, whatever k is. The minimum is attained at an
end or where f'(x) = k, and those points have a closed form for every function in `verifolio.graph.functions`.
The slope is therefore free: by default the one whose line is best in the middle of the interval (a concave
problem in k), and a parameter under optimisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from verifolio.graph.functions import FUNCTIONS
from verifolio.plugins.crown.propagate.relax.base import Interval, Lines, Relaxation

RESERVE = 2.0**-46  # relative to |f| + |k x| + 1: covers the evaluation of f, k x and the critical point
# golden section leaves 1e-5 of the range of slopes; every slope is sound, so that is close enough
SEARCH_STEPS = 24
# chords that stand for an envelope's slopes; too few miss slopes worth trying where a function bends twice within an
# interval, more cost evaluations of the function at every node
GRID = 16
FAR = 2.0**22  # beyond it multiples of 2 pi are rounded by more than the reserve allows
Critical = Callable[[Tensor, float, Tensor, Tensor], list[Tensor]]


def _sigmoid(k: Tensor, p: float, low: Tensor, high: Tensor) -> list[Tensor]:
    small = 2 * k / (1 + torch.sqrt(1 - 4 * k))  # the smaller root of s (1 - s) = k, without cancellation
    x = torch.log(small) - torch.log1p(-small)
    return [x, -x]


def _tanh(k: Tensor, p: float, low: Tensor, high: Tensor) -> list[Tensor]:
    root = torch.sqrt(1 - k)
    x = torch.log((1 + root) / torch.sqrt(k))  # atanh(root), accurate where root is close to 1
    return [x, -x]


def _erf(k: Tensor, p: float, low: Tensor, high: Tensor) -> list[Tensor]:
    x = torch.sqrt(-torch.log(k * (math.sqrt(math.pi) / 2)))
    return [x, -x]


def _pow(k: Tensor, p: float, low: Tensor, high: Tensor) -> list[Tensor]:
    if p == 1:
        return []
    size = (k / p).abs() ** (1 / (p - 1))
    return [size, -size]


def _periodic(base: Callable[[Tensor], list[Tensor]]) -> Critical:
    """All solutions in [low, high] of a function with period 2 pi, as long as there are at most four periods."""

    def critical(k: Tensor, p: float, low: Tensor, high: Tensor) -> list[Tensor]:
        first = torch.floor(low / (2 * math.pi)) - 1
        return [x + 2 * math.pi * (first + n) for x in base(k.clamp(-1, 1)) for n in range(7)]

    return critical


_CRITICAL: dict[str, Critical] = {
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "pow": _pow,
    "exp": lambda k, p, low, high: [torch.log(k)],
    "log": lambda k, p, low, high: [1 / k],
    "sqrt": lambda k, p, low, high: [1 / (4 * k * k)],
    "reciprocal": lambda k, p, low, high: [torch.sqrt(-1 / k), -torch.sqrt(-1 / k)],
    "softplus": lambda k, p, low, high: [torch.log(k) - torch.log1p(-k)],
    "sin": _periodic(lambda k: [torch.acos(k), -torch.acos(k)]),
    "cos": _periodic(lambda k: [-torch.asin(k), math.pi + torch.asin(k)]),
}
_PERIODIC = ("sin", "cos")


class SmoothRelaxation(Relaxation):
    """Two parameters per neuron (lower line, upper line), laid side by side along the last axis."""

    def __init__(self, function: str, exponent: float) -> None:
        self.function, self.exponent = FUNCTIONS[function], exponent
        self.critical = _CRITICAL[function]

    def interval(self, *inputs: Interval) -> Interval:
        low, high = (t.double() for t in inputs[0])
        zero = torch.zeros_like(low)
        bounds = self._intercept(zero, low, high, -1), self._intercept(zero, low, high, 1)
        return self._outward(bounds[0], inputs[0][0].dtype, -1), self._outward(
            bounds[1], inputs[0][0].dtype, 1
        )

    def lines(self, parameter: Tensor | None, *inputs: Interval) -> Lines:
        low, high = (t.double() for t in inputs[0])
        if parameter is None:
            slopes = torch.cat([self._best_slope(low, high, side) for side in (-1, 1)], dim=-1)
        else:
            if parameter.dim() == 3:
                low, high = low[:, None], high[:, None]
            least, most = self.range((low, high))
            slopes = least + parameter.double() * (most - least)
        return self.lines_of(slopes, *inputs)

    def lines_of(self, value: Tensor, *inputs: Interval) -> Lines:
        dtype = inputs[0][0].dtype
        low, high = (t.double() for t in inputs[0])
        if value.dim() == 3:
            low, high = low[:, None], high[:, None]
        below, above = value.to(dtype).chunk(2, dim=-1)
        lower = self._outward(self._intercept(below.double(), low, high, -1), dtype, -1)
        upper = self._outward(self._intercept(above.double(), low, high, 1), dtype, 1)
        return Lines((below,), (above,), lower, upper)

    def parallel(self, *inputs: Interval) -> Lines:
        """The slope of the chord on both sides: the best one where the function bends one way; any is sound."""
        low, high = (t.double() for t in inputs[0])
        first, last = (self.function.value(x, self.exponent) for x in (low, high))
        slope = ((last - first) / (high - low)).nan_to_num(0.0, 0.0, 0.0)
        return self.lines_of(torch.cat([slope, slope], dim=-1), *inputs)

    def band(self, slopes: tuple[Tensor, ...], *inputs: Interval) -> Interval:
        """Both intercepts of one slope are exact."""
        low, high = (t.double() for t in inputs[0])
        below, above = (self._intercept(slopes[0].double(), low, high, side) for side in (-1, 1))
        dtype = inputs[0][0].dtype
        return self._outward(below, dtype, -1), self._outward(above, dtype, 1)

    def range(self, *inputs: Interval) -> Interval:
        """The least and the greatest slopes, of lower and of upper lines side by side."""
        below, above = self._slopes(*(t.double() for t in inputs[0]))
        return torch.cat([below[0], above[0]], dim=-1), torch.cat([below[1], above[1]], dim=-1)

    def start(self, *inputs: Interval) -> Tensor:
        low, high = (t.double() for t in inputs[0])
        best = torch.cat([self._best_slope(low, high, side) for side in (-1, 1)], dim=-1)
        least, most = self.range((low, high))
        return ((best - least) / (most - least).clamp(min=1e-30)).clamp(0, 1).to(inputs[0][0].dtype)

    def loose(self, *inputs: Interval) -> Tensor:
        lower, upper = inputs[0]
        return upper > lower

    @torch.no_grad()
    def _slopes(self, low: Tensor, high: Tensor) -> tuple[Interval, Interval]:
        """The slopes worth trying below and above: those of the convex and of the concave envelope.

        Any other line lies outside of one of these on the whole interval. An envelope's slopes run from the one at
        the lower end to the one at the upper end, which are extremal among the chords from there; a grid of them
        will do, because every slope is sound.
        """
        steps = torch.arange(1, GRID, dtype=low.dtype, device=low.device).reshape(-1, *[1] * low.dim())
        inner, width = low + (high - low) * (steps / GRID), (high - low).clamp(min=1e-30)
        first, last, values = (self.function.value(x, self.exponent) for x in (low, high, inner))
        ahead = (values - first) / (inner - low).clamp(min=1e-30)
        back = (last - values) / (high - inner).clamp(min=1e-30)
        chord = (last - first) / width
        left = torch.stack([*ahead, chord, self.function.derivative(low, self.exponent)])
        right = torch.stack([*back, chord, self.function.derivative(high, self.exponent)])
        left, right = (t.nan_to_num(0.0, 1e6, -1e6).clamp(-1e6, 1e6) for t in (left, right))
        return (left.amin(0), right.amax(0)), (right.amin(0), left.amax(0))

    @torch.no_grad()
    def _best_slope(self, low: Tensor, high: Tensor, side: int) -> Tensor:
        """The slope whose line is closest to f in the middle: golden-section search of a concave function."""
        left, right = self._slopes(low, high)[(side + 1) // 2]
        middle = (low + high) / 2
        ratio = (math.sqrt(5) - 1) / 2
        for _ in range(SEARCH_STEPS):
            a, b = right - ratio * (right - left), left + ratio * (right - left)
            value_a = -side * (a * middle + self._intercept(a, low, high, side))
            value_b = -side * (b * middle + self._intercept(b, low, high, side))
            keep_left = ~(value_b > value_a)
            left, right = torch.where(keep_left, left, a), torch.where(keep_left, b, right)
        return (left + right) / 2

    def _intercept(self, slope: Tensor, low: Tensor, high: Tensor, side: int) -> Tensor:
        """min (side -1) or max (side +1) of f(x) - slope x over the interval, rounded outward.

        By the envelope theorem the derivative with respect to the slope is -x at the extremal point, which is
        what autograd sees because the point itself is treated as constant.
        """
        k = slope.detach()
        points = torch.stack([low.expand_as(k), high.expand_as(k), *self._inside(k, low, high)])
        gaps = self.function.value(points, self.exponent) - k * points
        best = (
            gaps.nan_to_num(nan=-math.inf).max(0) if side > 0 else gaps.nan_to_num(nan=math.inf).min(0)
        ).indices
        x = points.gather(0, best[None])[0]
        value = self.function.value(x, self.exponent)
        size = torch.maximum(low.abs(), high.abs())
        reserve = RESERVE * (value.abs() + k.abs() * size + 1)
        exact = value - slope * x + side * reserve
        anything = torch.full_like(exact, side * math.inf)
        if self.function.name in _PERIODIC:  # |f| <= 1, wherever it is
            anything = side * (1 + k.abs() * size + reserve)
        return torch.where(self._defined(low, high), exact, anything)

    def _inside(self, k: Tensor, low: Tensor, high: Tensor) -> list[Tensor]:
        """Critical points clipped into the interval; those that do not exist are replaced by the lower end."""
        points = self.critical(k, self.exponent, low, high)
        return [torch.where(x.isnan(), low.expand_as(x), x).clamp(min=low, max=high) for x in points]

    def _defined(self, low: Tensor, high: Tensor) -> Tensor:
        """Whether the lines can be trusted: inside the function's domain, and not too many periods."""
        if self.function.name in _PERIODIC:
            return (high - low < 8 * math.pi) & (torch.maximum(low.abs(), high.abs()) < FAR)
        if self.function.name == "reciprocal" or (self.function.name == "pow" and self.exponent < 0):
            return (low > 0) | (high < 0)
        if self.function.name == "log":
            return low > 0
        if self.function.name == "sqrt" or self.exponent != round(self.exponent):
            return low >= 0
        return torch.ones_like(low, dtype=torch.bool)

    @staticmethod
    def _outward(value: Tensor, dtype: torch.dtype, side: int) -> Tensor:
        """Cast with the rounding error of the cast added on the safe side; what is too large stays finite there."""
        if dtype == torch.float64:
            return value
        cast = (value + side * value.detach().abs() * torch.finfo(dtype).eps).to(dtype)
        return torch.where(cast == -side * math.inf, -side * torch.finfo(dtype).max, cast)
