"""Products of two variables: the planes of McCormick 1976, blended by the parameter."""

from __future__ import annotations

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.relax.base import Interval, Lines, Relaxation


class ProductRelaxation(Relaxation):
    """Lower planes y_l x + x_l y - x_l y_l and y_u x + x_u y - x_u y_u; upper ones with x's ends swapped.

    Any convex combination of two valid planes is valid; the parameter is its weight.
    """

    def interval(self, *inputs: Interval) -> Interval:
        (xl, xu), (yl, yu) = inputs
        corners = torch.stack(torch.broadcast_tensors(xl * yl, xl * yu, xu * yl, xu * yu))
        limits = torch.finfo(xl.dtype)
        reserve = 4 * limits.eps * corners.abs().amax(0) + limits.tiny
        return corners.amin(0) - reserve, corners.amax(0) + reserve

    def lines(self, parameter: Tensor | None, *inputs: Interval) -> Lines:
        (xl, xu), (yl, yu) = inputs
        if parameter is not None and parameter.dim() == 3:
            xl, xu, yl, yu = (t[:, None] for t in (xl, xu, yl, yu))
        w = 0.5 if parameter is None else parameter
        v = 1 - w
        lower_x, lower_y = w * yl + v * yu, w * xl + v * xu
        upper_x, upper_y = w * yu + v * yl, w * xl + v * xu
        reserve = self._reserve(inputs, parameter)
        lower_bias = -(w * xl * yl + v * xu * yu) - reserve
        upper_bias = -(w * xl * yu + v * xu * yl) + reserve
        return Lines((lower_x, lower_y), (upper_x, upper_y), lower_bias, upper_bias)

    def band(self, slopes: tuple[Tensor, ...], *inputs: Interval) -> Interval:
        """What is left is bilinear: it is least and greatest at corners."""
        left, right = slopes
        corners = torch.stack([x * y - left * x - right * y for x in inputs[0] for y in inputs[1]])
        far, wide = (torch.maximum(low.abs(), high.abs()) for low, high in inputs)
        limits = torch.finfo(far.dtype)
        reserve = 8 * limits.eps * (far * wide + left.abs() * far + right.abs() * wide) + limits.tiny
        return corners.amin(0) - reserve, corners.amax(0) + reserve

    def _reserve(self, inputs: tuple[Interval, ...], parameter: Tensor | None) -> Tensor:
        (xl, xu), (yl, yu) = inputs
        size = torch.maximum(xl.abs(), xu.abs()) * torch.maximum(yl.abs(), yu.abs())
        limits = torch.finfo(xl.dtype)
        reserve = 32 * limits.eps * size + limits.tiny
        return reserve[:, None] if parameter is not None and parameter.dim() == 3 else reserve

    def start(self, *inputs: Interval) -> Tensor:
        return torch.full_like(inputs[0][0] + inputs[1][0], 0.5)

    def loose(self, *inputs: Interval) -> Tensor:
        (xl, xu), (yl, yu) = inputs
        return (xu > xl) & (yu > yl)
