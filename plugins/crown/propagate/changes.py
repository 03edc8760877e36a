"""How an image changes with single variables: each has a window of its own, outside of which it changes nothing.

A variable moves a few pixels of the input, or one neuron, so its window is small at first and grows with every
convolution. `Changes` holds variables whose windows have one size; `corner` says where each of them begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.plugins.crown.propagate.images import Pair, Shape
from verifolio.plugins.crown.propagate.limbs import Limbs, added


@dataclass(frozen=True)
class Changes:
    """Coefficients (limbs, variables, channels, height, width) of the variables from number `first` on.

    They are what the parts add up to: limbs with a `level`, or plain doubles without one.
    """

    first: int
    corner: Tensor
    parts: Tensor
    level: int | None = None

    @property
    def size(self) -> Pair:
        return (int(self.parts.shape[3]), int(self.parts.shape[4]))

    @property
    def value(self) -> Tensor:
        return self.parts[0] if self.level is None else self.limbs.value

    @property
    def limbs(self) -> Limbs:
        return Limbs(self.parts, 0 if self.level is None else self.level)

    def plain(self) -> Changes:
        return Changes(self.first, self.corner, self.value[None])

    def whole(self, shape: Shape) -> Changes:
        """Over the whole image."""
        return self._framed(torch.zeros_like(self.corner), shape[1:])

    def _framed(self, corner: Tensor, size: Pair) -> Changes:
        """Over other windows of one size."""
        return Changes(self.first, corner, framed(self.parts, self.corner - corner, size), self.level)

    def masked(self, mask: Tensor) -> Changes:
        """Nought where the mask (channels, height, width) is."""
        cut = self._cut(mask.to(self.parts.dtype))
        return Changes(self.first, self.corner, self.parts * cut, self.level)

    def _cut(self, image: Tensor) -> Tensor:
        """The windows of an image, noughts outside (variables, channels, height, width)."""
        made = image.new_zeros(len(self.corner), len(image), *self.size)
        for corner in self.corner.unique(dim=0):
            mine = (self.corner == corner).all(1).nonzero()[:, 0]
            made[mine] = framed(image[None, None], -corner[None], self.size)[0]
        return made

    def at(self, neurons: Tensor, shape: Shape) -> Tensor:
        """Coefficients (neurons, variables) of some neurons of the image."""
        _, height, width = shape
        channel = neurons // (height * width)
        y = (neurons // width % height)[:, None] - self.corner[None, :, 0]
        x = (neurons % width)[:, None] - self.corner[None, :, 1]
        inside = (y >= 0) & (y < self.size[0]) & (x >= 0) & (x < self.size[1])
        variable = torch.arange(len(self.corner))[None].expand_as(y)
        channel = channel[:, None].expand_as(y)
        y, x = y.clamp(0, self.size[0] - 1), x.clamp(0, self.size[1] - 1)
        return torch.where(inside, self.value[variable, channel, y, x], 0.0)

    def spread(self, shape: Shape, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What variables between `low` and `high` subtract and add at most, and the sum of the terms' sizes."""
        below, above, size = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))
        value = self.value
        for k, (y, x) in enumerate(self.corner.tolist()):
            top, left = max(y, 0), max(x, 0)
            bottom, right = min(y + self.size[0], shape[1]), min(x + self.size[1], shape[2])
            if top >= bottom or left >= right:
                continue
            part = value[k, :, top - y : bottom - y, left - x : right - x]
            ends = part * low[k], part * high[k]
            at = (slice(None), slice(top, bottom), slice(left, right))
            below[at] += torch.minimum(*ends)
            above[at] += torch.maximum(*ends)
            size[at] += torch.maximum(ends[0].abs(), ends[1].abs())
        return below, above, size

    def seen(
        self,
        shape: Shape,
        kernel: Pair,
        stride: Pair,
        pads: Pair,
        apply: Callable[[Tensor], Tensor | tuple[Tensor, int]],
    ) -> Changes:
        """What an operator with windows makes of them; `apply` computes it without padding.

        `shape` is that of the operator's image. Pixels outside of it are dropped.
        """
        corner, size, start, reads = [], [], [], []
        for k in (0, 1):
            at, length = self.corner[:, k], (self.size[k] + kernel[k] - 2) // stride[k] + 1
            first = -((kernel[k] - 1 - pads[k] - at) // stride[k])  # rounded up
            if length >= shape[k + 1]:
                first, length = torch.zeros_like(first), shape[k + 1]
            corner.append(first)
            size.append(length)
            start.append(first * stride[k] - pads[k])
            reads.append((length - 1) * stride[k] + kernel[k])
        frame = framed(self.parts, self.corner - torch.stack(start, 1), (reads[0], reads[1]))
        made = apply(frame)
        parts, level = made if isinstance(made, tuple) else (made, self.level)
        found = Changes(self.first, torch.stack(corner, 1), parts, level)
        return found.masked(torch.ones(shape, dtype=torch.bool))


def framed(parts: Tensor, offset: Tensor, size: Pair) -> Tensor:
    """Windows that begin at `offset` (variables, 2) of a frame of one size: padded with noughts, or cut."""
    made = parts.new_zeros(*parts.shape[:3], *size)
    for place in offset.unique(dim=0):
        mine = (offset == place).all(1).nonzero()[:, 0]
        (own_y, y), (own_x, x) = (_overlap(int(place[k]), int(parts.shape[3 + k]), size[k]) for k in (0, 1))
        made[:, mine, :, y, x] = parts[:, mine, :, own_y, own_x]
    return made


def _overlap(offset: int, length: int, size: int) -> tuple[slice, slice]:
    """What of so many pixels lies in a frame of `size` in which they begin at `offset`, and where."""
    first, last = max(0, offset), max(0, offset, min(size, offset + length))
    if last <= first or first >= size:
        return slice(0, 0), slice(0, 0)
    return slice(first - offset, last - offset), slice(first, last)


def joined(terms: list[tuple[float, Changes]], most: int) -> tuple[Changes, float]:
    """A sum of changes of the same variables, and a bound on what is cut off a coefficient."""
    if len(terms) == 1 and terms[0][0] == 1.0:
        return terms[0][1], 0.0
    plain = any(c.level is None for _, c in terms)
    parts = [(a, c.plain() if plain else c) for a, c in terms]
    corner = torch.stack([c.corner for _, c in parts]).amin(0)
    ends = torch.stack([c.corner + torch.tensor(c.size) for _, c in parts]).amax(0)
    size = (int((ends - corner)[:, 0].max()), int((ends - corner)[:, 1].max()))
    over = [(a, c._framed(corner, size)) for a, c in parts]
    first = terms[0][1].first
    if plain:
        total = sum((a * c.parts for a, c in over), torch.zeros_like(over[0][1].parts))
        return Changes(first, corner, total), 0.0
    limbs, lost = added([(a, c.limbs) for a, c in over], most)
    return Changes(first, corner, limbs.parts, limbs.level), lost
