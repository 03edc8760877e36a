"""Exported networks compute what torch computes, and what cannot be written is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from verifolio.encode.torch_export import Normalise, Residual, export_onnx, supported_layers
from verifolio.errors import InputError

CONV = nn.Conv2d
MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "dense": (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=False)), (5,)),
    "smooth": (nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Tanh(), nn.Softplus()), (5,)),
    "leaky": (nn.Sequential(nn.Linear(5, 4), nn.LeakyReLU(0.2), nn.Dropout(0.5)), (5,)),
    "conv": (nn.Sequential(CONV(2, 4, 3, stride=2, padding=1, groups=2), nn.ReLU(), nn.Flatten()), (2, 7, 6)),
    "pool": (nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(3, stride=1, padding=1)), (2, 8, 8)),
    "average": (nn.Sequential(nn.AvgPool2d(3, 2, 1, count_include_pad=False)), (1, 5, 5)),
    "norm": (nn.Sequential(Normalise([0.1, 0.2], [0.5, 2.0]), nn.BatchNorm2d(2), CONV(2, 1, 3)), (2, 4, 4)),
    "norm1": (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False)), (5,)),
    "residual": (nn.Sequential(Residual(nn.Linear(4, 4)), Residual(nn.Linear(4, 2), nn.Linear(4, 2))), (4,)),
    "nothing": (nn.Sequential(), (3,)),
    "dilated": (nn.Sequential(CONV(1, 1, 3, dilation=2, bias=False)), (1, 8, 8)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [1, "batch"])
def test_onnx_runtime_agrees_with_torch(name: str, batch: int | str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, shape = MODELS[name]
    model.train()
    if len(list(model.buffers())) > 0:
        model(torch.randn(16, *shape))  # running statistics that are not the defaults
    model.eval()
    export_onnx(model, tmp_path / "net.onnx", shape, batch=batch)
    x = torch.randn(1 if batch == 1 else 3, *shape)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"input": x.numpy()})
    want = model(x).detach().numpy()
    assert got.shape == want.shape
    assert np.allclose(got, want, atol=1e-5)


def test_evaluation_mode_is_written_and_training_mode_restored(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9)).train()
    export_onnx(model, tmp_path / "net.onnx", (3,))
    assert model.training
    assert [n.op_type for n in onnx.load(tmp_path / "net.onnx").graph.node] == ["Gemm"]


def test_unsupported_layers_are_all_named_and_nothing_is_written(tmp_path: Path) -> None:
    layers = (nn.GELU(), nn.Sequential(nn.LSTM(2, 2)), CONV(1, 1, 3, padding="same"), nn.Flatten(0))
    with pytest.raises(InputError) as error:
        export_onnx(nn.Sequential(*layers), tmp_path / "net.onnx", (3,))
    for name in ("GELU", "LSTM", "Conv2d with padding 'same'", "Flatten of dimensions 0"):
        assert name in str(error.value)
    assert not (tmp_path / "net.onnx").exists()


def test_supported_layers_are_listed() -> None:
    assert {"Linear", "Conv2d", "ReLU", "Residual"} <= set(supported_layers())
