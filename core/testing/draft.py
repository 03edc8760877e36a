"""An ONNX network that grows node by node, with the shape of every tensor known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

OPSET = 20  # a recent one, so that operators have their present forms
IR_VERSION = 9  # that came with it


@dataclass(eq=False)
class Draft:
    """The nodes so far; `rng` draws the weights, `scale` is the size of the dense layers' weights."""

    rng: np.random.Generator
    inputs: int
    scale: float = 1.0
    opset: int = OPSET
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes["x"], self.kinds["x"] = (1, self.inputs), TensorProto.FLOAT

    def constant(self, value: ArrayLike, dtype: type = np.float32) -> str:
        """A stored tensor; returns its name."""
        name = f"c{len(self.constants)}"
        array: NDArray[Any] = np.asarray(value, dtype)
        self.constants[name], self.shapes[name] = array, array.shape
        self.kinds[name] = helper.np_dtype_to_tensor_dtype(array.dtype)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output and return the output's name."""
        return self.split(op, *inputs, outputs=1, **attributes)[0]

    def split(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Append a node with several outputs."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        for value in self._inferred(self.nodes[-1]):
            tensor = value.type.tensor_type
            self.shapes[value.name] = tuple(int(d.dim_value) for d in tensor.shape.dim)
            self.kinds[value.name] = tensor.elem_type
        return names

    def _inferred(self, node: Any) -> Any:
        """The node alone in a model: its output's types; constants that nodes computed are folded on the way."""
        known = {n: self.constants[n] for n in node.input if n in self.constants}
        outer = [
            helper.make_tensor_value_info(n, self.kinds[n], self.shapes[n])
            for n in dict.fromkeys(node.input)
            if n and n not in known
        ]
        stored = [numpy_helper.from_array(v, n) for n, v in known.items()]
        ends = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.output]
        model = self._model(helper.make_graph([node], "node", outer, ends, stored))
        return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output

    def _model(self, graph: Any) -> Any:
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="verifolio"
        )

    def size(self, name: str) -> int:
        return math.prod(self.shapes[name])

    def flat(self, x: str) -> str:
        """x with the shape (1, n)."""
        return x if self.shapes[x] == (1, self.size(x)) else self.add("Flatten", x)

    def dense(self, x: str, size: int, scale: float | None = None, bend: str = "") -> str:
        """A dense layer; `bend` names what is special about its neurons (see `bent`)."""
        x = self.flat(x)
        inputs = self.size(x)
        weight = self.rng.normal(size=(size, inputs)) / math.sqrt(inputs) * (scale or 1.4 * self.scale)
        weight, bias = bent(self.rng, weight, self.rng.normal(size=size) * 0.4 * (scale or self.scale), bend)
        return self.add("Gemm", x, self.constant(weight), self.constant(bias), transB=1)

    def image(self, x: str, channels: int = 2, height: int = 4, width: int = 4) -> str:
        """x as an image: as it is, or through a dense layer of the right size."""
        if len(self.shapes[x]) == 4:
            return x
        if self.size(x) != channels * height * width:
            x = self.dense(x, channels * height * width)
        return self.add("Reshape", x, self.integers(1, channels, height, width))

    def positive(self, x: str) -> str:
        """Something of the shape of x that is at least a half."""
        return self.add("Add", self.add("Abs", x), self.constant(0.5))

    def draw(self, *shape: int, least: float = -1.5, most: float = 1.5) -> str:
        """A random constant."""
        return self.constant(self.rng.uniform(least, most, shape))

    def per_channel(self, x: str, least: float = -1.5, most: float = 1.5) -> str:
        """A random constant that broadcasts over x: one number per neuron of a vector, or per channel."""
        shape = self.shapes[x]
        sizes = [n if k == 1 else 1 for k, n in enumerate(shape)] if len(shape) > 1 else [1]
        return self.draw(*sizes, least=least, most=most)

    def save(self, output: str, path: Path) -> None:
        """Write the network; nodes that the output does not need stay in it."""
        ends = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, self.inputs]),
            helper.make_tensor_value_info(output, TensorProto.FLOAT, self.shapes[output]),
        ]
        stored = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(self._model(helper.make_graph(self.nodes, "network", ends[:1], ends[1:], stored)), path)


BENDS = ("", "", "opposite", "twin", "zero", "dead", "huge", "tiny", "grid", "one_sign")


def bent(
    rng: np.random.Generator, weight: NDArray[np.float64], bias: NDArray[np.float64], kind: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights with neurons that bounds treat in ways of their own: twins, opposites, dead ones, huge ones."""
    rows = len(weight)
    some = rng.permutation(rows)[: max(1, rows // 3)]
    if kind in ("opposite", "twin") and rows > 1:
        sign = -1.0 if kind == "opposite" else 1.0
        half = len(some) // 2 or 1
        first, second = some[:half], np.setdiff1d(np.arange(rows), some[:half])[:half]
        first = first[: len(second)]
        weight[second], bias[second] = sign * weight[first], sign * bias[first]
    elif kind == "zero":
        weight[some], bias[some[::2]] = 0.0, 0.0
    elif kind == "dead":
        bias[some] -= 20.0 * np.abs(weight).max()
    elif kind in ("huge", "tiny"):
        factor = 10.0 ** (rng.uniform(2, 6) if kind == "huge" else rng.uniform(-6, -2))
        weight[some], bias[some] = weight[some] * factor, bias[some] * factor
    elif kind == "grid":
        return np.round(weight * 16) / 16, np.round(bias * 16) / 16
    elif kind == "one_sign":
        return np.abs(weight) * rng.choice([-1.0, 1.0]), bias
    return weight, bias
