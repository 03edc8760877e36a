"""Weights in files beside the model: read, hashed, bounded, and never from outside the model's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.onnx_import import external
from verifolio.onnx_import.network import Network


def model_file(folder: Path) -> Path:
    """x + 1 ... x + 4, the weights in a file of their own."""
    weights = numpy_helper.from_array(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_data_is_read_and_part_of_the_hash(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    network = Network.load(path)
    assert network.replay(np.zeros(4)).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert network.graph.output_size == 4
    whole = tmp_path / "whole.onnx"
    whole.write_bytes(network.content())
    assert Network.load(whole).sha256 == network.sha256, "what travels to another machine has the same hash"
    (tmp_path / "weights.bin").write_bytes(np.array([9, 9, 9, 9], np.float32).tobytes())
    assert Network.load(path).sha256 != network.sha256
    with pytest.raises(InputError, match="the file has changed"):
        network.content()


def entries(path: Path, change: Callable[[dict[str, str]], None]) -> None:
    model = onnx.load(path, load_external_data=False)
    tensor: Any = model.graph.initializer[0]
    told = {e.key: e.value for e in tensor.external_data}
    change(told)
    del tensor.external_data[:]
    for key, value in told.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("location", "../weights.bin", "inside the model's folder"),
        ("location", "/etc/passwd", "inside the model's folder"),
        ("location", "link.bin", "inside the model's folder"),
        ("location", "absent.bin", "keep both files together"),
        ("offset", "-4", "a number of bytes for offset"),
        ("offset", "8", "bytes in all"),
        ("length", "99", "bytes in all"),
        ("length", "9" * 40, "a number of bytes for length"),
    ],
)
def test_references_that_lead_elsewhere_are_refused(key: str, value: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = model_file(folder)
    (tmp_path / "weights.bin").write_bytes(b"x" * 99)
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    entries(path, lambda told: told.update({key: value}))
    with pytest.raises(InputError, match=said):
        Network.load(path)


def test_the_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "MAX_EXTERNAL", 15)
    with pytest.raises(InputError, match="at most 15 bytes"):
        Network.load(model_file(tmp_path))
