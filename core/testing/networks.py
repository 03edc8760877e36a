"""Tiny networks that one can compute by hand, written as ONNX files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from verifolio.encode.onnx_writer import write_onnx
from verifolio.graph import Dense, Elementwise, Graph, GraphBuilder, Product, Relu
from verifolio.onnx_import.network import Network


def dense_graph(layers: Sequence[tuple[ArrayLike, ArrayLike]], function: str = "relu") -> Graph:
    """Dense layers (weight, bias) with a function between them, none after the last."""
    first = np.asarray(layers[0][0], np.float64)
    builder = GraphBuilder(first.shape[1])
    node = 0
    for k, (weight, bias) in enumerate(layers):
        matrix, shift = np.asarray(weight, np.float64), np.asarray(bias, np.float64)
        node = builder.add(Dense(len(shift), shift, matrix), node)
        if k < len(layers) - 1:
            op = Relu(len(shift)) if function == "relu" else Elementwise(len(shift), function)
            node = builder.add(op, node)
    return builder.finish(node)


def plus_minus() -> Graph:
    """y_0 = relu(x_0) + relu(x_1), y_1 = relu(x_0) - relu(x_1)."""
    return dense_graph([(np.eye(2), np.zeros(2)), ([[1, 1], [1, -1]], np.zeros(2))])


def affine() -> Graph:
    """y = x_0 - 2 x_1 + 1: nothing to relax."""
    return dense_graph([([[1, -2]], [1])])


def zigzag(folds: int = 3) -> Graph:
    """The tent map on [0, 1], `folds` times: 2 ** (folds - 1) peaks of height 1, y = 0 at both ends."""
    layers: list[tuple[ArrayLike, ArrayLike]] = [([[1], [1]], [0, -0.5])]
    layers += [([[2, -4], [2, -4]], [0, -0.5]) for _ in range(folds - 1)]
    return dense_graph([*layers, ([[2, -4]], [0])])


def nought() -> Graph:
    """y = relu(x) - relu(-x) - x: always 0, though its terms are not."""
    return dense_graph([([[1], [-1], [1], [-1]], np.zeros(4)), ([[1, -1, -1, 1]], [0])])


def bells() -> Graph:
    """y = sigmoid(4 x_0) + sigmoid(4 x_1): smooth, between 1 and 1.965 on the unit square."""
    return dense_graph([(4 * np.eye(2), np.zeros(2)), ([[1, 1]], [0])], "sigmoid")


def gated(seed: int) -> Graph:
    """One or two layers of sigmoids, tanhs or waves, gated by ReLUs: three inputs, one output."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(3)
    node = builder.add(Dense(5, rng.normal(size=5), rng.normal(size=(5, 3))), 0)
    if seed % 3 == 0:
        node = builder.add(Elementwise(5, ("tanh", "sigmoid")[seed % 2]), node)
        node = builder.add(Dense(5, rng.normal(size=5), rng.normal(size=(5, 5))), node)
    gate = builder.add(Elementwise(5, ("sigmoid", "tanh", "sin", "erf")[seed % 4]), node)
    mixed = gate if seed % 2 else builder.add(Product(5), gate, builder.add(Relu(5), node))
    return builder.finish(builder.add(Dense(1, np.zeros(1), rng.normal(size=(1, 5))), mixed))


def tangled(inputs: int = 16, width: int = 40, depth: int = 4, seed: int = 7) -> Graph:
    """Random dense layers, too many for any search to finish in seconds on a wide box."""
    rng = np.random.default_rng(seed)
    sizes = [inputs, *[width] * depth, 4]
    layers: list[tuple[ArrayLike, ArrayLike]] = []
    for before, after in itertools.pairwise(sizes):
        weight = rng.normal(size=(after, before)) * np.sqrt(2.0 / before)
        layers.append((np.round(weight * 64) / 64, np.round(rng.normal(size=after) * 8) / 64))
    return dense_graph(layers)


@dataclass(frozen=True)
class Classifier:
    """A folder for networks, and a classifier of points of the unit square into three classes in it.

    y_0 = relu(x_0), y_1 = relu(x_1), y_2 = 1 - relu(x_0 + x_1 - 1) - variant / 16: class 2 wins where both
    inputs are small; two variants are two networks that mostly agree.
    """

    folder: Path
    variant: int = 0

    def network(self) -> Network:
        first = (np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 0, -1]))
        last = (np.diag([1, 1, -1]), np.array([0, 0, 1 - self.variant / 16]))
        return saved(lambda: dense_graph([first, last]), self.folder / f"classifier{self.variant}.onnx")


def saved(make: Callable[[], Graph], path: Path) -> Network:
    """The network of a graph, written unless the file is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_onnx(make(), path)
    return Network.load(path)
