"""Data that does not mean what the model means is refused, because every answer about it would mislead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import verifolio
from verifolio.data import parse_indices
from verifolio.errors import InputError

X = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.2], [0.2, 0.9]])


def linear(outputs: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(2, outputs)


def test_columns_in_another_order_than_at_fit_are_refused() -> None:
    pandas: Any = pytest.importorskip("pandas", reason="pandas is not installed")
    from sklearn.linear_model import LogisticRegression

    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = LogisticRegression().fit(frame, [0, 1, 1, 0])
    turned = frame[["b", "a"]]
    with pytest.raises(InputError, match="in their order: a, b"):
        verifolio.robustness(model, turned, [0, 1, 1, 0], epsilon=0.01, executor="inline")
    found = verifolio.robustness(model, frame, [0, 1, 1, 0], epsilon=0.01, executor="inline")
    assert found.accuracy is not None


def test_names_of_some_of_the_classes_are_refused() -> None:
    with pytest.raises(InputError, match="all 3 classes"):
        verifolio.robustness(linear(3), X, ["bird", "cat", "cat", "bird"], epsilon=0.01, executor="inline")


def test_labels_that_are_numbers_in_quotes_are_numbers() -> None:
    texts = verifolio.robustness(linear(3), X, ["2", "2", "0", "1"], epsilon=0.01, executor="inline")
    numbers = verifolio.robustness(linear(3), X, [2, 2, 0, 1], epsilon=0.01, executor="inline")
    assert repr(texts) == repr(numbers)


def test_one_output_has_no_class_that_could_lose() -> None:
    with pytest.raises(InputError, match="at least 2 outputs"):
        verifolio.robustness(linear(1), X, [0, 0, 0, 0], epsilon=0.01, executor="inline")


def test_no_inputs_are_no_question() -> None:
    with pytest.raises(InputError, match="at least one input"):
        parse_indices("3:1", 10)


def test_a_radius_in_quotes_is_explained() -> None:
    text: Any = "8/255"
    with pytest.raises(InputError, match="without quotes"):
        verifolio.robustness(linear(3), X, [0, 1, 2, 0], epsilon=text, executor="inline")
