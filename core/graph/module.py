"""A Graph as a torch module: batched, differentiable, on any device and in any floating type."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.graph.functions import FUNCTIONS
from verifolio.graph.graph import Graph
from verifolio.graph.ops import (
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Input,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Step,
    Sum,
    Whole,
)
from verifolio.graph.steps import RULES, StraightThrough, Table, surrogate


class Layer(nn.Module):
    """One operator on tensors of shape (batch, size)."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def tensor(self, name: str, value: Any) -> None:
        self.register_buffer(name, torch.as_tensor(np.ascontiguousarray(value)), persistent=False)


class DenseLayer(Layer):
    weight: Tensor
    bias: Tensor

    def __init__(self, op: Dense) -> None:
        super().__init__(op)
        self.tensor("weight", op.weight)
        self.tensor("bias", op.bias)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class SparseLayer(Layer):
    """A sparse product as gather, multiply and add, which every device and type supports.

    Rows of equal length (pools, reductions, contractions) are added along an axis, others by index.
    """

    column: Tensor
    row: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, op: Sparse) -> None:
        super().__init__(op)
        counts = np.diff(op.weight.indptr)
        self.length = int(counts[0]) if len(counts) and bool((counts == counts[0]).all()) else 0
        self.tensor("column", op.weight.indices.astype(np.int64))
        self.tensor("row", np.repeat(np.arange(op.size), counts))
        self.tensor("weight", op.weight.data)
        self.tensor("bias", op.bias)

    def forward(self, x: Tensor) -> Tensor:
        terms = x.index_select(1, self.column) * self.weight
        if self.length:
            return terms.view(x.shape[0], -1, self.length).sum(2) + self.bias
        return self.bias.repeat(x.shape[0], 1).index_add(1, self.row, terms)


class ConvLayer(Layer):
    weight: Tensor
    bias: Tensor

    def __init__(self, op: Conv) -> None:
        super().__init__(op)
        self.tensor("weight", op.weight)
        self.tensor("bias", op.bias)

    def forward(self, x: Tensor) -> Tensor:
        return convolve(self.op, x, self.weight, self.bias)


