"""A piecewise-linear graph as a torch module of the few operators that auto_LiRPA surely reads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.graph import Concat, Constant, Conv, Dense, Graph, Op, Relu, Scale, Select, Sparse, Sum
from verifolio.graph.matrix import linear_part, offset

MAX_ENTRIES = 20_000_000  # of a matrix that stands for an operator: 160 MB, several of which are held at once


def unfit(graph: Graph) -> str | None:
    """Why a graph cannot be handed over, or None."""
    if not graph.piecewise_linear:
        smooth = sorted(o for o in graph.operators if o.islower() or o == "Product")
        return f"no error term for {', '.join(smooth)}"
    for node in graph.nodes[1:]:
        before = graph.nodes[node.parents[0]].op.size if node.parents else graph.input_size
        if _as_matrix(node.op) and node.op.size * before > MAX_ENTRIES:
            return f"{type(node.op).__name__} of {before} inputs would be too large a matrix"
    return None


def _as_matrix(op: Op) -> bool:
    """Operators that become dense matrices; a constant is one that ignores the input."""
    odd = isinstance(op, Conv) and (op.transposed or op.pads[:2] != op.pads[2:])
    return odd or isinstance(op, Dense | Sparse | Select | Constant)


class GraphAsModule(nn.Module):
    """All nodes of a graph in order, on values of shape (batch, size), in float64."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.linears = nn.ModuleDict()
        for i, node in enumerate(graph.nodes):
            if i and _as_matrix(node.op):
                inputs = graph.nodes[node.parents[0]].op.size if node.parents else graph.input_size
                self.linears[str(i)] = _linear(node.op, inputs)
            elif isinstance(node.op, Conv | Scale):
                self._keep(f"weight_{i}", node.op.weight)
                self._keep(f"bias_{i}", node.op.bias)

    def _keep(self, name: str, value: np.ndarray) -> None:
        self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for i, node in enumerate(self.graph.nodes[1:], 1):
            inputs = [values[p] for p in node.parents] or [x]
            values.append(self._step(i, node.op, inputs))
        return values[self.graph.output]

    def _step(self, i: int, op: Op, inputs: list[Tensor]) -> Tensor:
        if str(i) in self.linears:
            through: Tensor = self.linears[str(i)](inputs[0])
            return through
        if isinstance(op, Relu):
            return torch.relu(inputs[0])
        if isinstance(op, Concat):
            return torch.cat(inputs, dim=1)
        if isinstance(op, Sum):
            return _weighted(op.coefficients, inputs)
        weight, bias = self.get_buffer(f"weight_{i}"), self.get_buffer(f"bias_{i}")
        if isinstance(op, Conv):
            image = inputs[0].reshape(-1, *op.input_shape)
            out = functional.conv2d(image, weight, bias, op.stride, op.pads[:2], op.dilation, op.groups)
            return out.flatten(1)
        return inputs[0] * weight + bias


def _weighted(coefficients: tuple[float, ...], terms: list[Tensor]) -> Tensor:
    parts = [t if c == 1 else t * c for c, t in zip(coefficients, terms, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _linear(op: Op, inputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, op.size, dtype=torch.float64)
    if isinstance(op, Constant):
        weight, bias = np.zeros((op.size, inputs)), op.value
    else:
        weight = op.weight if isinstance(op, Dense) else linear_part(op, (inputs,))[0].toarray()
        bias = offset(op)
    layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
    return layer.requires_grad_(False)
