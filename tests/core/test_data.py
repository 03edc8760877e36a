"""What `--data` and `--indices` mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from verifolio.data import check_range, check_shape, in_layout, load_data, parse_indices, parse_range
from verifolio.encode.torch_export import export_onnx
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset


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
    ],
)
def test_indices(text: str, size: int | None, expected: list[int]) -> None:
    assert parse_indices(text, size) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "1.5", "-1", "0:-1", "1:2:3:4", "5:", "0:5:0", "1,,2", "3:3", "3:1"]
)
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


def image_net(folder: Path, shape: tuple[int, ...]) -> Network:
    """A network that reads images of this shape."""
    size = int(np.prod(shape))
    export_onnx(nn.Sequential(nn.Flatten(), nn.Linear(size, 2)), folder / "image.onnx", shape)
    return Network.load(folder / "image.onnx")


def images(*shape: int) -> Dataset:
    raw = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(1, -1)
    return Dataset("pictures.npz", "all", raw, np.zeros(1, np.int64), shape, 2)


def test_axes_in_another_order_are_refused_or_turned(tmp_path: Path) -> None:
    network = image_net(tmp_path, (3, 4, 4))
    with pytest.raises(InputError, match=r"expected inputs of shape 3x4x4.*got 4x4x3.*--layout hwc"):
        check_shape(images(4, 4, 3), network)
    turned = in_layout(images(4, 4, 3), "hwc")
    check_shape(turned, network)
    wanted = images(4, 4, 3).raw.reshape(4, 4, 3).transpose(2, 0, 1)
    np.testing.assert_array_equal(turned.image(0).reshape(3, 4, 4), wanted)
    back = in_layout(turned, "chw")
    assert back.shape == (4, 4, 3) and bool((back.raw == images(4, 4, 3).raw).all())
    with pytest.raises(InputError, match="hwc or chw"):
        in_layout(images(4, 4, 3), "whc")


def test_vectors_and_axes_of_one_fit(tmp_path: Path) -> None:
    for shape in ((1, 4, 4), (16,)):
        network = image_net(tmp_path, shape)
        for given in ((4, 4), (1, 4, 4), (4, 4, 1), (16,)):
            check_shape(images(*given), network)
    network = image_net(tmp_path, (1, 4, 4))
    for other in ((2, 8), (3, 4, 4), (15,)):
        with pytest.raises(InputError, match="shape 4x4"):
            check_shape(images(*other), network)


def test_values_outside_the_range_are_refused() -> None:
    data = images(4, 4)
    check_range(data, [0], 0.0, 15.0)
    with pytest.raises(InputError, match=r"input 0.*from 0 to 1.*got 2 at position 2.*--range 0,15"):
        check_range(data, [0], 0.0, 1.0)
    for text in ("1,0", "nan,1", "0", "a,b"):
        with pytest.raises(InputError, match="--range"):
            parse_range(text)


def test_the_hash_goes_by_content() -> None:
    one = images(4, 4)
    assert replace(one, name="other.npz", split="b").sha256 == one.sha256
    assert replace(one, labels=np.ones(1, np.int64)).sha256 != one.sha256
    assert replace(one, raw=one.raw + 1).sha256 != one.sha256
