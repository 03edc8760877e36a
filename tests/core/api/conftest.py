"""A small classifier of digits, trained on normalised images, and its test images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

MEAN, STD = 0.3, 0.37


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    return (images / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels


@pytest.fixture(scope="session")
def model(digits: tuple[np.ndarray, np.ndarray]) -> nn.Module:
    torch.manual_seed(0)
    found = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
    x, y = torch.from_numpy((digits[0][:1400] - MEAN) / STD), torch.from_numpy(digits[1][:1400])
    optimiser = torch.optim.Adam(found.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(found(x), y).backward()
        optimiser.step()
    return found
