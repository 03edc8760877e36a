"""Values and gradients of a graph in double precision: in numpy where that is enough, by torch otherwise.

Importing torch takes longer than deciding an easy query. Networks of affine maps and ReLUs need nothing of it, so
their import, the second look at their proofs and the replay of their points work in processes without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from verifolio.graph.graph import Graph
from verifolio.graph.ops import (
    Array,
    Concat,
    Constant,
    Dense,
    Input,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
)

if TYPE_CHECKING:
    from torch import Tensor

PLAIN = (Input, Constant, Dense, Sparse, Scale, Select, Sum, Concat, Relu, Product)
KEPT = 8  # evaluators; a batch is about few networks, and most of their arrays are the graphs'
Pull = Callable[[Array], Array]


class Evaluator(Protocol):
    """Evaluates one graph on points (count, inputs)."""

    def layer(self, node: int, *inputs: Array) -> Array:
        """What one node computes from the values of its parents; a constant has one row."""
        ...

    def __call__(self, x: Array) -> Array:
        """The outputs (count, outputs)."""
        ...

    def linearise(self, x: Array) -> tuple[Array, Pull]:
        """The outputs, and a function from weights on them to the gradients of the weighted sums."""
        ...


def evaluator(graph: Graph) -> Evaluator:
    """Of this graph; the last ones are kept."""
    if graph.sha256 not in _KEPT:
        while len(_KEPT) >= KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[graph.sha256] = ArrayEvaluator(graph) if is_plain(graph) else TensorEvaluator(graph)
    return _KEPT[graph.sha256]


_KEPT: dict[str, Evaluator] = {}


def is_plain(graph: Graph) -> bool:
    """Whether numpy alone evaluates the graph."""
    return all(isinstance(node.op, PLAIN) for node in graph.nodes)


class ArrayEvaluator:
    """In numpy."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def layer(self, node: int, *inputs: Array) -> Array:
        return forward(self.graph.nodes[node].op, *inputs)

    def __call__(self, x: Array) -> Array:
        return self._outputs(self._values(x), len(x))

    def linearise(self, x: Array) -> tuple[Array, Pull]:
        values = self._values(x)
        return self._outputs(values, len(x)), lambda weight: self._pull(values, weight)

    def _values(self, x: Array) -> list[Array]:
        values = [np.asarray(x, np.float64)]
        with np.errstate(all="ignore"):  # an overflow is infinite, as for tensors
            for node in self.graph.nodes[1 : self.graph.output + 1]:
                values.append(forward(node.op, *(values[p] for p in node.parents)))
        return values

    def _outputs(self, values: list[Array], count: int) -> Array:
        return np.broadcast_to(values[self.graph.output], (count, self.graph.output_size))

    def _pull(self, values: list[Array], weight: Array) -> Array:
        """Gradients by nodes, from the last to the first."""
        slopes: dict[int, Array] = {self.graph.output: weight}
        with np.errstate(all="ignore"):
            for i in range(self.graph.output, 0, -1):
                slope, node = slopes.pop(i, None), self.graph.nodes[i]
                if slope is None:
                    continue
                back = backward(node.op, slope, *(values[p] for p in node.parents))
                for parent, part in zip(node.parents, back, strict=True):
                    slopes[parent] = slopes[parent] + part if parent in slopes else part
        return slopes.get(0, np.zeros((len(weight), self.graph.input_size)))


def forward(op: Op, *inputs: Array) -> Array:
    """The value of a plain operator; rows are points."""
    if isinstance(op, Dense):
        return np.asarray(inputs[0] @ op.weight.T + op.bias)
    if isinstance(op, Sparse):
        return np.asarray((op.weight @ inputs[0].T).T + op.bias)
    if isinstance(op, Scale):
        return inputs[0] * op.weight + op.bias
    if isinstance(op, Relu):
        return np.maximum(inputs[0], 0.0)
    if isinstance(op, Select):
        picked = inputs[0][:, np.maximum(op.index, 0)]
        return np.where(op.index < 0, 0.0, picked) if (op.index < 0).any() else picked
    if isinstance(op, Sum):
        return np.asarray(sum(c * x for c, x in zip(op.coefficients, inputs, strict=True)))
    if isinstance(op, Product):
        return inputs[0] * inputs[1]
    if isinstance(op, Concat):
        count = max(len(x) for x in inputs)  # constants have one row
        return np.concatenate([np.broadcast_to(x, (count, x.shape[1])) for x in inputs], axis=1)
    if isinstance(op, Constant):
        return op.value[None]
    raise TypeError(f"{type(op).__name__} is not evaluated by numpy")


def backward(op: Op, slope: Array, *inputs: Array) -> tuple[Array, ...]:
    """The gradient of a plain operator's parents from its own."""
    if isinstance(op, Dense):
        return (np.asarray(slope @ op.weight),)
    if isinstance(op, Sparse):
        return (np.asarray((op.weight.T @ slope.T).T),)
    if isinstance(op, Scale):
        return (slope * op.weight,)
    if isinstance(op, Relu):
        return (np.where(inputs[0] > 0, slope, 0.0),)
    if isinstance(op, Select):
        back = np.zeros((inputs[0].shape[1], len(slope)))
        read = np.flatnonzero(op.index >= 0)
        np.add.at(back, op.index[read], slope[:, read].T)  # an entry may be read several times
        return (back.T,)
    if isinstance(op, Sum):
        return tuple(c * slope for c in op.coefficients)
    if isinstance(op, Product):
        return slope * inputs[1], slope * inputs[0]
    if isinstance(op, Concat):
        return tuple(np.split(slope, np.cumsum([x.shape[1] for x in inputs])[:-1], axis=1))
    return ()


class TensorEvaluator:
    """By torch, on one thread."""

    def __init__(self, graph: Graph) -> None:
        from verifolio.graph.module import double_module

        self.module = double_module(graph)

    def layer(self, node: int, *inputs: Array) -> Array:
        return self._run(self.module.layers[node], *inputs)

    def __call__(self, x: Array) -> Array:
        return self._run(self.module, x)

    def _run(self, function: Any, *inputs: Array) -> Array:
        import torch

        from verifolio.run.threads import one_thread

        with one_thread(), torch.no_grad():
            out: Tensor = function(
                *(torch.from_numpy(np.require(x, requirements=("C", "W"))) for x in inputs)
            )
        return np.asarray(out.numpy())

    def linearise(self, x: Array) -> tuple[Array, Pull]:
        import torch

        from verifolio.run.threads import one_thread

        inputs = torch.tensor(x, requires_grad=True)
        with one_thread(), torch.enable_grad():
            outputs: Tensor = self.module(inputs)

        def pull(weight: Array) -> Array:
            if not outputs.requires_grad:  # they are constants
                return np.zeros_like(x)
            with one_thread():
                (slope,) = torch.autograd.grad((outputs * torch.from_numpy(weight)).sum(), inputs)
            return np.asarray(slope.numpy())

        return outputs.detach().numpy(), pull
