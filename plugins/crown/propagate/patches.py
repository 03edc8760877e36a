"""Backward bounds of an image's neurons by windows: a neuron's row is nought outside what the neuron sees.

Rows of this form are the patches of auto_LiRPA (Xu et al. 2020). Neurons at one place share their windows, so places
are a batch: the lines and the noise of a node are cut out of the whole node's, window by window, and everything else
is as in `Program.backward`, with the same charges. Pixels outside the image are zeros of the padding, whose entries
are dropped. Where a window has outgrown its image, or a node is no image, rows go on over whole nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from verifolio.plugins.crown.propagate.images import Shape, Window
from verifolio.plugins.crown.propagate.layers import (
    ConvLayer,
    Layer,
    ScaleLayer,
    SelectLayer,
    SumLayer,
    total,
)
from verifolio.plugins.crown.propagate.program import Program, State, relax_rows
from verifolio.plugins.crown.propagate.region import Region, dot
from verifolio.plugins.crown.propagate.relax import Lines

# What rows over windows must save of rows over whole nodes: cutting out lines and noise costs about as much as this
WORTH = 0.7


@dataclass(frozen=True)
class Patches:
    """Rows (places, rows, channels, height, width) over a window for each of some places."""

    window: Window
    rows: Tensor

    def over(self, window: Window) -> Patches:
        """The same rows over a larger window."""
        if window == self.window:
            return self
        before = [self.window.start[k] - window.start[k] for k in (0, 1)]
        after = [window.size[k] - self.window.size[k] - before[k] for k in (0, 1)]
        return Patches(window, functional.pad(self.rows, (before[1], after[1], before[0], after[0])))


@dataclass
class _Walk:
    """Neurons at some places (`corner`: their pixels) on their way back; sums are (places, rows)."""

    corner: Tensor
    constant: Tensor
    charge: Tensor

    @property
    def count(self) -> int:
        return self.constant.numel()

    def add(self, constant: Tensor | None, charge: Tensor | None) -> None:
        if constant is not None:
            self.constant = self.constant + constant.reshape(self.constant.shape)
        if charge is not None:
            self.charge = self.charge + charge.reshape(self.charge.shape)

    def corners(self, window: Window) -> Tensor:
        """The first pixel of every place's window."""
        stride, start = (self.corner.new_tensor(pair) for pair in (window.stride, window.start))
        return self.corner * stride + start


