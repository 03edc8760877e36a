"""Write a graph as an ONNX file, so that heads, products and generated networks reach every other tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.graph import (
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Graph,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
)
from verifolio.graph.graph import is_exact
from verifolio.graph.matrix import linear_part, offset

OPSET = 13  # the lowest that has every operator we write
IR_VERSION = 8  # that came with it, so that old runtimes read the file
_FUNCTIONS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "sin": "Sin",
    "cos": "Cos",
    "erf": "Erf",
    "softplus": "Softplus",
}


def write_onnx(graph: Graph, path: str | Path) -> None:
    """Write the graph with one float32 input and output of shape (1, size).

    Numbers that float32 cannot hold, and operators with error terms, are refused: the file would describe
    another network.
    """
    writer = _Writer(graph)
    onnx.save(writer.model(), str(path))


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def model(self) -> Any:
        names = ["input"]
        for i, node in enumerate(self.graph.nodes):
            if i:
                names.append(self._node(i, node.op, [names[p] for p in node.parents]))
        self.nodes.append(helper.make_node("Identity", [names[self.graph.output]], ["output"]))
        shapes = (("input", self.graph.input_size), ("output", self.graph.output_size))
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n, size in shapes]
        body = helper.make_graph(self.nodes, "graph", ends[:1], ends[1:], self.constants)
        return helper.make_model(
            body,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="verifolio",
        )

    def _node(self, i: int, op: Op, parents: list[str]) -> str:
        if not is_exact(op):
            raise InputError(
                f"node {i}", "exact weights", "an operator with error terms", "keep the original file"
            )
        out = f"v{i}"
        if isinstance(op, Relu):
            return self._emit("Relu", parents, out)
        if isinstance(op, Product):
            return self._emit("Mul", parents, out)
        if isinstance(op, Concat):
            return self._emit("Concat", parents, out, axis=1)
        if isinstance(op, Constant):
            return self._number(f"{out}_value", op.value[None])
        if isinstance(op, Elementwise):
            return self._function(op, parents, out)
        if isinstance(op, Select):
            return self._select(op, parents[0], out)
        if isinstance(op, Sum):
            return self._sum(op, parents, out)
        if isinstance(op, Conv) and not op.transposed:
            return self._conv(op, parents[0], out)
        return self._affine(op, parents, out)

    def _emit(self, kind: str, inputs: list[str], out: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def _number(self, name: str, value: NDArray[np.float64]) -> str:
        with np.errstate(over="ignore"):
            single = value.astype(np.float32)
        if bool((single.astype(np.float64) != value).any()):
            raise InputError(name, "numbers that float32 holds", "others", "round the weights first")
        self.constants.append(numpy_helper.from_array(single, name))
        return name

    def _integers(self, name: str, values: list[int]) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def _function(self, op: Elementwise, parents: list[str], out: str) -> str:
        if op.function == "pow":
            return self._emit("Pow", [*parents, self._number(f"{out}_exponent", np.array(op.parameter))], out)
        return self._emit(_FUNCTIONS[op.function], parents, out)

    def _select(self, op: Select, parent: str, out: str) -> str:
        holes = op.index < 0
        index = self._integers(f"{out}_index", np.maximum(op.index, 0).tolist())
        if not holes.any():
            return self._emit("Gather", [parent, index], out, axis=1)
        picked = self._emit("Gather", [parent, index], f"{out}_picked", axis=1)
        return self._emit(
            "Mul", [picked, self._number(f"{out}_mask", (~holes)[None].astype(np.float64))], out
        )

    def _sum(self, op: Sum, parents: list[str], out: str) -> str:
        terms = []
        for k, (c, parent) in enumerate(zip(op.coefficients, parents, strict=True)):
            if c == 1:
                terms.append(parent)
            else:
                factor = self._number(f"{out}_c{k}", np.array([[c]]))
                terms.append(self._emit("Mul", [parent, factor], f"{out}_t{k}"))
        total = terms[0]
        for k, term in enumerate(terms[1:]):
            total = self._emit("Add", [total, term], out if k == len(terms) - 2 else f"{out}_s{k}")
        return total

    def _conv(self, op: Conv, parent: str, out: str) -> str:
        shape = self._integers(f"{out}_shape", [1, *op.input_shape])
        image = self._emit("Reshape", [parent, shape], f"{out}_image")
        weight, bias = self._number(f"{out}_w", op.weight), self._number(f"{out}_b", op.bias)
        settings = {"strides": list(op.stride), "pads": list(op.pads), "dilations": list(op.dilation)}
        done = self._emit("Conv", [image, weight, bias], f"{out}_conv", group=op.groups, **settings)
        return self._emit("Reshape", [done, self._integers(f"{out}_flat", [1, op.size])], out)

    def _affine(self, op: Op, parents: list[str], out: str) -> str:
        if isinstance(op, Scale):
            scaled = self._emit(
                "Mul", [parents[0], self._number(f"{out}_w", op.weight[None])], f"{out}_scaled"
            )
            return self._emit("Add", [scaled, self._number(f"{out}_b", op.bias[None])], out)
        if isinstance(op, Dense):
            matrix = op.weight
        elif isinstance(op, Sparse):
            matrix = op.weight.toarray()
        else:
            inputs = int(np.prod(getattr(op, "input_shape", (0,))))
            matrix = linear_part(op, (inputs,))[0].toarray()
        names = [parents[0], self._number(f"{out}_w", matrix), self._number(f"{out}_b", offset(op))]
        return self._emit("Gemm", names, out, transB=1)
