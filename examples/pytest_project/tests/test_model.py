"""What must hold of the model before it is deployed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent.parent


@pytest.mark.robust("../model.onnx", data="../digits.npz", indices="0:5", epsilon=0.02, timeout=60)
def test_no_small_change_fools_the_model() -> None:
    """One test per digit: no image within 0.02 of it, in every pixel, gets another label."""


def test_one_digit_by_hand(robust: Callable[..., None]) -> None:
    """The same around an input of one's own, here in the L1 norm."""
    data = np.load(HERE / "digits.npz")
    robust(HERE / "model.onnx", data["x"][0], int(data["y"][0]), epsilon=0.05, norm="l1", timeout=60)
