"""Small networks whose critical radii are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verifolio.encode.onnx_writer import write_onnx
from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.onnx_import.network import Network

Weights = tuple[np.ndarray, np.ndarray]
Make = Callable[..., Network]


@pytest.fixture
def make_network(tmp_path: Path) -> Make:
    """A network of dense layers (weight, bias) with ReLU in between, as a file."""

    def make(*layers: Weights, name: str = "net") -> Network:
        builder = GraphBuilder(layers[0][0].shape[1])
        node = 0
        for k, (weight, bias) in enumerate(layers):
            if k:
                node = builder.add(Relu(weight.shape[1]), node)
            dense = Dense(len(bias), np.asarray(bias, np.float64), np.asarray(weight, np.float64))
            node = builder.add(dense, node)
        write_onnx(builder.finish(node), tmp_path / f"{name}.onnx")
        return Network.load(tmp_path / f"{name}.onnx")

    return make


@pytest.fixture
def plane(make_network: Make) -> Network:
    """y = (1, x_0 + x_1): class 1 from x_0 + x_1 = 1 on, a tie on the line itself."""
    return make_network((np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([1.0, 0.0])), name="plane")


@pytest.fixture
def line(make_network: Make) -> Network:
    """y = (0.5, x): one input, class 1 from 0.5 on."""
    return make_network((np.array([[0.0], [1.0]]), np.array([0.5, 0.0])), name="line")
