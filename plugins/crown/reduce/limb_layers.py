"""Convolutions and dense layers of numbers of many digits (`propagate.limbs`), and of what changes by windows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from verifolio.graph import Conv, Dense, Op
from verifolio.graph.module import convolve
from verifolio.plugins.crown.propagate.changes import Changes
from verifolio.plugins.crown.propagate.limbs import Limbs, level_of, mapped, normal, products, split
from verifolio.plugins.crown.worker_threads import WorkerThreads

DENSE_LIMBS = 5  # of the weights of dense layers, whose sums are long
BLOCK = 144  # products that are added up in one go where coefficients are doubles: shorter sums have smaller errors
LIMB_SUM = 16  # roundings of adding up the limbs of a number, with room for a few more
ELEMENTS = 1 << 25  # numbers of a matrix that a convolution is made of: 256 MB
ROWS = 512  # of a dense layer whose limbs are held at a time


@dataclass(frozen=True)
class Convolution:
    """A convolution of limbs. `steps`: it adds and subtracts pixels of one channel, see `differences`."""

    op: Conv
    weight: Tensor
    limbs: Limbs
    steps: list[tuple[float, int, int]] | None
    terms: int
    cores: int = 1

    @property
    def additions(self) -> int:
        """Roundings on the way of any product, where sums are made in blocks."""
        if self.op.groups > 1:
            return self.terms + LIMB_SUM
        channels, kernel = self.weight.shape[1], int(np.prod(self.weight.shape[2:]))
        return min(channels, self.step) * kernel + -(-channels // self.step) + LIMB_SUM

    @property
    def step(self) -> int:
        """The channels of a block."""
        return max(1, BLOCK // int(np.prod(self.weight.shape[2:])))

    def on_base(self, base: Limbs, most: int) -> tuple[Limbs, float]:
        op, (top, left) = self.op, self.op.pads[:2]
        image = base.parts.reshape(len(base.parts), 1, *op.input_shape)
        padded = Limbs(functional.pad(image, (left, left, top, top)), base.level)
        made, lost = self._exactly(padded, most)
        height, width = op.output_shape[1:]
        return Limbs(made.parts[..., :height, :width].reshape(len(made.parts), -1), made.level), lost

    def on_changes(self, changes: Changes, most: int) -> tuple[Changes, float]:
        kernel = (self.op.weight.shape[2], self.op.weight.shape[3])
        seen = partial(changes.seen, self.op.output_shape, kernel, self.op.stride, self.op.pads[:2])
        if self.steps is not None and changes.level is None:
            return seen(lambda frame: self._stepped(frame)), 0.0
        if changes.level is None:
            return seen(lambda frame: self._blocked(frame[0])[None]), 0.0
        lost, level = [0.0], changes.level

        def exactly(frame: Tensor) -> tuple[Tensor, int]:
            made, lost[0] = self._exactly(Limbs(frame, level), most)
            return made.parts, made.level

        return seen(exactly), lost[0]

    def _exactly(self, x: Limbs, most: int) -> tuple[Limbs, float]:
        """(limbs, images, channels, height, width), padded already."""
        if self.steps is not None:
            return normal(list(self._stepped(x.parts)), x.level, most)
        return mapped(self.limbs, x, self._apply, self.terms, most)

    def _apply(self, weight: Tensor, parts: Tensor) -> Tensor:
        made = self._in_chunks(parts.flatten(0, 1), weight)
        return made.reshape(*parts.shape[:2], *made.shape[1:])

    def _in_chunks(self, images: Tensor, weight: Tensor) -> Tensor:
        count = max(1, ELEMENTS // (int(np.prod(images.shape[2:])) * weight[0].numel()))
        parts = list(enumerate(images.split(max(1, min(count, -(-len(images) // self.cores))))))
        made: dict[int, Tensor] = {}

        def work(piece: tuple[int, Tensor]) -> bool:
            with torch.no_grad():  # every thread has its own setting
                at, part = piece
                made[at] = functional.conv2d(part, weight, None, self.op.stride, groups=self.op.groups)
            return False

        WorkerThreads(min(self.cores, len(parts)), lambda: parts.pop() if parts else None, work).run()
        return torch.cat([made[at] for at in sorted(made)])

    def _stepped(self, frame: Tensor) -> Tensor:
        """Whole multiples of shifted pixels: exact in limbs; in doubles one rounding per step."""
        down, across = self.op.stride
        kernel = self.op.weight.shape[2:]
        height, width = ((frame.shape[3 + k] - kernel[k]) // self.op.stride[k] + 1 for k in (0, 1))
        total = torch.zeros_like(frame[..., :height, :width])
        for value, y, x in self.steps or []:
            total = total + value * frame[..., y::down, x::across][..., :height, :width]
        return total

    def _blocked(self, images: Tensor) -> Tensor:
        """In doubles, channels in blocks."""
        if self.op.groups > 1:
            return self._in_chunks(images, self.weight)
        total = None
        for start in range(0, images.shape[1], self.step):
            block = slice(start, start + self.step)
            part = self._in_chunks(images[:, block], self.weight[:, block])
            total = part if total is None else total.add_(part)
        if total is None:
            raise ValueError("a convolution reads no channel")
        return total


def differences(op: Op) -> list[tuple[float, int, int]] | None:
    """The whole coefficients and offsets by which pixels are added up, the same for all channels; None: others."""
    if not isinstance(op, Conv) or op.weight.shape[1] != 1 or op.groups != op.weight.shape[0]:
        return None
    one = op.weight[0, 0]
    whole = np.array_equal(one, np.round(one)) and np.abs(one).max(initial=0) <= 4  # a choice
    if not whole or op.weight_error is not None or bool((op.weight != one).any()):
        return None
    return [(float(one[y, x]), int(y), int(x)) for y, x in np.argwhere(one)]


def per_pixel(op: Conv, channels: np.ndarray) -> Tensor:
    return torch.as_tensor(np.repeat(channels, op.output_shape[1] * op.output_shape[2]))


def over_windows(op: Conv, weight: Tensor, values: Tensor) -> Tensor:
    return convolve(op, values[None], weight, None)[0]


def bias_errors(op: Conv | Dense) -> Tensor:
    if op.bias_error is None:
        return torch.zeros(op.size, dtype=torch.float64)
    return per_pixel(op, op.bias_error) if isinstance(op, Conv) else torch.as_tensor(op.bias_error)


def dense_base(op: Dense, base: Limbs, most: int) -> tuple[Limbs, float]:
    """The base of a dense layer, some rows of weights after the other."""
    top = max(
        (float(np.abs(op.weight[k : k + ROWS]).max(initial=0.0)) for k in range(0, op.size, ROWS)),
        default=0.0,
    )
    level, inputs = level_of(top), len(base.parts[0])
    made: list[list[Tensor]] = []
    lost = 0.0
    for start in range(0, op.size, ROWS):
        weight, left = split(torch.as_tensor(op.weight[start : start + ROWS]), DENSE_LIMBS, level)
        sums, missed = products(weight, base, lambda w, x: x @ w.T, inputs, most)
        made.append(sums)
        lost = max(lost, missed + 1.01 * left * inputs * sum(base.largest()))
    height = max(map(len, made))
    whole = [torch.cat([s[k] if k < len(s) else torch.zeros_like(s[0]) for s in made]) for k in range(height)]
    limbs, cut = normal(whole, level + base.level, most)
    return limbs, lost + cut