def convolve(op: Conv, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply a convolution operator to (batch, flat) values with the given weight and bias."""
    image = x.reshape(-1, *op.input_shape)
    top, left, bottom, right = op.pads
    if op.transposed:
        full = functional.conv_transpose2d(
            image, weight, bias, op.stride, groups=op.groups, dilation=op.dilation
        )
        _, height, width = op.output_shape
        # what the stride leaves over at the far edge (output padding) holds the bias alone
        short = (top + height - full.shape[2], left + width - full.shape[3])
        if max(short) > 0:
            full = _extend(full, short, bias)
        return full[:, :, top : top + height, left : left + width].reshape(x.shape[0], -1)
    if (top, left) == (bottom, right):
        out = functional.conv2d(image, weight, bias, op.stride, (top, left), op.dilation, op.groups)
    else:
        image = functional.pad(image, (left, right, top, bottom))
        out = functional.conv2d(image, weight, bias, op.stride, 0, op.dilation, op.groups)
    return out.reshape(x.shape[0], -1)


def _extend(full: Tensor, short: tuple[int, int], bias: Tensor | None) -> Tensor:
    grown = functional.pad(full, (0, max(short[1], 0), 0, max(short[0], 0)))
    if bias is None:
        return grown
    edge = torch.ones_like(grown)
    edge[:, :, : full.shape[2], : full.shape[3]] = 0
    return grown + edge * bias[:, None, None]


def convolve_adjoint(op: Conv, y: Tensor, weight: Tensor) -> Tensor:
    """The transpose of the linear part: (batch, outputs) to (batch, inputs), never a dense matrix."""
    image = y.reshape(-1, *op.output_shape)
    top, left, bottom, right = op.pads
    _, height, width = op.input_shape
    if op.transposed:
        image = functional.pad(image, (left, right, top, bottom))
        grid = functional.conv2d(image, weight, None, op.stride, 0, op.dilation, op.groups)
        return grid[:, :, :height, :width].reshape(y.shape[0], -1)
    grid = functional.conv_transpose2d(image, weight, None, op.stride, groups=op.groups, dilation=op.dilation)
    # input rows that no window reaches (the stride did not divide) get zero
    missing_h, missing_w = top + height - grid.shape[2], left + width - grid.shape[3]
    grid = functional.pad(grid, (0, max(missing_w, 0), 0, max(missing_h, 0)))
    return grid[:, :, top : top + height, left : left + width].reshape(y.shape[0], -1)


class ScaleLayer(Layer):
    weight: Tensor
    bias: Tensor

    def __init__(self, op: Scale) -> None:
        super().__init__(op)
        self.tensor("weight", op.weight)
        self.tensor("bias", op.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class SelectLayer(Layer):
    index: Tensor
    hole: Tensor

    def __init__(self, op: Select) -> None:
        super().__init__(op)
        self.tensor("index", np.maximum(op.index, 0))
        self.tensor("hole", op.index < 0)
        self.holes = bool((op.index < 0).any())

    def forward(self, x: Tensor) -> Tensor:
        picked = x.index_select(1, self.index)
        return picked.masked_fill(self.hole, 0.0) if self.holes else picked


class SumLayer(Layer):
    def forward(self, *terms: Tensor) -> Tensor:
        parts = [t if c == 1 else t * c for c, t in zip(self.op.coefficients, terms, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


class ConcatLayer(Layer):
    def forward(self, *terms: Tensor) -> Tensor:
        batch = max(len(t) for t in terms)  # constants have a batch of one
        return torch.cat([t.expand(batch, -1) for t in terms], dim=1)


class ReluLayer(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class ElementwiseLayer(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return FUNCTIONS[self.op.function].value(x, self.op.parameter)


class ProductLayer(Layer):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b


class JumpLayer(Layer):
    """A step function or a rounding; gradients pass through, see `StraightThrough`."""

    def __init__(self, op: Step | Whole) -> None:
        super().__init__(op)
        self.tables: dict[tuple[torch.dtype, torch.device], Table] = {}

    def forward(self, x: Tensor) -> Tensor:
        value = self._value(x)
        if not (torch.is_grad_enabled() and x.requires_grad):
            return value
        out: Tensor = StraightThrough.apply(x, value, surrogate(self.op, x.detach()))  # type: ignore[no-untyped-call]
        return out

    def _value(self, x: Tensor) -> Tensor:
        if isinstance(self.op, Whole):
            return RULES[self.op.rule](x.detach())
        key = (x.dtype, x.device)
        if key not in self.tables:
            self.tables[key] = Table(self.op, *key)
        return self.tables[key].value(x.detach())


class ConstantLayer(Layer):
    value: Tensor

    def __init__(self, op: Constant) -> None:
        super().__init__(op)
        self.tensor("value", op.value)

    def forward(self) -> Tensor:
        return self.value[None]


@singledispatch
def layer_of(op: Op) -> Layer:
    """The torch layer of an operator; a new operator registers its own here."""
    raise TypeError(f"no torch layer for {type(op).__name__}")


for _op, _layer in (
    (Dense, DenseLayer),
    (Sparse, SparseLayer),
    (Conv, ConvLayer),
    (Scale, ScaleLayer),
    (Select, SelectLayer),
    (Sum, SumLayer),
    (Concat, ConcatLayer),
    (Relu, ReluLayer),
    (Elementwise, ElementwiseLayer),
    (Product, ProductLayer),
    (Step, JumpLayer),
    (Whole, JumpLayer),
    (Constant, ConstantLayer),
    (Input, Layer),
):
    layer_of.register(_op)(_layer)


class GraphModule(nn.Module):
    """Evaluates a graph on (batch, inputs) tensors; `values` keeps every node's value."""

    def __init__(self, graph: Graph, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.graph = graph
        self.layers = nn.ModuleList(layer_of(node.op) for node in graph.nodes)
        self.to(dtype)
        self.last_use = _last_use(graph)

    def forward(self, x: Tensor) -> Tensor:
        held: dict[int, Tensor] = {}
        for i, value in enumerate(self._run(x, held)):
            for old in self.last_use.get(i, ()):
                held.pop(old, None)
            if i == self.graph.output:
                return value.expand(x.shape[0], -1)
        raise ValueError("the graph has no output node")

    def values(self, x: Tensor) -> list[Tensor]:
        """The value of every node, in order."""
        return list(self._run(x, {}))

    def _run(self, x: Tensor, held: dict[int, Tensor]) -> Iterator[Tensor]:
        for i, node in enumerate(self.graph.nodes):
            held[i] = x if i == 0 else self.layers[i](*(held[p] for p in node.parents))
            yield held[i]


def _last_use(graph: Graph) -> dict[int, list[int]]:
    last = {p: i for i, node in enumerate(graph.nodes) for p in node.parents}
    drop: dict[int, list[int]] = {}
    for parent, user in last.items():
        drop.setdefault(user, []).append(parent)
    return drop


MODULES = 8  # a batch is about few networks, and modules share their weights with the graphs
_MODULES: dict[str, GraphModule] = {}


def double_module(graph: Graph) -> GraphModule:
    """The graph in double precision; the last ones are kept."""
    if graph.sha256 not in _MODULES:
        while len(_MODULES) >= MODULES:
            _MODULES.pop(next(iter(_MODULES)), None)
        _MODULES[graph.sha256] = GraphModule(graph, torch.float64)
    return _MODULES[graph.sha256]
