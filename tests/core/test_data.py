"""What `--data` and `--indices` mean."""

from __future__ import annotations

import numpy as np
import pytest

from verifolio.data import Dataset, load_data, parse_indices
from verifolio.errors import InputError


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("5", None, [5]),
        ("0:3", None, [0, 1, 2]),
        ("0:3,7", None, [0, 1, 2, 7]),
        ("0:10:4", None, [0, 4, 8]),
        (":3", None, [0, 1, 2]),
        ("8:", 10, [8, 9]),
        (":", 2, [0, 1]),
        (" 1 , 3:5 ", None, [1, 3, 4]),
        ("2,0:4", None, [2, 0, 1, 3]),
        ("3:3", None, []),
    ],
)
def test_indices(text: str, size: int | None, expected: list[int]) -> None:
    assert parse_indices(text, size) == expected


@pytest.mark.parametrize("text", ["", "a", "1.5", "-1", "0:-1", "1:2:3:4", "5:", "0:5:0", "1,,2"])
def test_bad_indices_are_explained(text: str) -> None:
    with pytest.raises(InputError, match="indices"):
        parse_indices(text)


def test_indices_beyond_the_data_are_errors() -> None:
    with pytest.raises(InputError, match="below 10"):
        parse_indices("0:11", 10)
    with pytest.raises(InputError, match="below 10"):
        parse_indices("10", 10)


def small() -> Dataset:
    raw = np.arange(12, dtype=np.uint8).reshape(3, 4)
    return Dataset("small", "test", raw, np.array([0, 1, 2]), (1, 2, 2), 3, scale=4.0)


def test_a_dataset_scales_what_it_stores() -> None:
    data = small()
    assert len(data) == 3
    assert data.size == 4
    assert data.images.dtype == np.float64
    assert data.image(1).tolist() == [1.0, 1.25, 1.5, 1.75]
    assert np.array_equal(data.images[1], data.image(1))


def test_take_keeps_the_order() -> None:
    part = small().take([2, 0])
    assert part.labels.tolist() == [2, 0]
    assert part.image(0)[0] == 2.0


def test_a_dataset_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InputError, match="small:test"):
        Dataset("small", "test", np.zeros((3, 4)), np.zeros(2, np.int64), (4,), 1)


def test_unknown_data_lists_what_there_is() -> None:
    with pytest.raises(InputError) as error:
        load_data("no-such-data")
    assert "digits" in str(error.value)
    assert ".npz" in str(error.value)


def test_unknown_split_lists_the_splits() -> None:
    with pytest.raises(InputError, match="train, test"):
        load_data("digits:validation")
