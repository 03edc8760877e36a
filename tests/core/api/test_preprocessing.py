"""Preprocessing in front of a model computes what a program computes before it calls the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from verifolio.encode.preprocessing import Preprocessing, fold, preprocessing_of
from verifolio.encode.torch_export import export_onnx
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

CASES = {
    "all": preprocessing_of(255.0, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "bgr"),
    "one number": preprocessing_of(mean=0.3, std=0.4),
    "scale": preprocessing_of(scale=16),
    "nothing": Preprocessing(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_folded_network_is_the_program(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    export_onnx(model, tmp_path / "bare.onnx", (3, 8, 8))
    folded = fold((tmp_path / "bare.onnx").read_bytes(), CASES[name])
    (tmp_path / "folded.onnx").write_bytes(folded)
    x = np.random.default_rng(0).random((4, 3, 8, 8)) * 255
    with torch.no_grad():
        wanted = model(torch.from_numpy(CASES[name].apply(x).copy())).numpy()
    network = Network.load(tmp_path / "folded.onnx")
    got = np.stack([network.replay(one) for one in x])
    assert np.allclose(got, wanted, rtol=1e-4, atol=1e-3)
    assert network.graph.input_size == 192


def test_wrong_preprocessing_is_refused(tmp_path: Path) -> None:
    export_onnx(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), tmp_path / "n.onnx", (3, 2, 2))
    with pytest.raises(InputError, match="1 or 3 numbers, got 2"):
        fold((tmp_path / "n.onnx").read_bytes(), preprocessing_of(mean=[1, 2]))
    for wrong in ({"std": 0.0}, {"scale": -1}, {"mean": float("nan")}):
        with pytest.raises(InputError, match="finite numbers"):
            preprocessing_of(**wrong)
