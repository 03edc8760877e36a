"""Which nodes of a graph are images, and what window of an earlier image a pixel sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Concat, Constant, Conv, Dense, Graph, Op, Scale, Select, Sparse, Sum

MOST_TERMS = 4  # of a sparse sum that may be a convolution; a difference has two
Shape = tuple[int, int, int]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """What a pixel (y, x) sees of an image: `size` pixels from (y, x) * stride + start on, per axis."""

    stride: Pair = (1, 1)
    start: Pair = (0, 0)
    size: Pair = (1, 1)

    def of(self, own: Window) -> Window:
        """What the pixel sees of the image before, where each pixel of this one sees the window `own` of it."""
        stride, start, size = [], [], []
        for k in (0, 1):
            stride.append(self.stride[k] * own.stride[k])
            start.append(self.start[k] * own.stride[k] + own.start[k])
            size.append((self.size[k] - 1) * own.stride[k] + own.size[k])
        return Window((stride[0], stride[1]), (start[0], start[1]), (size[0], size[1]))

    def join(self, other: Window) -> Window | None:
        """The least window that holds both; None where they move at different paces."""
        if self.stride != other.stride:
            return None
        start = (min(self.start[0], other.start[0]), min(self.start[1], other.start[1]))
        ends = [max(w.start[k] + w.size[k] for w in (self, other)) for k in (0, 1)]
        return Window(self.stride, start, (ends[0] - start[0], ends[1] - start[1]))

    @property
    def area(self) -> int:
        return self.size[0] * self.size[1]


class Images:
    """`shape` of every node that is an image, and the window that its pixels see of its parents; None: neither.

    `convolutions`: sparse sums that are the same for every pixel, as the differences of a maximum pool are.
    """

    def __init__(self, graph: Graph) -> None:
        self.convolutions: dict[int, Conv] = {}
        self.shape: list[Shape | None] = [None] * len(graph.nodes)
        self.window: list[Window | None] = [None] * len(graph.nodes)
        first = {n.op.input_shape for n in graph.nodes if isinstance(n.op, Conv) and n.parents == (0,)}
        self.shape[0] = next(iter(first)) if len(first) == 1 else None
        for i, node in enumerate(graph.nodes[1:], start=1):
            shapes = [self.shape[p] for p in node.parents]
            op = _convolution(node.op, shapes[0]) if isinstance(node.op, Sparse) and shapes[0] else None
            if op is not None:
                self.convolutions[i] = op
            self.shape[i], self.window[i] = _look(node.op if op is None else op, shapes)


def _look(op: Op, parents: list[Shape | None]) -> tuple[Shape | None, Window | None]:
    if isinstance(op, Conv):
        return op.output_shape, _conv_window(op) if parents[0] == op.input_shape else None
    known = [p for p in parents if p is not None]
    if isinstance(op, Constant | Concat) or not known or len(known) < len(parents):
        return None, None
    if isinstance(op, Select):
        return _slice_window(op.index, known[0])
    if isinstance(op, Dense | Sparse) or any(p != known[0] for p in known) or math.prod(known[0]) != op.size:
        return None, None
    return known[0], Window() if isinstance(op, Scale | Sum) or len(known) == 1 else None


def _conv_window(op: Conv) -> Window | None:
    if op.transposed:
        return None
    height, width = op.weight.shape[2:]
    size = (op.dilation[0] * (height - 1) + 1, op.dilation[1] * (width - 1) + 1)
    return Window(op.stride, (-op.pads[0], -op.pads[1]), size)


def _convolution(op: Sparse, parent: Shape) -> Conv | None:
    """The sum as a convolution of every channel by itself, if it is one without pads; its numbers are the same."""
    terms = op.weight.nnz // op.size if op.size else 0
    if terms * op.size != op.weight.nnz or op.bias.any():
        return None
    if op.weight_error is not None or op.bias_error is not None:
        return None
    if not 1 <= terms <= MOST_TERMS or bool((np.diff(op.weight.indptr) != terms).any()):
        return None
    data, index = op.weight.data.reshape(-1, terms), op.weight.indices.reshape(-1, terms)
    if bool((data != data[0]).any()):
        return None
    slices = [_slice_window(index[:, k], parent) for k in range(terms)]
    shape, window = slices[0]
    if shape is None or window is None or window.start != (0, 0):
        return None
    at = []
    for other, seen in slices:
        if other != shape or seen is None or seen.stride != window.stride:
            return None
        at.append(seen.start)
    kernel = np.zeros((shape[0], 1, max(a for a, _ in at) + 1, max(b for _, b in at) + 1))
    for (down, across), value in zip(at, data[0], strict=True):
        kernel[:, :, down, across] = value
    fits = [(parent[k + 1] - kernel.shape[k + 2]) // window.stride[k] + 1 == shape[k + 1] for k in (0, 1)]
    if not all(fits) or np.count_nonzero(kernel[0]) != terms:
        return None
    return Conv(op.size, np.zeros(shape[0]), kernel, parent, shape, window.stride, groups=shape[0])


def _slice_window(index: NDArray[Any], parent: Shape) -> tuple[Shape | None, Window | None]:
    """A selection of every s-th row and column of all channels, as maximum pools make them; else nothing."""
    channels, height, width = parent
    if not index.size or index.size % channels or index[0] < 0:
        return None, None
    first = index[: index.size // channels]
    rows, columns = first // width, first % width
    across = int((rows == rows[0]).sum())
    down = len(first) // across
    stride = (
        int(rows[across] - rows[0]) if down > 1 else 1,
        int(columns[1] - columns[0]) if across > 1 else 1,
    )
    start = (int(rows[0]), int(columns[0]))
    down_at, across_at = start[0] + stride[0] * np.arange(down), start[1] + stride[1] * np.arange(across)
    if min(stride) < 1 or down_at[-1] >= height or across_at[-1] >= width:
        return None, None
    pixels = (down_at[:, None] * width + across_at[None]).ravel()
    every = (np.arange(channels)[:, None] * (height * width) + pixels[None]).ravel()
    if not np.array_equal(index, every):
        return None, None
    return (channels, down, across), Window(stride, start)
