"""Typical torch modules, exported by torch's two exporters, are imported and agree with ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from verifolio.onnx_import.network import Network

EXPORTS = Path(__file__).parents[3] / "benchmarks" / "torch_exports.py"
spec = importlib.util.spec_from_file_location("torch_exports", EXPORTS)
assert spec is not None and spec.loader is not None
exports = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exports)
NOT_WRITTEN = {  # by the exporter that traces, in its operator set
    "threshold",
    "bilinear",
    "rms_norm",
}
REFUSED = {"attention_causal"}  # traced, it adds minus infinity
CURRENT = [
    "gelu",
    "mish",
    "layer_norm",
    "group_norm",
    "multihead",
    "transformer_pre",
    "bilinear_up",
    "select",
]
NEWEST = ["attention_causal", "rms_norm", "silu"]
needs_onnxscript = pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None, reason="onnxscript is not installed"
)


def imported(path: Path) -> Network:
    """The network, whose graph import has compared with ONNX Runtime; once more at points of its own."""
    network = Network.load(path)
    assert network.graph.output_size == network.output_size
    module = network.module()
    for x in np.random.default_rng(3).normal(size=(3, network.input_size)).astype(np.float32):
        ours = module(torch.from_numpy(x)[None]).detach().numpy().ravel()
        assert np.allclose(ours, network.replay(x), rtol=1e-3, atol=1e-4)
    return network


@pytest.mark.parametrize("name", sorted(set(exports.module_names()) - NOT_WRITTEN - REFUSED))
def test_traced_modules(name: str, tmp_path: Path) -> None:
    exports.export_module(name, tmp_path / "net.onnx", dynamo=False)
    imported(tmp_path / "net.onnx")


@needs_onnxscript
@pytest.mark.parametrize("name", CURRENT)
def test_modules_of_the_current_exporter(name: str, tmp_path: Path) -> None:
    exports.export_module(name, tmp_path / "net.onnx", dynamo=True)
    imported(tmp_path / "net.onnx")


@needs_onnxscript
@pytest.mark.parametrize("name", NEWEST)
def test_modules_in_a_newer_operator_set(name: str, tmp_path: Path) -> None:
    exports.export_module(name, tmp_path / "net.onnx", dynamo=True, opset_version=24)
    imported(tmp_path / "net.onnx")


@needs_onnxscript
def test_external_data_of_the_current_exporter(tmp_path: Path) -> None:
    exports.export_module("residual", tmp_path / "one.onnx", dynamo=True)
    exports.export_module("residual", tmp_path / "net.onnx", dynamo=True, external_data=True)
    assert (tmp_path / "net.onnx.data").is_file()
    network, whole = imported(tmp_path / "net.onnx"), Network.load(tmp_path / "one.onnx")
    assert network.graph.sha256 == whole.graph.sha256


@needs_onnxscript
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(exports.module_names()) - {"rrelu"}))
def test_all_modules_of_the_current_exporter(name: str, tmp_path: Path) -> None:
    exports.export_module(name, tmp_path / "net.onnx", dynamo=True)
    imported(tmp_path / "net.onnx")
