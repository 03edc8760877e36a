"""Random networks of realistic size, imported from ONNX so that every operator is lowered as in real files.

Layers hold what real networks and hard cases hold: neurons that are never or always active, copies and opposites.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from verifolio.graph import Graph
from verifolio.graph.ops import Array
from verifolio.model.problem import Ball, Domain
from verifolio.onnx_import.network import Network

Make = Callable[[np.random.Generator], Graph]
FUNCTIONS = ("Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Sin", "Cos", "Erf", "Softplus", "Reciprocal")
# large enough for strides, padding and two convolutions, small enough for plain references
IMAGE = (1, 2, 6, 6)


class Model:
    """An ONNX model under construction; values are named by strings."""

    def __init__(self, rng: np.random.Generator, *shape: int) -> None:
        self.rng, self.shape = rng, shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        kind = np.int64 if np.asarray(value).dtype.kind == "i" else np.float32
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def dense(self, x: str, inputs: int, outputs: int, gain: float = 1.4) -> str:
        weight = self.rng.normal(size=(outputs, inputs)) * gain / np.sqrt(inputs)
        bias = self.rng.normal(size=outputs) * 0.3
        weight, bias = peculiar(self.rng, weight, bias)
        return self.op("Gemm", x, self.const(weight), self.const(bias), transB=1)

    def graph(self, output: str) -> Graph:
        last = helper.make_node("Identity", [output], ["y"])
        signature = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        parts = helper.make_graph([*self.nodes, last], "net", signature, results, self.constants)
        model = helper.make_model(parts, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            onnx.save(model, path)
            return Network.load(path).graph


def peculiar(rng: np.random.Generator, weight: Array, bias: Array) -> tuple[Array, Array]:
    """An eighth each of dead, always active, doubled and opposite neurons, anywhere in the layer."""
    count = len(bias) // 8
    weight, bias = weight.copy(), bias.copy()
    bias[:count] -= 9
    bias[count : 2 * count] += 9
    for k in range(count):
        weight[2 * count + k], bias[2 * count + k] = weight[-1 - k], bias[-1 - k]
        weight[3 * count + k], bias[3 * count + k] = -weight[-1 - k], -bias[-1 - k]
    order = rng.permutation(len(bias))
    return weight[order], bias[order]


def layered(*sizes: int, before: str = "", after: str = "Relu", first: str = "", gain: float = 1.4) -> Make:
    """Dense layers; before and after every activation, and at the input, there may be something more.

    `before` and `after` name the steps; what stands between bars is for one layer after the other.
    """

    def make(rng: np.random.Generator) -> Graph:
        model = Model(rng, 1, sizes[0])
        x = _apply(model, first, "x", sizes[0]) if first else "x"
        for k in range(1, len(sizes)):
            x = model.dense(x, sizes[k - 1], sizes[k], gain)
            if k + 1 < len(sizes):
                for steps in (before.split("|"), after.split("|")):
                    for step in steps[(k - 1) % len(steps)].split():
                        x = _apply(model, step, x, sizes[k])
        return model.graph(x)

    return make


def _apply(model: Model, step: str, x: str, size: int) -> str:
    """One elementwise step by its name."""
    rng, const = model.rng, model.const
    if step == "Scale":
        shift = const(rng.normal(size=size) * 0.2)
        return model.op("Add", model.op("Mul", x, const(rng.normal(size=size))), shift)
    if step == "BatchNorm":
        parts = (
            rng.uniform(0.5, 2, size),
            rng.normal(size=size),
            rng.normal(size=size),
            rng.uniform(0.5, 2, size),
        )
        return model.op("BatchNormalization", x, *(const(p) for p in parts))
    if step in LIMITS:
        low, high = LIMITS[step]
        return model.op("Clip", x, const(low), const(high))
    if step in ("Max", "Min"):
        return model.op(step, x, const(rng.normal(size=size) * 0.3))
    if step == "Positive":  # where every function is defined
        return model.op("Add", model.op("Sigmoid", x), const(0.3))
    if step == "Square":
        return model.op("Mul", x, x)
    if step == "Bilinear":
        return model.op("Mul", x, model.dense(model.op("Relu", x), size, size))
    if step == "Cube":
        return model.op("Pow", x, const(3.0))
    if step == "Gate":
        return model.op("Mul", model.op("Sigmoid", model.dense(x, size, size)), model.op("Tanh", x))
    if step == "LayerNorm":
        return model.op(
            "LayerNormalization", x, const(rng.uniform(0.5, 2, size)), const(rng.normal(size=size))
        )
    if step == "Residual":
        inner = model.op("Relu", model.dense(x, size, size))
        return model.op("Add", x, model.dense(inner, size, size))
    return model.op(step, x)


LIMITS = {"Clip": (0.0, 1.0), "Relu6": (0.0, 6.0), "Squash": (-0.5, 0.5)}


def _convolutions(rng: np.random.Generator, pool: str = "", norm: bool = False, groups: int = 1) -> Graph:
    """Two convolutions on images, perhaps normalised, pooled, in groups; then a dense layer."""
    model = Model(rng, *IMAGE)
    x, channels = "x", IMAGE[1]
    for k, after in enumerate((8, 6)):
        kernel = rng.normal(size=(after, channels // groups, 3, 3)) * 0.4
        bias = model.const(rng.normal(size=after) * 0.3)
        x = model.op(
            "Conv", x, model.const(kernel), bias, pads=[1, 1, 1, 1], group=groups, strides=[1, 1 + k]
        )
        if norm:
            parts = (rng.uniform(0.5, 2, after), rng.normal(size=after), rng.normal(size=after))
            x = model.op(
                "BatchNormalization", x, *map(model.const, parts), model.const(rng.uniform(1, 2, after))
            )
        x = model.op("Relu", x)
        if pool and k == 0:
            x = model.op(pool, x, kernel_shape=[2, 2], strides=[2, 2])
        channels = after
    flat = model.op("Flatten", x)
    size = 6 * 3 * 2 if pool else 6 * 6 * 3
    return model.graph(model.dense(flat, size, 3))


def _upsampled(rng: np.random.Generator) -> Graph:
    """A dense layer, a transposed convolution, a ReLU and a dense layer."""
    model = Model(rng, 1, 32)
    x = model.op("Relu", model.dense("x", 32, 2 * 4 * 4))
    x = model.op("Reshape", x, model.const(np.array([1, 2, 4, 4])))
    x = model.op("ConvTranspose", x, model.const(rng.normal(size=(2, 3, 3, 3)) * 0.4), strides=[2, 2])
    x = model.op("Flatten", model.op("Relu", x))
    return model.graph(model.dense(x, 3 * 9 * 9, 3))


def _attention(rng: np.random.Generator) -> Graph:
    """Six tokens of five numbers, one head."""
    model = Model(rng, 6, 5)
    query, key, value = (
        model.op("MatMul", "x", model.const(rng.normal(size=(5, 4)) * 0.5)) for _ in range(3)
    )
    scores = model.op("MatMul", query, model.op("Transpose", key, perm=[1, 0]))
    mixed = model.op("MatMul", model.op("Softmax", scores, axis=-1), value)
    flat = model.op("Reshape", mixed, model.const(np.array([1, 24])))
    return model.graph(model.dense(flat, 24, 3))


def _transformer(rng: np.random.Generator) -> Graph:
    """Five tokens of six numbers: attention of one head and a layer of ReLUs, each added to what it reads."""
    model = Model(rng, 5, 6)

    def matrix(rows: int, columns: int, gain: float) -> str:
        return model.const(rng.normal(size=(rows, columns)) * gain / np.sqrt(rows))

    query, key, value = (model.op("MatMul", "x", matrix(6, 6, gain)) for gain in (0.4, 0.4, 1.0))
    scores = model.op("MatMul", query, model.op("Transpose", key, perm=[1, 0]))
    mixed = model.op("MatMul", model.op("Softmax", scores, axis=-1), value)
    after = model.op("Add", "x", model.op("MatMul", mixed, matrix(6, 6, 1.0)))
    inner = model.op(
        "Relu", model.op("Add", model.op("MatMul", after, matrix(6, 14, 1.4)), matrix(1, 14, 0.3))
    )
    after = model.op("Add", after, model.op("MatMul", inner, matrix(14, 6, 1.0)))
    return model.graph(model.dense(model.op("Reshape", after, model.const(np.array([1, 30]))), 30, 3))


def _joined(rng: np.random.Generator) -> Graph:
    """A layer beside its inputs and beside constants, some entries of them twice."""
    model = Model(rng, 1, 32)
    hidden = model.op("Relu", model.dense("x", 32, 24))
    joined = model.op("Concat", hidden, "x", model.const(rng.normal(size=(1, 4))), axis=1)
    picked = model.op("Gather", joined, model.const(rng.integers(0, 60, 40)), axis=1)
    mixed = model.op("Relu", model.op("Mul", picked, model.const(rng.normal(size=40))))
    return model.graph(model.dense(mixed, 40, 3))


MIXED = ("Relu", "Relu Scale", "Scale Relu", "BatchNorm Relu Scale", "Clip", "Max", "Min Relu", "Squash", "")


def _mixture(rng: np.random.Generator) -> Graph:
    """A chain of four hidden layers with anything between them."""
    steps = "|".join(rng.choice(MIXED, 4))
    inputs = int(rng.choice([32, 160]))
    return layered(inputs, 40, 30, 36, 30, 3, after=steps, first=str(rng.choice(["", "Scale"])))(rng)


CHAINS: dict[str, Make] = {
    "mixture": _mixture,
    "dense": layered(32, 60, 40, 50, 3),
    "deep": layered(30, *[24] * 8, 3),
    "wide": layered(40, 300, 120, 3, gain=1.0),
    "many_inputs": layered(200, 40, 40, 30, 3),
    "scale_input": layered(32, 40, 30, 30, 3, first="Scale"),
    "scale_before": layered(32, 40, 30, 30, 3, before="BatchNorm"),
    "scale_after": layered(32, 40, 30, 30, 3, after="Relu Scale"),
    "scale_around": layered(36, 40, 30, 30, 3, first="Scale", before="Scale", after="Relu BatchNorm"),
    "scale_after_second": layered(32, 40, 30, 30, 3, after="Relu|Relu Scale|Relu"),
    "clip_second": layered(32, 40, 30, 3, after="Relu|Clip"),
    "clip_second_many_inputs": layered(200, 40, 30, 30, 3, after="Relu|Relu Clip|Relu"),
    "clip": layered(32, 40, 30, 30, 3, after="Clip"),
    "clip_many_inputs": layered(200, 40, 30, 30, 3, after="Clip"),
    "relu_then_clip": layered(32, 40, 30, 30, 3, after="Relu Squash"),
    "relu6": layered(32, 40, 40, 3, after="Relu6"),
    "hard_sigmoid": layered(32, 40, 30, 30, 3, after="HardSigmoid"),
    "max": layered(32, 40, 30, 30, 3, after="Max"),
    "min": layered(32, 40, 30, 30, 3, after="Min"),
}
BRANCHED: dict[str, Make] = {
    "abs": layered(32, 30, 24, 3, after="Abs"),
    "leaky": layered(32, 30, 24, 3, after="LeakyRelu"),
    "residual": layered(32, 30, 24, 3, after="Relu Residual"),
    "conv": lambda rng: _convolutions(rng),
    "conv_groups": lambda rng: _convolutions(rng, groups=2),
    "conv_norm": lambda rng: _convolutions(rng, norm=True),
    "conv_max_pool": lambda rng: _convolutions(rng, "MaxPool"),
    "conv_average_pool": lambda rng: _convolutions(rng, "AveragePool", norm=True),
    "upsampled": _upsampled,
    "joined": _joined,
}
SMOOTH: dict[str, Make] = {
    **{name: layered(32, 24, 20, 3, before="Positive", after=name, gain=0.8) for name in FUNCTIONS},
    "sigmoid_deep": layered(32, 30, 30, 30, 3, after="Sigmoid"),
    "pow": layered(32, 24, 20, 3, after="Square Tanh Cube"),
    "gate": layered(32, 24, 3, after="Gate"),
    "quadratic": layered(32, 24, 20, 3, after="Square|Relu Bilinear", gain=0.8),
    "products_last": layered(32, 24, 20, 3, after="Relu|Bilinear", gain=0.8),
    "gelu": layered(32, 24, 3, after="Gelu"),
    "elu": layered(32, 24, 20, 3, after="Elu"),
    "hard_swish": layered(32, 24, 20, 3, after="HardSwish"),
    "softsign": layered(32, 24, 3, after="Softsign"),
    "layer_norm": layered(32, 24, 3, after="Relu LayerNorm", gain=0.8),
    "softmax": layered(32, 12, 3, after="Softmax"),
    "attention": _attention,
    "transformer": _transformer,
}
NETWORKS: dict[str, Make] = {**CHAINS, **BRANCHED, **SMOOTH}


def boxes(rng: np.random.Generator, inputs: int, radii: Sequence[float]) -> list[Domain]:
    """One box per radius around random centres; sides differ, and some are flat."""
    found = []
    for radius in radii:
        centre = rng.normal(size=inputs)
        sides = radius * rng.uniform(0.2, 1, inputs) * (rng.random(inputs) > 0.05)
        found.append(Domain(centre - sides, centre + radius * (sides > 0)))
    return found


def balls(rng: np.random.Generator, inputs: int, radii: Sequence[float], norm: float) -> list[Domain]:
    """One ball per radius, cut by a box that is a little smaller on some sides."""
    found = []
    for radius in radii:
        centre = rng.normal(size=inputs)
        low, high = (centre + side * radius * rng.uniform(0.6, 1.5, inputs) for side in (-1, 1))
        found.append(Domain(low, high, ball=Ball(centre, radius, norm)))
    return found
