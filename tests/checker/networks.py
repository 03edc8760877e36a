"""Small networks that tests of the checker make themselves, with an evaluation in fractions of their own."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]


def random_layers(rng: np.random.Generator, sizes: Sequence[int], kind: str = "plain") -> list[Layer]:
    """Weights (inputs, outputs) and biases; `wide`: of magnitudes from 1e-30 to 1e6; `cancelling`: nearly equal."""
    layers = []
    for a, b in pairwise(sizes):
        weight, bias = rng.normal(size=(a, b)) / np.sqrt(a), rng.normal(size=b) / 3
        if kind == "wide":
            weight *= 10.0 ** rng.choice([-30, -8, -2, 0, 0, 0, 3, 6], size=weight.shape)
        if kind == "cancelling" and a > 1:
            weight[1::2] = -weight[: a // 2 * 2 : 2] * (1 + 1e-6 * rng.normal(size=weight[1::2].shape))
        layers.append((weight.astype(np.float32), bias.astype(np.float32)))
    return layers


def save(path: Path, layers: list[Layer], gemm: bool = True) -> Path:
    """A file of dense layers with ReLUs between them."""
    nodes, constants, name = [], [], "x"
    for k, (weight, bias) in enumerate(layers):
        constants += [numpy_helper.from_array(weight, f"w{k}"), numpy_helper.from_array(bias, f"b{k}")]
        if gemm:
            nodes.append(helper.make_node("Gemm", [name, f"w{k}", f"b{k}"], [f"z{k}"]))
        else:
            nodes.append(helper.make_node("MatMul", [name, f"w{k}"], [f"m{k}"]))
            nodes.append(helper.make_node("Add", [f"m{k}", f"b{k}"], [f"z{k}"]))
        name = f"z{k}"
        if k + 1 < len(layers):
            nodes.append(helper.make_node("Relu", [name], [f"h{k}"]))
            name = f"h{k}"
    return save_nodes(path, nodes, constants, (1, len(layers[0][0])), name, (1, len(layers[-1][1])))


def save_nodes(
    path: Path,
    nodes: list[Any],
    constants: list[Any],
    shape: tuple[int, ...],
    output: str,
    out: tuple[int, ...],
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, out)],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def exact(layers: list[Layer], x: Sequence[Fraction]) -> list[Fraction]:
    """The outputs in fractions."""
    value = list(x)
    for k, (weight, bias) in enumerate(layers):
        rows = [[Fraction(float(w)) for w in row] for row in weight]
        value = [
            sum((v * rows[i][j] for i, v in enumerate(value)), Fraction(float(bias[j])))
            for j in range(len(bias))
        ]
        if k + 1 < len(layers):
            value = [max(v, Fraction(0)) for v in value]
    return value


def property_text(lower: Sequence[Any], upper: Sequence[Any], outputs: int, condition: str) -> str:
    """A VNN-LIB file of a box and a condition."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    for i, (a, b) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= X_{i} {a}))", f"(assert (<= X_{i} {b}))"]
    return "\n".join([*lines, f"(assert {condition})", ""])