class PatchBounds:
    """Backward bounds of neurons of one node; the state has a single region."""

    def __init__(self, program: Program, state: State, node: int) -> None:
        self.program, self.state, self.images, self.node = program, state, program.images, node
        self.shape = self.images.shape[node]

    def pays(self) -> bool:
        """Whether the node is an image, and windows are smaller than whole nodes."""
        return self.shape is not None and self.widest() <= WORTH * max(self.program.sizes[: self.node + 1])

    def widest(self) -> int:
        """The most numbers of one row on the way."""
        windows: dict[int, Window | None] = {self.node: Window()}
        widest = 1
        for i in range(self.node, -1, -1):
            if i not in windows:
                continue
            window, shape = windows[i], self.images.shape[i]
            if window is None or shape is None or not self._fits(i, window):
                window = None
            own = self.images.window[i]
            widest = max(widest, self.program.sizes[i] if window is None else _numbers(shape, window))
            before = None if window is None or own is None else window.of(own)
            for p in self.program.parents[i]:
                other = windows.get(p, before)
                windows[p] = None if before is None or other is None else before.join(other)
        return widest

    def pieces(self, neurons: Tensor, elements: int) -> list[Tensor]:
        """Neurons to bound together, (places, count) each: places where about as many are wanted."""
        _, height, width = _image(self.shape)
        widest = self.widest()
        place = neurons % (height * width)
        order = place.argsort(stable=True)
        neurons = neurons[order]
        counts = place[order].unique_consecutive(return_counts=True)[1]
        starts = counts.cumsum(0) - counts
        order = counts.argsort(descending=True, stable=True)
        counts, starts = counts[order], starts[order]
        made, at = [], 0
        while at < len(counts):
            most = int(counts[at])
            part = slice(at, at + max(1, elements // (2 * most * widest)))
            # a place with fewer neurons repeats its last one
            number = torch.minimum(torch.arange(most, device=counts.device)[None], counts[part, None] - 1)
            made.append(neurons[starts[part, None] + number])
            at = part.stop
        return made

    def both_ends(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Lower bounds of neurons (places, count) and of their opposites."""
        channels, height, width = _image(self.shape)
        place = neurons[:, 0] % (height * width)
        corner = torch.stack([place // width, place % width], 1)
        one = functional.one_hot(neurons // (height * width), channels).to(self.program.space.dtype)
        rows = torch.cat([one, -one], 1)[..., None, None]
        nought = rows.new_zeros(rows.shape[:2])
        walk = _Walk(corner, nought, nought)
        bound = self._least(self._backward(Patches(Window(), rows), walk), walk)
        bound = torch.where(bound == torch.inf, torch.full_like(bound, torch.nan), bound)
        return bound[:, : neurons.shape[1]], bound[:, neurons.shape[1] :]

    def _least(self, first: Patches | Tensor | None, walk: _Walk) -> Tensor:
        sums = walk.constant - (walk.charge + self.state.underflow())
        region = self.state.region
        if first is None:
            return sums
        if isinstance(first, Patches) and region.balls is not None:
            first = self._whole(0, first, walk)
        if isinstance(first, Tensor):
            return region.minimise(first, self.program.extra).reshape(sums.shape) + sums
        low, high = (self._cut(0, end, first.window, walk) for end in (region.lower, region.upper))
        return Region(low, high).minimise(first.rows.flatten(2), self.program.extra) + sums

    def _backward(self, start: Patches, walk: _Walk) -> Patches | Tensor | None:
        """Rows over the input; what they pick up and what is charged for rounding goes to the walk."""
        flow: dict[int, Patches | Tensor] = {self.node: start}
        for i in range(self.node, 0, -1):
            current = flow.pop(i, None)
            if current is None:
                continue
            if isinstance(current, Patches) and not self._fits(i, current.window):
                current = self._whole(i, current, walk)
            parts: Sequence[Patches | Tensor]
            if isinstance(current, Patches):
                parts = self._through(i, current, walk)
            else:
                parts = self._through_whole(i, current, walk)
            for k, parent in enumerate(self.program.parents[i]):
                part = parts[k]
                flow[parent] = self._meet(parent, flow[parent], part, walk) if parent in flow else part
        return flow.get(0)

    def _fits(self, node: int, window: Window) -> bool:
        """Whether rows over the window go on as such: it is smaller than the image, and so are those before."""
        shape = self.images.shape[node]
        if shape is None or (node and self.images.window[node] is None):
            return False
        return window.area <= shape[1] * shape[2]

    def _meet(self, node: int, a: Patches | Tensor, b: Patches | Tensor, walk: _Walk) -> Patches | Tensor:
        if isinstance(a, Patches) and isinstance(b, Patches):
            window = a.window.join(b.window)
            if window is not None:
                return Patches(window, a.over(window).rows + b.over(window).rows)
        whole = [self._whole(node, part, walk) if isinstance(part, Patches) else part for part in (a, b)]
        return whole[0] + whole[1]

    def _through_whole(self, node: int, rows: Tensor, walk: _Walk) -> list[Tensor]:
        """As in `Program.backward`."""
        layer, state = self.program.layers[node], self.state
        parts, added = relax_rows(rows, state.lines[node]) if layer is None else layer.backward(rows)
        walk.add(added, dot(rows.abs(), state.noise[node]) if node in self.program.charged else None)
        return list(parts)

    def _through(self, node: int, current: Patches, walk: _Walk) -> list[Patches]:
        """Rows over windows of a node as rows over windows of its parents."""
        own = self.images.window[node]
        if own is None:
            raise TypeError(f"node {node} sees no windows")
        rows, layer, window = current.rows, self.program.layers[node], current.window.of(own)
        flat = rows.flatten(2)
        if node in self.program.charged:
            walk.add(None, dot(flat.abs(), self._cut(node, self.state.noise[node], current.window, walk)))
        if layer is None:
            parts, added = relax_rows(flat, self._lines(node, current.window, walk))
            walk.add(added, None)
            return [Patches(window, part.reshape(rows.shape)) for part in parts]
        if isinstance(layer, SumLayer):
            return [Patches(window, rows if c == 1 else c * rows) for c in layer.coefficients]
        made, added = self._affine(node, layer, current, walk)
        walk.add(added, None)
        (parent,) = self.program.parents[node]
        return [Patches(window, made * self._inside(_image(self.images.shape[parent]), window, walk))]

    def _affine(self, node: int, layer: Layer, current: Patches, walk: _Walk) -> tuple[Tensor, Tensor | None]:
        """Rows through a layer of one parent, and the constant that they pick up."""
        rows, own = current.rows, self.images.window[node] or Window()
        if isinstance(layer, SelectLayer):
            size = Window(size=current.window.size).of(own).size
            made = rows.new_zeros(*rows.shape[:3], *size)
            made[..., :: own.stride[0], :: own.stride[1]] = rows
            return made, None
        if isinstance(layer, ScaleLayer):
            weight, bias = (
                self._cut(node, v[None], current.window, walk) for v in (layer.weight, layer.bias)
            )
            flat = rows.flatten(2)
            picked = dot(flat.double(), bias.double()).to(rows.dtype)
            return (flat * weight[:, None]).reshape(rows.shape), picked
        if not isinstance(layer, ConvLayer):
            raise TypeError(f"{type(layer).__name__} sees no windows")
        made = layer.adjoint(rows.flatten(0, 1))
        added = total(rows.sum((-1, -2), dtype=torch.float64), layer.bias).to(rows.dtype)
        return made.reshape(*rows.shape[:2], *made.shape[1:]), added

    def _lines(self, node: int, window: Window, walk: _Walk) -> Lines:
        lines = self.state.lines[node]
        slopes = [
            tuple(self._cut(node, slope, window, walk) for slope in part)
            for part in (lines.lower_slope, lines.upper_slope)
        ]
        biases = [
            None if bias is None else self._cut(node, bias, window, walk)
            for bias in (lines.lower_bias, lines.upper_bias)
        ]
        return Lines(slopes[0], slopes[1], biases[0], biases[1])

    def _cut(self, node: int, values: Tensor, window: Window, walk: _Walk) -> Tensor:
        return _windows(values, _image(self.images.shape[node]), window, walk)

    def _inside(self, shape: Shape, window: Window, walk: _Walk) -> Tensor:
        """One where a pixel of a window lies inside the image, nought elsewhere (places, 1, 1, height, width)."""
        first = walk.corners(window)
        inside = []
        for k in (0, 1):
            at = first[:, k, None] + torch.arange(window.size[k], device=first.device)
            inside.append((at >= 0) & (at < shape[k + 1]))
        both = inside[0][:, :, None] & inside[1][:, None, :]
        return both[:, None, None].to(self.program.space.dtype)

    def _whole(self, node: int, patches: Patches, walk: _Walk) -> Tensor:
        """Rows (1, all rows, size) over the whole node."""
        _, height, width = _image(self.images.shape[node])
        first = walk.corners(patches.window)
        # one more row and column of zeros stand for all that the window does not see
        padded = functional.pad(patches.rows, (0, 1, 0, 1))
        at = []
        for k, extent in ((0, height), (1, width)):
            place = torch.arange(extent, device=first.device)[None] - first[:, k, None]
            seen = (place >= 0) & (place < patches.window.size[k])
            at.append(torch.where(seen, place, patches.window.size[k]))
        places = torch.arange(len(first), device=first.device)[:, None, None]
        picked = padded[
            places, :, :, at[0][:, :, None], at[1][:, None, :]
        ]  # (places, height, width, rows, channels)
        return picked.permute(0, 3, 4, 1, 2).reshape(1, walk.count, -1)


def _windows(values: Tensor, shape: Shape, window: Window, walk: _Walk) -> Tensor:
    """The windows of values (1, size), noughts outside the image: (places, channels * height * width)."""
    first = walk.corners(window)
    low = first.amin(0).clamp(max=0)
    after = [int((first[:, k].max() + window.size[k] - shape[k + 1]).clamp(min=0)) for k in (0, 1)]
    padded = functional.pad(values.reshape(shape), (-int(low[1]), after[1], -int(low[0]), after[0]))
    views = padded.unfold(1, window.size[0], 1).unfold(2, window.size[1], 1)
    first = first - low
    return views[:, first[:, 0], first[:, 1]].transpose(0, 1).flatten(1)


def _numbers(shape: Shape | None, window: Window) -> int:
    return _image(shape)[0] * window.area


def _image(shape: Shape | None) -> Shape:
    if shape is None:
        raise TypeError("the node is no image")
    return shape
